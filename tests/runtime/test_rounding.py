"""Products of float32 in bfloat16: only where asked, half the memory, and as right as eager that does so."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tcbuild.aot import build, packing, rounding, targets
from tcbuild.aot.dims import Dynamic, Specialize
from tcbuild.aot.errors import SpecError
from tcbuild.aot.numerics import judge
from tcbuild.aot.spec import Spec
from tcbuild.aot.tuning.candidates import candidates
from tcbuild.formats import Artifact
from tcbuild.formats.packing import BFLOAT16, CONVOLUTION, LINEAR
from tcbuild.formats.precision import BF16, IEEE
from tcbuild.runtime import load
from tcbuild.runtime.aoti import Library
from tcbuild.runtime.packing import PackedWeights
from tcbuild.runtime.rounded import RoundedProducts
from tcbuild.runtime.weights import load as load_weights

WIDE, HEADS = 512, 8
needs_bfloat16 = pytest.mark.skipif(
    not rounding.available(), reason="this CPU multiplies no bfloat16"
)


class Net(torch.nn.Module):
    """A convolution, attention with a mask of numbers, a product of activations, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, WIDE, 4, stride=4)
        self.qkv = torch.nn.Linear(WIDE, 3 * WIDE, bias=False)
        self.up = torch.nn.Linear(WIDE, 2 * WIDE)
        self.down = torch.nn.Linear(2 * WIDE, WIDE)

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Take x [batch, 3, 16, 16] and near [16, 16]; return [batch, 16, WIDE], [batch, 16, 16]."""
        rows = self.patches(x).flatten(2).transpose(1, 2)
        split = self.qkv(rows).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = split.unbind(0)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, near)
        rows = rows + seen.transpose(1, 2).flatten(2)
        rows = rows + self.down(torch.nn.functional.gelu(self.up(rows)))
        return rows, torch.bmm(rows, rows.transpose(1, 2)) / WIDE


def inputs(sizes: Mapping[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(1)
    size = sizes.get("batch", 2)
    return torch.randn(size, 3, 16, 16, generator=noise), torch.randn(16, 16, generator=noise)


@pytest.fixture(scope="module")
def spec() -> Spec:
    torch.manual_seed(0)
    module = Net().eval()
    return Spec(
        name="rounded",
        model=lambda: module,
        inputs=lambda sizes: (inputs(sizes), {}),
        dims={"batch": Specialize(values=(2,))},
        shapes={"x": ("batch",)},
        fp32_precision=BF16,
        embed_graph=False,
    )


@pytest.fixture(scope="module")
def artifact(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rounded") / "rounded.tcb"
    build(spec, path)
    return path


def hold(model: Callable[..., Any], module: torch.nn.Module, batch: int) -> None:
    """Hold an answer against eager: rounded where eager with rounded products is, and no more."""
    args = inputs({"batch": batch})
    with torch.no_grad():
        made, plain = model(*args), module(*args)
        with RoundedProducts():  # type: ignore[no-untyped-call]
            rounded = module(*args)
        exact = module.double()(*(arg.double() for arg in args))
        module.float()
    for answer, eager, other, right in zip(made, plain, rounded, exact, strict=True):
        assert judge(answer, eager, right, rounded=other).problem == ""
        assert "against float64" in judge(answer, eager, right).problem  # float32 would be nearer


@needs_bfloat16
def test_what_is_rounded(artifact: Path) -> None:
    with Artifact(artifact) as opened:
        (variant,) = opened.manifest.variants
        assert variant.fp32_precision == BF16
        assert variant.options["fp32_precision"] == BF16
        packed = {variant.constants[slot]: one for slot, one in variant.packed.items()}
        assert {name: one.kind for name, one in packed.items()} == {
            "patches.weight": CONVOLUTION,
            "qkv.weight": LINEAR,
            "up.weight": LINEAR,
            "down.weight": LINEAR,
        }
        assert {one.dtype for one in packed.values()} == {BFLOAT16}
        weights = load_weights(opened, torch.device("cpu"))
        kept = PackedWeights(weights)
        for slot in variant.packed:
            kept.constants(variant)[slot]
        half = sum(weights[name].nbytes for name in packed) // 2
        assert half <= kept.nbytes() < 1.05 * half  # some machines' orders fill 3 channels up to 4
        assert all(check.allowed < 0.1 for check in opened.manifest.checks)


@needs_bfloat16
def test_no_plain_copy_is_asked_for(artifact: Path, tmp_path: Path) -> None:
    with Artifact(artifact) as opened:
        (variant,) = opened.manifest.variants
        library = tmp_path / "model.so"
        library.write_bytes(opened.read(variant.files["model.so"]))
        asked = Library(library).constants() - variant.packed.keys()
        plain = {variant.constants[slot] for slot in asked}
        assert plain == {"patches.bias", "up.bias", "down.bias"}


@needs_bfloat16
def test_answers_and_other_weights(artifact: Path, spec: Spec) -> None:
    model = load(artifact, on_miss="raise")
    hold(model, spec.model(), 2)
    torch.manual_seed(5)
    other = Net().eval()
    model.load_weights(other.state_dict())
    hold(model, other, 2)


@needs_bfloat16
def test_dynamic_sizes(spec: Spec, tmp_path: Path) -> None:
    batch = Dynamic(min=2, max=8)
    report = build(replace(spec, dims={"batch": batch}), tmp_path / "dynamic.tcb")
    assert report is not None
    model = load(tmp_path / "dynamic.tcb", on_miss="raise")
    for size in (2, 5, 8):
        hold(model, spec.model(), size)


def test_where_nothing_is_rounded(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = targets.resolve("cpu")
    large = {packing.OPTION: packing.LARGE}
    monkeypatch.setattr(rounding, "available", lambda: True)
    assert packing.usual(spec, cpu) == {**large, rounding.OPTION: BF16}
    assert packing.usual(replace(spec, fp32_precision=IEEE), cpu) == large
    monkeypatch.setattr(rounding, "available", lambda: False)
    assert packing.usual(spec, cpu) == large


def test_a_search_tries_float32_too(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "available", lambda: True)
    graph = torch.export.export(Net().eval(), inputs({})).graph_module
    offered = candidates(spec, targets.resolve("cpu"), graph)
    asked = {one.name: rounding.asked(one.options) for one in offered}
    assert asked["default"]
    assert not asked["products in float32"]
    plain = candidates(replace(spec, fp32_precision=IEEE), targets.resolve("cpu"), graph)
    assert not any(rounding.asked(one.options) for one in plain)


@pytest.mark.parametrize(
    ("changes", "found", "expected"),
    [
        ({"fp32_precision": "tf32"}, "tf32", "ieee or bf16"),
        ({"targets": ("cuda",)}, "bf16", "ieee without cpu among targets"),
        ({"pack_weights": False}, "bf16, and pack_weights = false", "packed weights"),
        ({"training": (False, True)}, "bf16, and training", "ieee with training"),
    ],
)
def test_specs_that_it_changes_nothing_of(
    spec: Spec, changes: dict[str, Any], found: str, expected: str
) -> None:
    with pytest.raises(SpecError) as caught:
        replace(spec, **changes)
    assert caught.value.found == found
    assert str(caught.value.expected).startswith(expected)
    assert "build.fp32_precision" in str(caught.value)


def test_the_rule() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    eager, rounded = exact.float(), exact.float() + torch.tensor([0.0, 0.01])
    step = 2 * torch.finfo(torch.bfloat16).eps
    near, far = (eager + torch.tensor([0.0, 0.02 + part * step]) for part in (0.9, 1.1))
    assert judge(near, eager, exact, rounded=rounded).problem == ""
    assert "eager has 0.01" in judge(far, eager, exact, rounded=rounded).problem
    assert "against float64" in judge(near, eager, exact).problem


@pytest.mark.parametrize(
    ("rows", "rounded", "packed"), [(64, True, 1), (64, False, 0), (8, True, 0), (1, True, 0)]
)
def test_small_matrices_by_the_work_in_them(rows: int, rounded: bool, packed: int) -> None:
    matrix = torch.rand(672, 256)
    module = make_fx(torch.mm, tracing_mode="fake")(torch.rand(rows, 672), matrix)
    module.c = torch.nn.Buffer(matrix)
    _, given = module.graph.find_nodes(op="placeholder")
    with module.graph.inserting_before(given):
        constant = module.graph.get_attr("c")
    constant.meta.update(given.meta)
    given.replace_all_uses_with(constant)
    module.graph.erase_node(given)
    packer = packing.Packer(packing.LARGE, rounded=rounded)
    packer(module.graph)
    module.graph.lint()
    assert len(packer.packed) == packed
