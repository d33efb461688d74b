"""A captured graph as Python source: how misses are answered without the user's code.

The source was written by the builder and is covered by a digest. Its `bind` takes the weights by slot
and returns a function of the call's tensors that returns the outputs as a tuple.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..formats.container import Artifact
from ..formats.errors import SectionError

Forward = Callable[..., Sequence[torch.Tensor]]


def load(artifact: Artifact, section: str, constants: Mapping[str, torch.Tensor]) -> Forward:
    """Return the graph's function; the source is checked now and compiled at the first call.

    Raises:
        FormatError: the section is not the one that was recorded.
    """
    source = artifact.text(section)
    where = f"{artifact.path}: section {section!r}"
    compiled: list[Forward] = []

    def forward(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        if not compiled:
            compiled.append(_compile(source, constants, where))
        return compiled[0](*tensors)

    return forward


def _compile(source: str, constants: Mapping[str, torch.Tensor], where: str) -> Forward:
    namespace: dict[str, Any] = {}
    try:
        exec(compile(source, where, "exec"), namespace)
        forward: Forward = namespace["bind"](constants)
    except Exception as error:
        raise SectionError(where, found=repr(error), expected="the source of a graph") from error
    return forward
