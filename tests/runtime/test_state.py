"""The buffers that a model writes to: passed, shared with the fallback module, kept and put back."""

import threading
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from tcbuild.formats import Bucket
from tcbuild.formats.signature import TensorLeaf
from tcbuild.runtime.state import State

from .stubs import Stub, program, variant

OUTPUT = TensorLeaf(dtype="float32", shape=(2,), index=0)
COUNTS = variant(Bucket(dims={}), OUTPUT, state=("inner.count",))
READS = variant(Bucket(dims={}), OUTPUT, constants={"c0": "inner.count"})
WRITES = variant(Bucket(dims={}), OUTPUT, written=(0,))
PURE = variant(Bucket(dims={}), OUTPUT, constants={"c0": "other"})


def counted(tensors: list[Tensor]) -> Sequence[Tensor]:
    """Add one to the state, and the input to that."""
    x, count = tensors
    count += 1
    return [x + count]


@pytest.fixture
def weights() -> dict[str, Tensor]:
    """Return the weights of a model."""
    return {"inner.count": torch.zeros(2), "other": torch.ones(2)}


class Inner(nn.Module):
    """Counts its calls, in place or in a new tensor."""

    count: Tensor

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [2]."""
        if self.in_place:
            self.count += 1
        else:
            self.count = self.count + 1
        return x + self.count


class Outer(nn.Module):
    """Has one that counts."""

    def __init__(self, *, in_place: bool = True) -> None:
        super().__init__()
        self.inner = Inner(in_place=in_place)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [2]."""
        made: Tensor = self.inner(x)
        return made


def test_state_is_only_what_a_variant_writes_to(weights: dict[str, Tensor]) -> None:
    assert State([READS, PURE], weights).tensors == {}
    state = State([READS, COUNTS, COUNTS], weights)
    assert list(state.tensors) == ["inner.count"]
    assert state.tensors["inner.count"] is weights["inner.count"]


def test_it_is_passed_behind_the_calls_tensors(weights: dict[str, Tensor]) -> None:
    state = State([COUNTS], weights)
    served = program(COUNTS, counted, state)
    x = torch.tensor([10.0, 20.0])
    assert [served.run([x])[0].tolist() for _ in range(2)] == [[11, 21], [12, 22]]
    assert state.tensors["inner.count"].tolist() == [2, 2]


def test_a_variant_without_state_runs_as_it_is(weights: dict[str, Tensor]) -> None:
    stub = Stub(lambda tensors: tensors)
    assert State([COUNTS], weights).around(PURE, stub.run) is stub.run
    assert State([PURE], weights).around(READS, stub.run) is stub.run


@pytest.mark.parametrize("record", [COUNTS, READS, WRITES], ids=["state", "reads", "inputs"])
def test_calls_that_touch_state_run_one_behind_the_other(
    record: object, weights: dict[str, Tensor]
) -> None:
    state = State([COUNTS], weights)
    running, most = 0, 0

    def run(tensors: list[Tensor]) -> list[Tensor]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        event.wait(0.01)
        running -= 1
        return tensors[:1]

    event = threading.Event()
    served = state.around(record, run)  # type: ignore[arg-type]
    threads = [threading.Thread(target=lambda: served([torch.zeros(2)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_torch_is_told_of_what_was_written_to(weights: dict[str, Tensor]) -> None:
    state = State([COUNTS, WRITES], weights)
    x = torch.ones(2)
    before = x._version, state.tensors["inner.count"]._version
    state.around(WRITES, lambda tensors: tensors)([x])
    state.around(COUNTS, lambda tensors: tensors)([x])
    assert x._version == before[0] + 1
    assert state.tensors["inner.count"]._version == before[1] + 1
    with torch.inference_mode():  # these have no version
        state.around(WRITES, lambda tensors: tensors)([torch.ones(2)])
    weight = torch.ones(2, requires_grad=True)
    made = (weight * x).sum()
    state.around(WRITES, lambda tensors: tensors)([x])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "another tensor"])
def test_a_module_shares_it(in_place: bool, weights: dict[str, Tensor]) -> None:
    state = State([COUNTS], weights)
    served = program(COUNTS, counted, state)
    module = Outer(in_place=in_place)
    state.attach(module)
    assert module.inner.count is state.tensors["inner.count"]
    x = torch.zeros(2)
    assert served.run([x])[0].tolist() == [1, 1]
    with torch.no_grad():
        assert module(x).tolist() == [2, 2]
    state.collect(module)
    assert module.inner.count is state.tensors["inner.count"]
    assert served.run([x])[0].tolist() == [3, 3]


def test_a_module_that_has_no_such_buffer_is_left_alone(weights: dict[str, Tensor]) -> None:
    state = State([COUNTS], weights)
    module = Outer()
    del module.inner.count
    state.attach(module)
    state.collect(module)
    state.attach(len)
    assert not module.inner._buffers


def test_a_preserved_run_leaves_nothing_behind(weights: dict[str, Tensor]) -> None:
    state = State([COUNTS], weights)
    served = program(COUNTS, counted, state)
    served.run([torch.zeros(2)])
    tensor = state.tensors["inner.count"]
    state.preserved(lambda: served.run([torch.zeros(2)]))
    assert state.tensors["inner.count"] is tensor
    assert tensor.tolist() == [1, 1]
