"""What the search for the fastest code measured of one way to compile a variant."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One way to compile a variant, and how it did against the others on the same call.

    Attributes:
        candidate: names the set of options.
        cuda_graph: whether its calls were replayed as CUDA graphs.
        chosen: whether the variant is this one.
        microseconds: the median of a call, to four digits; 0 where it was not measured to the end.
        calls: how many were measured.
        problem: why it was out, in words; empty where it was in the running.
        options: what of the compiler's options was not as in every build, as text.
    """

    candidate: str
    cuda_graph: bool = False
    chosen: bool = False
    microseconds: float = 0.0
    calls: int = 0
    problem: str = ""
    options: dict[str, str] = field(default_factory=dict)
