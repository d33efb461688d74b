"""The weights of all variants: each once, aligned, as safetensors reads them."""

from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn

from tcbuild.aot.partition import Partitioned
from tcbuild.aot.weight_table import WeightTable
from tcbuild.formats.safetensors_header import read_header
from tcbuild.formats.signature import ValueLeaf
from tcbuild.formats.weights import check, check_stored


def part(**weights: Tensor) -> Partitioned:
    """Return a graph's part with these weights, in slots by their order."""
    nothing: dict[str, Any] = {}
    return Partitioned(
        graph=torch.fx.GraphModule({}, torch.fx.Graph()),
        constants={f"c{i}": name for i, name in enumerate(weights)},
        state=(),
        written=(),
        weights=weights,
        roles=dict.fromkeys(weights, "parameter"),
        operators=nothing,
        outputs=ValueLeaf.of(None),
        names=nothing,
    )


def stored(table: WeightTable) -> dict[str, Tensor]:
    """Return what the section holds, having held it against the record."""
    record = table.record("weights")
    assert record is not None
    data = b"".join(map(bytes, table.section()))
    entries = read_header(memoryview(data), "here")
    check(record, "here")
    check_stored(record, entries, "here")
    for name, entry in entries.items():
        step = 64 if load(data)[name].nbytes % 64 == 0 else load(data)[name].itemsize
        assert entry.start % step == 0, name
    return load(data)


def test_nothing() -> None:
    table = WeightTable()
    assert table.record("weights") is None
    assert table.bytes() == 0


def test_every_kind_of_tensor_is_aligned_and_whole() -> None:
    weights = {
        "wide": torch.randn(16, 16),
        "odd": torch.randn(3),
        "byte": torch.arange(5, dtype=torch.uint8),
        "double": torch.randn(3, dtype=torch.float64),
        "half": torch.randn(7).to(torch.bfloat16),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(0.5),
        "empty": torch.empty(0, 4),
        "nothing": torch.empty(4, 0),
    }
    table = WeightTable()
    assert table.add(part(**weights)) == {f"c{i}": name for i, name in enumerate(weights)}
    made = stored(table)
    assert made.keys() == weights.keys()
    assert all(torch.equal(made[name], tensor) for name, tensor in weights.items())
    assert table.bytes() == sum(tensor.nbytes for tensor in weights.values())


def test_a_dense_order_of_axes_is_kept() -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    table = WeightTable()
    table.add(part(image=image, transposed=torch.randn(4, 6).t()))
    record = table.record("weights")
    assert record is not None
    assert record.tensors["image"].layout == "0,2,3,1"
    assert record.tensors["image"].shape == (2, 3, 4, 5)
    assert record.tensors["transposed"].layout == "1,0"
    assert torch.equal(stored(table)["image"], image.permute(0, 2, 3, 1))


def test_tied_weights_are_stored_once() -> None:
    weight = torch.randn(8)
    table = WeightTable()
    table.add(part(b=weight, a=weight.detach(), other=weight.clone(), view=weight.view(2, 4)))
    record = table.record("weights")
    assert record is not None
    assert record.aliases == {"b": "a"}
    assert stored(table).keys() == {"a", "other", "view"}
    assert table.bytes() == 3 * weight.nbytes


def test_a_parameter_has_all_its_names() -> None:
    first, one, other = (nn.Linear(4, 4, bias=False) for _ in range(3))
    module = nn.ModuleDict({"a": first, "b": one, "c": other})
    first.weight = one.weight
    table = WeightTable()
    table.add(part(**{"b.weight": one.weight.detach()}))
    table.tie(module)
    record = table.record("weights")
    assert record is not None
    assert record.aliases == {"b.weight": "a.weight"}
    assert record.tensors.keys() == {"a.weight", "b.weight"}  # no variant reads the third
    assert stored(table).keys() == {"a.weight"}


def test_two_variants_share_what_is_equal() -> None:
    weight = torch.randn(8)
    table = WeightTable()
    assert table.add(part(w=weight)) == {"c0": "w"}
    assert table.add(part(w=weight.clone())) == {"c0": "w"}
    assert stored(table).keys() == {"w"}


@pytest.mark.parametrize(
    "other", [torch.zeros(8) + 1, torch.zeros(4), torch.zeros(8, dtype=torch.float64)]
)
def test_another_tensor_of_the_same_name_gets_a_name_of_its_own(other: Tensor) -> None:
    table = WeightTable()
    table.add(part(w=torch.zeros(8)))
    assert table.add(part(**{"w": other, "w#2": torch.ones(2)})) == {"c0": "w#2", "c1": "w#2#2"}
    made = stored(table)
    assert torch.equal(made["w#2"], other)
    assert made["w#2#2"].tolist() == [1, 1]
