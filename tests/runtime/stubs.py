"""Programs without a library: a Python function stands for what was compiled."""

from collections.abc import Callable, Mapping, Sequence

import torch

from tcbuild.formats import Bucket, Guard, Target, Variant
from tcbuild.formats.signature import Node
from tcbuild.runtime.program import Program
from tcbuild.runtime.state import State

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]


class Stub:
    """What can run, and notes which sets of constants it is given.

    Attributes:
        spare: the second set.
        flips: how often the sets were switched.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.spare: Mapping[str, torch.Tensor] = {}
        self.flips = 0

    def bind_spare(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Take the second set."""
        self.spare = constants

    def flip(self) -> None:
        """Switch the sets."""
        self.flips += 1


def variant(
    bucket: Bucket,
    outputs: Node,
    *,
    guards: tuple[Guard, ...] = (),
    constants: dict[str, str] | None = None,
    state: tuple[str, ...] = (),
    written: tuple[int, ...] = (),
    pad: dict[str, int] | None = None,
    fill: dict[str, int | float] | None = None,
) -> Variant:
    """Return the record of a variant that has no files."""
    return Variant(
        id=str(bucket),
        form="library",
        signature=0,
        bucket=bucket,
        guards=guards,
        outputs=outputs,
        files={},
        constants=constants or {},
        state=state,
        written=written,
        pad=pad or {},
        fill=fill or {},
        target=Target(device="cpu", arch="x86_64", isa="x86-64-v3"),
    )


def program(record: Variant, run: Run, state: State | None = None) -> Program:
    """Return a program that runs a function."""
    return Program(record, Stub(run), state or State([], {}), torch.device("cpu"))
