"""Calls that are padded up to a bucket: what the program gets, what the caller gets, and who is asked."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tcbuild.formats import Bucket, Guard, Signature
from tcbuild.formats.signature import Branch, Parameter, Sample, Symbol, TensorLeaf
from tcbuild.runtime.binding import Binder
from tcbuild.runtime.choice import Choice, choose
from tcbuild.runtime.observe import Observed
from tcbuild.runtime.padding import Padded, refusals
from tcbuild.runtime.program import Program
from tcbuild.runtime.setting import Setting

from .stubs import program, variant


def leaf(index: int, *shape: int | str, dtype: str = "float32", **more: Any) -> TensorLeaf:
    """Return a leaf for a tensor."""
    return TensorLeaf(dtype=dtype, shape=shape, index=index, **more)


X = leaf(0, "batch", "seq", 2, sample=Sample(mean=5.0, std=0.1))
MASK = leaf(1, "batch", "seq", dtype="int64", sample=Sample(low=1, high=1))
TABLE = leaf(2, 3)
SIGNATURE = Signature(
    parameters=tuple(
        Parameter(name=name, form="positional_or_keyword", node=node)
        for name, node in (("x", X), ("mask", MASK), ("table", TABLE))
    ),
    symbols=(Symbol(name="batch", input=0, axis=0), Symbol(name="seq", input=0, axis=1)),
)
OUTPUTS = Branch(
    type="tuple",
    form="tuple",
    children=(leaf(0, "seq", "batch"), leaf(1, "batch"), leaf(2, 3)),
)


def sized(path: str, axis: int, size: object) -> Guard:
    """Return a guard on a size."""
    return Guard(subject=path, fact="size", axis=axis, expected=size)


def bucket(batch: int, seq: int, seen: list[Sequence[Tensor]] | None = None) -> Program:
    """Return a program for a bucket; it notes the tensors that it gets in `seen`.

    It returns the sums over the last axis, transposed; the sizes of each row; and the table.
    """

    def run(tensors: list[Tensor]) -> list[Tensor]:
        if seen is not None:
            seen.append(tensors)
        x, mask, table = tensors
        assert (tuple(x.shape), tuple(mask.shape)) == ((batch, seq, 2), (batch, seq))
        return [(x.sum(-1) * mask).t(), mask.sum(1), table]

    record = variant(
        Bucket(dims={"batch": batch, "seq": seq}),
        OUTPUTS,
        guards=(
            *(sized("x", axis, size) for axis, size in enumerate((batch, seq, 2))),
            *(sized("mask", axis, size) for axis, size in enumerate((batch, seq))),
            Guard(subject="x", fact="dtype", expected="float32"),
        ),
        pad={"batch": 1, "seq": 2},
        fill={"mask": 0},
    )
    return program(record, run)


def call(batch: int, seq: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tensors of a call."""
    random = torch.Generator().manual_seed(batch + 100 * seq)
    x = torch.randn(batch, seq, 2, generator=random)
    return x, torch.ones(batch, seq, dtype=torch.int64), torch.arange(3.0)


def expected(x: Tensor, mask: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """Return what the model answers."""
    return (x.sum(-1) * mask).t(), mask.sum(1), table


@pytest.mark.parametrize(("batch", "seq"), [(4, 8), (4, 5), (3, 8), (1, 2)])
def test_the_answer_is_the_one_for_the_calls_own_size(batch: int, seq: int) -> None:
    tensors = call(batch, seq)
    grown = Padded(bucket(4, 8), SIGNATURE, {"batch": batch, "seq": seq})
    made = grown.result(grown.run(list(tensors)), tensors, {"batch": batch, "seq": seq})
    assert type(made) is tuple
    for one, other in zip(made, expected(*tensors), strict=True):
        assert torch.equal(one, other)
    if (batch, seq) != (4, 8):
        assert made[0].is_contiguous()  # and no view of what was padded
    assert made[2] is tensors[2]


def test_what_the_program_gets() -> None:
    seen: list[Sequence[Tensor]] = []
    x, mask, table = call(3, 5)
    Padded(bucket(4, 8, seen), SIGNATURE, {"batch": 3, "seq": 5}).run([x, mask, table])
    ((big, longer, same),) = seen
    assert same is table  # without a padded axis
    assert torch.equal(big[:3, :5], x)
    assert torch.equal(longer[:3, :5], mask)
    assert not big[3:].any()
    assert not big[:, 5:].any()
    assert (longer.dtype, int(longer.sum())) == (torch.int64, 15)
    assert torch.equal(x, call(3, 5)[0])  # the caller's tensors are left alone


def test_noise_goes_where_nothing_is_said() -> None:
    seen: list[Sequence[Tensor]] = []
    noise = torch.Generator().manual_seed(0)
    grown = Padded(bucket(4, 8, seen), SIGNATURE, {"batch": 3, "seq": 5}, noise)
    made = grown.run(list(call(3, 5)))
    ((big, longer, _),) = seen
    padding = torch.cat([big[3:].flatten(), big[:3, 5:].flatten()])
    assert abs(float(padding.mean()) - 5) < 0.1  # like the values that the input was recorded with
    assert float(padding.std()) > 0.01
    assert int(longer.sum()) == 15  # a fill that the spec asks for stays
    assert torch.equal(made[0], expected(*call(3, 5))[0])


@pytest.mark.parametrize("noise", [None, torch.Generator()], ids=["fill", "noise"])
@pytest.mark.parametrize("layout", ["contiguous", "0,2,1", "2,1,0"])
def test_padding_keeps_the_layout_that_was_compiled_for(layout: str, noise: Any) -> None:
    from tcbuild.runtime.samples import in_layout

    node = leaf(0, "batch", 3, 5, layout=layout)
    signature = Signature(
        parameters=(Parameter(name="x", form="positional_or_keyword", node=node),),
        symbols=(Symbol(name="batch", input=0, axis=0),),
    )
    record = variant(Bucket(dims={"batch": 4}), leaf(0, "batch", 3, 5), pad={"batch": 1})
    grown = Padded(program(record, lambda tensors: tensors), signature, {"batch": 2}, noise)
    (made,) = grown.pad((in_layout(torch.randn(2, 3, 5), layout),))
    assert made.stride() == in_layout(torch.empty(4, 3, 5), layout).stride()


def test_the_share_of_padding_is_counted() -> None:
    served = bucket(4, 8)
    Padded(served, SIGNATURE, {"batch": 2, "seq": 4}).run(list(call(2, 4)))
    assert served.padding.read() == (1, 0.75)
    Padded(served, SIGNATURE, {"batch": 4, "seq": 6}).run(list(call(4, 6)))
    assert served.padding.read() == (2, 0.5)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (call(4, 8), []),
        (call(1, 2), []),
        (call(5, 8), ["dims.batch: expected 1..4, found 5"]),
        (call(4, 1), ["dims.seq: expected 2..8, found 1"]),
        (
            (call(3, 5)[0], call(3, 4)[1], torch.zeros(3)),
            ["mask.size(1): expected seq = 5, found 4"],
        ),
        ((call(3, 5)[0].double(), *call(3, 5)[1:]), ["x.dtype: expected float32, found float64"]),
    ],
    ids=["whole", "smallest", "too many", "too short", "unequal", "another guard"],
)
def test_why_a_call_is_not_padded(tensors: tuple[Tensor, ...], says: list[str]) -> None:
    leaves = dict(zip(("x", "mask", "table"), tensors, strict=True))
    dims = {"batch": tensors[0].size(0), "seq": tensors[0].size(1)}
    refused = refusals(bucket(4, 8), SIGNATURE, Observed(leaves, dims))
    assert [str(refusal) for refusal in refused] == says


def chosen(programs: list[Program], batch: int, seq: int) -> Choice | None:
    """Return who answers a call."""
    return choose([Binder(SIGNATURE)], programs, call(batch, seq), {}, Setting())[0]


def test_the_smallest_bucket_until_the_cheapest_is_known() -> None:
    programs = [bucket(4, 8), bucket(2, 16), bucket(4, 16), bucket(8, 8)]
    choice = chosen(programs, 2, 8)
    assert choice is not None
    assert (choice.program.variant.id, choice.dims) == ("batch=4,seq=8", {"batch": 2, "seq": 8})
    for served, seconds in zip(programs, (3.0, 2.0, 1.0, 4.0), strict=True):
        served.seconds = seconds
    choice = chosen(programs, 2, 8)
    assert choice is not None
    assert choice.program.variant.id == "batch=4,seq=16"
    assert torch.equal(choice.answer()[0], expected(*call(2, 8))[0])
    exact = chosen(programs, 8, 8)  # what needs no padding is asked first
    assert exact is not None
    assert exact.program is programs[3]
    assert chosen(programs, 9, 8) is None


def test_a_bucket_of_another_mode_is_not_padded_up_to() -> None:
    told = choose([Binder(SIGNATURE)], [bucket(4, 8)], call(2, 8), {}, Setting(training="all"))
    assert told[0] is None
    assert "module.training: expected none, found all" in told[1].reason
