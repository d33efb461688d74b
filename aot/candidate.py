"""One way to compile a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..formats.target import Target
from . import packing
from .spec import Spec


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A set of the compiler's options, and how the library is then called.

    Attributes:
        name: in tables and records.
        options: of Inductor, beyond those of every build; and packing.OPTION.
        cuda_graph: whether calls are replayed as CUDA graphs.
    """

    name: str = "default"
    options: Mapping[str, object] = field(default_factory=dict)
    cuda_graph: bool = False

    @classmethod
    def of(cls, spec: Spec, target: Target) -> "Candidate":
        """Return what a spec asks for by itself, where nothing is searched."""
        graph = target.device == "cuda" and spec.mode == "reduce-overhead"
        options = {**spec.compiler_options(), **packing.usual(spec, target)}
        return cls(options=options, cuda_graph=graph)

    def own(self, common: Mapping[str, object]) -> dict[str, str]:
        """Return its options but for those that all candidates of the build have, as text."""
        return {name: str(value) for name, value in self.options.items() if name not in common}
