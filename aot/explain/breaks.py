"""Every place where a model leaves its graph, not only the first: Dynamo's, which goes on behind each.

The model is run once through Dynamo with a back end that keeps each piece of graph and runs it as it is.
What is logged of breaks, and the calls of the pieces, are put into one sequence. A break ends the piece
that Dynamo compiles at the time, so it is come to at each call of that piece.
"""

import contextlib
import linecache
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._dynamo.backends.common import aot_autograd

from .. import source_line
from ..call_mode import CallMode
from ..capture import quiet
from ..source_line import Line
from ..spec import Call
from . import reasons
from .reasons import Reason

_LOGGERS: Final = ("symbolic_convert", "convert_frame", "exc")
_MOST_PIECES: Final = 512  # of one function, before Dynamo gives up


@dataclass(eq=False)
class Piece:
    """One piece of graph that Dynamo makes of the model.

    Attributes:
        compiled: Dynamo's identifier of the compilation that has made it.
        weights: for each tensor that it takes, whether it is a weight of the model.
        graph: of ATen operators; None where torch asked for none.
    """

    compiled: str
    weights: tuple[bool, ...]
    graph: torch.fx.Graph | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A call of a piece: the tensors that it was given and that it gave, weights left out.

    Attributes:
        piece: that was called.
        given, made: each with its index.
        count: of everything that it gave.
    """

    piece: Piece
    given: tuple[tuple[int, torch.Tensor], ...]
    made: tuple[tuple[int, torch.Tensor], ...]
    count: int


@dataclass(frozen=True, kw_only=True)
class Message:
    """What Dynamo logs of a break, and the compilation that comes to it."""

    text: str
    compiled: str


@dataclass(frozen=True, kw_only=True)
class Break:
    """A line that is no part of a graph.

    Attributes:
        line: of the user's code; None where it is none of theirs.
        reason: why.
        said: what Dynamo says, its hints left out.
        cuts: the calls of pieces right before and behind it, each time that it was come to; None where
            there is no graph on that side.
    """

    line: Line | None
    reason: Reason
    said: str
    cuts: tuple[tuple[Run | None, Run | None], ...]

    @property
    def place(self) -> str:
        """Where it is, in one line."""
        return str(self.line) if self.line else "torch's own code"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run through Dynamo has shown.

    Attributes:
        breaks: in the order in which they are first come to.
        runs: the calls of the pieces of graph, in order.
        problem: what Dynamo itself failed with; empty where it did not.
    """

    breaks: tuple[Break, ...]
    runs: tuple[Run, ...]
    problem: str


def find(module: torch.nn.Module, call: Call, mode: CallMode) -> Found:
    """Run a model once through Dynamo.

    Args:
        module: on the device of the call's tensors. Its buffers may be written to: pass a copy.
        call: the arguments.
        mode: of the call.
    """
    happened: list[Message | Run] = []
    problem = ""
    torch._dynamo.reset()
    try:
        with quiet(), mode.on(module), _heard(happened), _unlimited():
            run = torch.compile(module, backend=_backend(happened), dynamic=False)
            run(*call[0], **call[1])
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "no message")
        problem = f"{type(error).__name__}: {first}"
    finally:
        torch._dynamo.reset()
    runs = tuple(one for one in happened if isinstance(one, Run))
    return Found(breaks=_breaks(happened), runs=runs, problem=problem)


def _breaks(happened: Sequence[Message | Run]) -> tuple[Break, ...]:
    found: dict[tuple[Line | None, str], Break] = {}
    for i, message in enumerate(happened):
        if not isinstance(message, Message):
            continue
        line, said, hints = _read(message.text)
        summary = next(iter(said.splitlines()), "")
        reason = reasons.find(said + (line.code if line else ""), summary, hints)
        key = (line, reason.kind)
        cuts = found[key].cuts if key in found else ()
        cuts = (*cuts, *_cuts(happened, i, message.compiled))
        # A function that breaks breaks its caller, too: there it is the call that has no graph before it.
        whole = tuple(cut for cut in cuts if cut[0] is not None)
        found[key] = Break(line=line, reason=reason, said=said, cuts=whole or cuts)
    return tuple(found.values())


def _cuts(
    happened: Sequence[Message | Run], index: int, compiled: str
) -> list[tuple[Run | None, Run | None]]:
    """Return each call of the piece that a break ends, with the call that follows."""
    runs = [one for one in happened if isinstance(one, Run)]
    ended = [i for i, run in enumerate(runs) if run.piece.compiled == compiled]
    if not ended:
        return [(None, next((one for one in happened[index:] if isinstance(one, Run)), None))]
    return [(runs[i], runs[i + 1] if i + 1 < len(runs) else None) for i in ended]


def _read(message: str) -> tuple[Line | None, str, tuple[str, ...]]:
    """Take a message of Dynamo's apart: the user's line, what is said, and the hints."""
    head, _, trace = message.partition("User code traceback:")
    _, _, text = head.partition("Graph Break Reason:")
    text = text.partition("Stack variable source attribution:")[0] or head
    hints, said = [], []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("Hint:"):
            hints.append(words.removeprefix("Hint:").strip())
        elif words and not words.startswith(("For more details", "Encountered graph break when")):
            said.append(words)
    return _users_line(trace or message, head), "\n".join(said), tuple(hints)


def _users_line(trace: str, head: str) -> Line | None:
    """Return the innermost line of the user's own, behind those that have called us."""
    frames = list(source_line.in_text(trace))
    ours = [i for i, frame in enumerate(frames) if frame.file == __file__]
    own = [line for line in frames[max(ours, default=-1) + 1 :] if source_line.is_users(line.file)]
    if own:
        return own[-1]
    place = re.search(r"in user code at (.+):(\d+)$", head, re.MULTILINE)
    if place is None or not source_line.is_users(place[1]):
        return None
    code = linecache.getline(place[1], int(place[2])).strip()
    return Line(file=place[1], number=int(place[2]), function="forward", code=code)


@contextlib.contextmanager
def _heard(happened: list[Any]) -> Iterator[None]:
    """Append what Dynamo logs of graph breaks."""

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            happened.append(Message(text=record.getMessage(), compiled=_compilation()))

    handler = Heard(logging.DEBUG)
    loggers = [logging.getLogger(f"torch._dynamo.{name}.__graph_breaks") for name in _LOGGERS]
    before = [(logger.level, logger.propagate, logger.disabled) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.propagate, logger.disabled = False, False
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, (level, propagate, disabled) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate, logger.disabled = propagate, disabled


def _unlimited() -> contextlib.AbstractContextManager[Any]:
    """Let Dynamo trace one function for as many instances as there are, and say so each time."""
    settings = {"recompile_limit": _MOST_PIECES, "accumulated_recompile_limit": _MOST_PIECES}
    settings |= {"verbose": False, "suppress_errors": False}
    patched: contextlib.AbstractContextManager[Any] = torch._dynamo.config.patch(settings)
    return patched


def _backend(happened: list[Any]) -> Callable[..., Any]:
    """Return a back end that keeps the graphs, and the tensors of their calls."""

    def compile_(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        placeholders = graph.graph.find_nodes(op="placeholder")
        piece = Piece(compiled=_compilation(), weights=tuple(map(_is_weight, placeholders)))

        def keep(aten: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            piece.graph = aten.graph
            return aten

        run = aot_autograd(fw_compiler=keep)(graph, inputs)

        def call(*given: Any) -> Any:
            made = run(*given)
            taken = (
                (i, one)
                for i, (one, weight) in enumerate(zip(given, piece.weights, strict=False))
                if isinstance(one, torch.Tensor) and not weight
            )
            tensors = ((i, one) for i, one in enumerate(made) if isinstance(one, torch.Tensor))
            happened.append(
                Run(piece=piece, given=tuple(taken), made=tuple(tensors), count=len(made))
            )
            return made

        return call

    return compile_


def _compilation() -> str:
    """Return Dynamo's identifier of what it compiles now; each attempt at it has the same."""
    return str(torch._guards.CompileContext.current_compile_id())


def _is_weight(node: torch.fx.Node) -> bool:
    """Return whether a placeholder stands for a parameter or a buffer of the model."""
    source = node.meta.get("grapharg")
    value = getattr(source, "example", None) if source is not None else None
    return (
        isinstance(value, torch.nn.Parameter)
        or "_parameters_" in node.name
        or "_buffers_" in node.name
    )
