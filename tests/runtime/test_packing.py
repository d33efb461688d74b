"""Packed weights: right, kept once for all variants, replaced with the weights, and freed with the model."""

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tcbuild.aot import build, packing
from tcbuild.aot.dims import Specialize
from tcbuild.aot.spec import Spec
from tcbuild.aot.training import Training
from tcbuild.formats import Artifact
from tcbuild.formats.packing import BLOCKS, CONVOLUTION, LINEAR, Packing
from tcbuild.runtime import attach, load
from tcbuild.runtime.errors import StateError
from tcbuild.runtime.packing import PackedWeights, pack
from tcbuild.runtime.weights import load as load_weights

WIDE = 1024
# Prints how many KiB of the file a process maps fewer than it would if it gave nothing back, and how many
# more a call brings in.
MAPPED = """
import sys, torch
from tcbuild.runtime import load, weights

def mapped():
    lines = iter(open("/proc/self/smaps").read().splitlines())
    found = [next(x for x in lines if x.startswith("Rss:")) for y in lines if y.endswith(sys.argv[1])]
    return sum(int(line.split()[1]) for line in found)

forget = weights.StoredWeights.forget
weights.StoredWeights.forget = lambda self, name: None
whole = load(sys.argv[1])
before = mapped()
weights.StoredWeights.forget = forget
model = load(sys.argv[1])
after = mapped()
with torch.no_grad():
    model(torch.randn(3, 3, 10, 10))
print(2 * before - after, mapped() - after)
"""


class Net(torch.nn.Module):
    """Convolutions with and without groups, products of many rows and of one, and a matrix [in, out]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 32, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(32)
        self.second = torch.nn.Conv2d(32, 64, 3, stride=2, groups=2, bias=False)
        self.up = torch.nn.Linear(64, WIDE)
        self.wide = torch.nn.Linear(WIDE, WIDE)
        self.out = torch.nn.Parameter(torch.randn(WIDE, 512) / WIDE**0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen = self.second(torch.relu(self.norm(self.first(x))))
        rows = torch.nn.functional.gelu(self.up(seen.flatten(2).transpose(1, 2)))
        whole = self.wide(rows) + rows
        return whole @ self.out, seen, seen.flatten(1), self.wide(whole.mean((0, 1))[None])


def inputs(sizes: dict[str, int]) -> torch.Tensor:
    return torch.randn(sizes["batch"], 3, 10, 10, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def spec() -> Spec:
    torch.manual_seed(0)
    module = Net().eval()
    return Spec(
        name="packed",
        model=lambda: module,
        inputs=lambda sizes: ((inputs(dict(sizes)),), {}),
        dims={"batch": Specialize(values=(1, 3))},
        shapes={"x": ("batch",)},
        embed_graph=False,
    )


@pytest.fixture(scope="module")
def artifact(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "packed.tcb"
    build(spec, path)
    return path


def close(model: Callable[..., Any], module: torch.nn.Module, batch: int) -> None:
    """Hold an answer against eager's: values and strides."""
    x = inputs({"batch": batch})
    with torch.no_grad():
        for made, eager in zip(model(x), module(x), strict=True):
            torch.testing.assert_close(made, eager, atol=2e-5, rtol=2e-5)
            assert made.stride() == eager.stride()


def resident() -> int:
    """Return how many MiB of memory this process has that is no file's."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"RssAnon:\s+(\d+) kB", text)[0]) >> 10


def test_what_is_packed(artifact: Path) -> None:
    with Artifact(artifact) as opened:
        assert "packed_weights" in opened.manifest.requires
        for variant in opened.manifest.variants:
            packed = {variant.constants[slot]: one for slot, one in variant.packed.items()}
            kinds = {name.split(".")[0]: one.kind for name, one in packed.items()}
            assert kinds == {
                "first": CONVOLUTION,
                "second": CONVOLUTION,
                "wide": LINEAR,
                "out": LINEAR,
            }
            assert packed["out"].transposed
            assert packed["second.weight"].groups == 2
            # One row reads the matrix once, whatever its order.
            assert [one.rows for one in packed.values() if one.kind == LINEAR] == [0, 0]


def test_answers_are_eagers(artifact: Path, spec: Spec) -> None:
    model = load(artifact)
    for batch in (1, 3):
        close(model, spec.model(), batch)
    assert sum(model.stats().hits.values()) == 2


def test_one_copy_for_all_variants_and_no_plain_one(artifact: Path) -> None:
    with Artifact(artifact) as opened:
        stored = load_weights(opened)
        packed = PackedWeights(stored)
        for variant in opened.manifest.variants:
            for slot in variant.packed:
                packed.constants(variant)[slot]
        names = {v.constants[s] for v in opened.manifest.variants for s in v.packed}
        assert set(packed.packed_only()) == names
        plain = sum(stored[name].nbytes for name in names)
        assert plain <= packed.nbytes() <= 1.1 * plain
        packed.get("wide.weight", None)
        assert set(packed.packed_only()) == names - {"wide.weight"}


def test_pages_of_what_is_packed_only_are_given_back(artifact: Path, spec: Spec) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAPPED, str(artifact)], capture_output=True, text=True, check=True
    )
    given_back, kept = map(int, done.stdout.split())
    out = spec.model().state_dict()["out"].nbytes >> 10
    assert out / 2 < given_back < 1.5 * out
    assert kept < 1024


def test_new_weights_are_packed_anew(artifact: Path, spec: Spec) -> None:
    model = load(artifact)
    torch.manual_seed(1)
    other = Net().eval()
    for module in (other, spec.model(), other):
        model.load_weights(module.state_dict())
        close(model, module, 3)
        close(model, module, 1)


def test_memory_of_packed_weights_is_freed(artifact: Path, spec: Spec) -> None:
    state = spec.model().state_dict()
    model = load(artifact)
    model.load_weights(state)
    model.load_weights(state)
    gc.collect()
    before = resident()
    for _ in range(12):  # 6 MiB each
        model.load_weights(state)
    assert resident() - before < 24
    del model
    gc.collect()
    for _ in range(12):
        close(load(artifact), spec.model(), 3)
        gc.collect()
    assert resident() - before < 24


def test_attached_weights_are_not_packed(artifact: Path, spec: Spec) -> None:
    with pytest.raises(StateError, match="do not follow a module's own") as caught:
        attach(spec.model(), artifact)
    assert "pack_weights = false" in str(caught.value)


@pytest.mark.parametrize(("transposed", "shape"), [(False, (70, 48)), (True, (48, 70))])
def test_blocks(transposed: bool, shape: tuple[int, int]) -> None:
    weight = torch.randn(shape)
    made = pack(weight, Packing(kind=BLOCKS, transposed=transposed, block=32))
    matrix = weight if transposed else weight.t()  # [in, out]
    assert made.shape == (3, 48, 32)
    assert made.is_contiguous()
    torch.testing.assert_close(made.transpose(0, 1).reshape(48, 96)[:, :70], matrix)
    assert not made[2, :, 6:].any()


def test_where_nothing_is_packed(spec: Spec) -> None:
    from tcbuild.aot import targets

    cpu = targets.resolve("cpu")
    assert packing.usual(spec, cpu) == {packing.OPTION: packing.LARGE}
    assert packing.usual(replace(spec, pack_weights=False), cpu) == {}
    assert packing.usual(replace(spec, step=Training()), cpu) == {}
    assert packing.usual(replace(spec, training=(False, True)), cpu) == {}
    gpu = replace(cpu, device="cuda", isa="sm_90")
    assert packing.usual(spec, gpu) == {}
