"""Where a variant may run, by its instruction set or GPU architecture."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A kind of machine.

    Attributes:
        device: "cpu" or "cuda", as torch names device types.
        arch: the processor as `platform.machine()` names it, for example "x86_64".
        isa: what the compiled code needs beyond the base of `arch`: a micro-architecture level such
            as "x86-64-v4" on the CPU, "sm_90" on CUDA.
    """

    device: str
    arch: str
    isa: str

    def __str__(self) -> str:
        named = self.device == "cuda" or self.isa.startswith("x86-64")
        isa = self.isa if named else f"{self.arch}-{self.isa}"
        return f"{self.device}-{isa}"
