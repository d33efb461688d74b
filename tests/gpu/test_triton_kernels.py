"""A user's own Triton kernel is compiled into the artifact: serving needs neither it nor Triton."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ..conformance.play import import_file
from . import models
from .conftest import Build

pytestmark = pytest.mark.gpu

KERNEL = """
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def shifted_kernel(x, out, count, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < count) * 2 + shift, mask=at < count)


@triton_op("tcbuild_tests::shifted", mutates_args={})
def shifted(x: torch.Tensor, shift: float) -> torch.Tensor:
    out = torch.empty_like(x)
    count = x.numel()
    wrap_triton(shifted_kernel)[(triton.cdiv(count, 256),)](x, out, count, shift, BLOCK=256)
    return out


class Shift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        return shifted(self.linear(x), 1.5).relu()
"""

SERVE = """
import sys
sys.modules["triton"] = None
import torch
from tcbuild import runtime
model = runtime.load(sys.argv[1], on_miss="raise")
given = torch.load(sys.argv[2])
with torch.no_grad():
    torch.testing.assert_close(model(given["x"]), given["y"], rtol=1e-3, atol=1e-4)
print(model.stats().calls, "triton" in sys.modules and sys.modules["triton"] is not None)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return the module with the kernel: Triton reads its source from the file."""
    path = tmp_path_factory.mktemp("kernels") / "tcbuild_test_kernels.py"
    path.write_text(KERNEL, encoding="utf-8")
    return import_file(path)


def test_serving_without_triton(kernels: ModuleType, build: Build, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = kernels.Shift().eval().cuda()
    x = models.drawn(8, 64)
    path = build(module, x, name="shift")
    given = tmp_path / "given.pt"
    torch.save({"x": x, "y": module(x)}, given)
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(path), str(given)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "False"]
