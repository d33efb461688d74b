"""What is tried on the CPU depends on what the graph does."""

import pytest
import torch
from torch import nn

from tcbuild import aot
from tcbuild.aot.capture import capture
from tcbuild.aot.plan import Plan
from tcbuild.aot.tuning.candidates import candidates

UNPACKED = ["weights as they are", "layout as it is", "channels last"]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([nn.Conv2d(3, 3, 1), nn.GELU()], ["default", *UNPACKED]),
        ([nn.GELU(approximate="tanh")], ["default", "tanh by exponentials"]),
        (
            [nn.Conv2d(3, 3, 1), nn.Tanh()],
            [
                *("default", "tanh by exponentials"),
                *(f"{name}{more}" for name in UNPACKED for more in ("", ", tanh by exponentials")),
            ],
        ),
    ],
)
def test_cpu(layers: list[nn.Module], expected: list[str]) -> None:
    spec = aot.Spec.from_module(nn.Sequential(*layers).eval(), (torch.ones(1, 3, 4, 4),))
    (job,) = Plan.of(spec).jobs
    captured = capture(spec, spec.model(), job.bucket, job.id, job.choices, "cpu", job.mode)
    found = candidates(spec, job.target, captured.program.graph_module)
    assert [one.name for one in found] == expected
    assert all(("cpp.use_decompose_tanh" in one.options) == ("tanh" in one.name) for one in found)
