"""A captured graph as Python source: how misses are answered without the user's code.

The source was written by the builder and is covered by a digest. Its `bind` takes the weights by slot
and returns a function of the call's tensors that returns the outputs as a tuple.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..formats.container import Artifact
from ..formats.errors import SectionError

Constants = Mapping[str, torch.Tensor]
Forward = Callable[..., Sequence[torch.Tensor]]


class Graph:
    """A graph from its source, which is checked now and compiled at the first call.

    `run` takes the tensors as a list, as a library's does.
    """

    def __init__(self, artifact: Artifact, section: str, constants: Constants) -> None:
        """Read the source.

        Raises:
            FormatError: the section is not the one that was recorded.
        """
        self._source = artifact.text(section)
        self._where = f"{artifact.path}: section {section!r}"
        self._sets = [constants, constants]
        self._forward: Forward | None = None

    def run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Run the graph eagerly."""
        if self._forward is None:
            self._forward = self._compile()
        return self._forward(*tensors)

    def bind_spare(self, constants: Constants) -> None:
        """Bind a second set of constants that `flip` brings into use."""
        self._sets[1] = constants

    def flip(self) -> None:
        """Use the other set from the next call on."""
        self._sets.reverse()
        self._forward = None

    def _compile(self) -> Forward:
        namespace: dict[str, Any] = {}
        try:
            exec(compile(self._source, self._where, "exec"), namespace)
            forward: Forward = namespace["bind"](self._sets[0])
        except Exception as error:
            expected = "the source of a graph"
            raise SectionError(self._where, found=repr(error), expected=expected) from error
        return forward
