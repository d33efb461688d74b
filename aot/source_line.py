"""Lines of the user's own code: of an error, of an operator of a graph, of a guard on a size."""

import inspect
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final
from unittest import mock

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from .. import formats

# Folders of torch and of ours, as their frames name them.
_OURS: Final = tuple(f"{os.path.dirname(file)}{os.sep}" for file in (__file__, formats.__file__))
_NOT_THE_USERS: Final = (f"{os.path.dirname(torch.__file__)}{os.sep}", *_OURS)
_FRAME: Final = re.compile(r'^\s*File "(.+)", line (\d+), in (\S+)\n(?:\s*(.*)\n)?', re.MULTILINE)
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+$")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the user's code: the file, its number, the function, and the code itself."""

    file: str
    number: int
    function: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.number} in {self.function}"

    @property
    def brief(self) -> str:
        """The file's name and the number: `model.py:41`."""
        return f"{os.path.basename(self.file)}:{self.number}"


def is_users(file: str) -> bool:
    """Return whether a source file is neither torch's nor ours."""
    return not file.startswith(_NOT_THE_USERS)


def of_error(error: BaseException) -> Line | None:
    """Return the innermost line of the user's own in an error's traceback."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_users(code.co_filename):
            found = Line(file=code.co_filename, number=trace.tb_lineno, function=code.co_name)
        trace = trace.tb_next
    return found


def of_node(node: torch.fx.Node) -> Line | None:
    """Return the innermost line of the user's own that an operator comes from."""
    own = [line for line in in_text(node.meta.get("stack_trace") or "") if is_users(line.file)]
    return own[-1] if own else None


def in_text(trace: str) -> Iterator[Line]:
    """Yield the frames of a traceback that is text, the outermost first."""
    for file, number, name, code in _FRAME.findall(f"{trace}\n"):
        resumed = _RESUMED.match(name)
        function = resumed[1] if resumed else name
        yield Line(file=file, number=int(number), function=function, code=code.strip())


@contextmanager
def of_sizes() -> Iterator[None]:
    """Let torch note the user's line with each guard on a size, within the block.

    Its own choice is the innermost line that is not in a few files of torch's: where the user's line
    calls `view`, that is a line of the decomposition of `view`.
    """

    def users_frame(_: ShapeEnv) -> FrameType | None:
        frame = inspect.currentframe()
        frame = frame.f_back if frame else None
        while frame is not None and not is_users(frame.f_code.co_filename):
            ours = frame.f_code.co_filename.startswith(_OURS)
            frame = None if ours else frame.f_back  # above us is who builds, not the model
        return frame

    with mock.patch.object(ShapeEnv, "_get_user_frame", users_frame):
        yield


def of_guard(location: Any) -> Line | None:
    """Return the user's line that torch has noted with a guard on a size."""
    frame = getattr(location, "framework_loc", None)
    if frame is None or isinstance(frame, str) or not is_users(frame.filename):
        return None
    return Line(file=frame.filename, number=frame.lineno or 0, function=frame.name)
