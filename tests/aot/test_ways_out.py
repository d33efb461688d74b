"""What a refused capture says to do next."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tcbuild.aot import Spec
from tcbuild.aot.capture import capture
from tcbuild.aot.errors import CaptureError, ModelError
from tcbuild.aot.plan import Plan
from tcbuild.aot.sizes import Names, relations


class Positions(nn.Module):
    """Adds one of eight positions to each."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, words]."""
        return x + self.positions[: x.size(1)]


class Loop(nn.Module):
    """Takes one word after the other."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, words]."""
        total = x[:, 0]
        for i in range(x.size(1)):
            total = torch.tanh(total + x[:, i])
        return total


class Masked(nn.Module):
    """Multiplies with a mask of the same words."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Take x and mask, float32 [rows, words]."""
        return x * mask


def refused(module: nn.Module, args: tuple[Tensor, ...], shapes: Any) -> str:
    """Return what the capture of a module says to do."""
    spec = Spec.from_module(module.eval(), args, dynamic_shapes=shapes)
    with pytest.raises((CaptureError, ModelError)) as caught:
        captured_whole(spec, module)
    return caught.value.tip


def captured_whole(spec: Spec, module: nn.Module) -> None:
    """Capture a spec's only job, for all sizes that it declares."""
    (job,) = Plan.of(spec).jobs
    captured = capture(spec, module, job.bucket, job.id)
    relations(captured.program.graph, job.bucket, Names.of(captured, job.id), job.id)


def words(most: int) -> dict[str, Any]:
    """Return the shapes of x with up to so many words."""
    return {"x": {1: Dim("words", min=2, max=most)}}


def test_one_size_of_many() -> None:
    tip = refused(Loop(), (torch.ones(3, 5),), words(16))
    assert tip.startswith("use policy = 'specialize' for words")


def test_too_wide_a_range() -> None:
    assert refused(Positions(), (torch.ones(3, 5),), words(64)).startswith("narrow the range")


def test_an_axis_left_out() -> None:
    tip = refused(Masked(), (torch.ones(3, 5), torch.ones(3, 5)), words(64))
    assert tip.startswith("the call has words=8: narrow a dim")
    assert "every axis that varies with it" in tip
