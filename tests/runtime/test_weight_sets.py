"""A swap of weights: what is taken, what is refused whole, and where the values go."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tcbuild import runtime
from tcbuild.formats import Bucket, Variant
from tcbuild.formats.manifest import Weight, Weights
from tcbuild.formats.signature import TensorLeaf
from tcbuild.runtime.errors import StateError
from tcbuild.runtime.program import Program
from tcbuild.runtime.state import State
from tcbuild.runtime.weight_sets import WeightSets

from .. import models
from .conftest import same
from .stubs import Stub, variant

OUTPUT = TensorLeaf(dtype="float32", shape=(2,), index=0)
RECORD = Weights(
    section="weights",
    tensors={
        "weight": Weight(dtype="float32", shape=(2, 3), layout="1,0"),
        "tied": Weight(dtype="float32", shape=(2, 3), layout="1,0"),
        "count": Weight(dtype="int64", shape=(), role="buffer"),
        "lifted": Weight(dtype="float32", shape=(1,), role="constant"),
    },
    aliases={"tied": "weight"},
)
VARIANT = variant(
    Bucket(dims={}), OUTPUT, constants={"c0": "weight", "c1": "lifted"}, state=("count",)
)


class Served:
    """One loaded model: a program without a library, its weights, and a fallback module."""

    def __init__(self, record: Variant = VARIANT) -> None:
        weight = torch.zeros(3, 2).t()
        self.tensors = {"weight": weight, "tied": weight, "count": torch.tensor(0)}
        self.tensors["lifted"] = torch.full((1,), 7.0)
        self.state = State([record], self.tensors)
        self.bound = Stub(lambda tensors: tensors)
        self.program = Program(record, self.bound, self.state, torch.device("cpu"))
        self.module = Fallback()
        self.sets = WeightSets(RECORD, self.tensors, self.state)

    def replace(self, source: dict[str, Tensor] | Path) -> None:
        """Take new weights into use."""
        self.sets.replace(source, [self.program], self.module, "m")


class Fallback(nn.Module):
    """Has the same weights."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 3))
        self.tied = self.weight
        self.register_buffer("count", torch.tensor(0))


def given(value: float = 1.0, /, **changes: Tensor | None) -> dict[str, Tensor]:
    """Return a state_dict, with changes; None takes a tensor out."""
    weight = torch.full((2, 3), value)
    made: dict[str, Tensor | None] = {"weight": weight, "tied": weight, "count": torch.tensor(5)}
    made |= changes
    return {name: tensor for name, tensor in made.items() if tensor is not None}


def test_a_swap_binds_a_second_set_and_switches_to_it() -> None:
    served = Served()
    served.replace(given())
    assert served.bound.flips == 1
    spare = served.bound.spare
    assert spare["c0"].stride() == (1, 2)  # the layout that was compiled for
    assert torch.equal(spare["c0"], torch.ones(2, 3))
    assert spare["c1"].tolist() == [7]  # is in no state_dict and keeps its value
    assert not served.tensors["weight"].any()  # calls that are running keep the old ones
    assert torch.equal(served.module.weight, torch.ones(2, 3))
    assert int(served.module.count) == 5
    assert int(served.state.tensors["count"]) == 5  # in place: there is one state


def test_two_sets_whatever_the_number_of_swaps() -> None:
    served = Served()
    first = served.tensors["weight"]
    served.replace(given(1.0))
    second = served.bound.spare["c0"]
    for value in (2.0, 3.0, 4.0):
        served.replace(given(value))
    assert served.bound.flips == 4
    assert served.bound.spare["c0"] is second
    assert (float(first[0, 0]), float(second[0, 0])) == (4.0, 3.0)


@pytest.mark.parametrize("left_out", ["weight", "tied"])
def test_a_tied_weight_may_come_under_one_of_its_names(left_out: str) -> None:
    served = Served()
    served.replace(given(3.0, **{left_out: None}))
    assert float(served.bound.spare["c0"][0, 0]) == 3.0


def test_names_that_no_variant_uses_are_ignored() -> None:
    Served().replace(given(more=torch.zeros(9)))


REFUSED: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing": (
        {"weight": None, "tied": None},
        "m: weight: .*found no such tensor, expected float32",
    ),
    "dtype": ({"weight": torch.zeros(2, 3).double()}, "found float64"),
    "shape": ({"weight": torch.zeros(3, 2)}, r"found float32 \[3, 2\], expected float32 \[2, 3\]"),
    "state": ({"count": torch.zeros(2)}, "m: count: "),
    "untied": ({"tied": torch.zeros(2, 3)}, "found other values than 'weight'"),
    "constant": ({"lifted": torch.zeros(2)}, "m: lifted: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_does_not_fit_is_refused_whole(name: str) -> None:
    changes, says = REFUSED[name]
    served = Served()
    with pytest.raises(StateError, match=says):
        served.replace(given(**changes))
    assert served.bound.flips == 0
    assert not served.module.weight.any()
    assert int(served.state.tensors["count"]) == 0


def test_from_a_file_of_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "new.safetensors"
    save_file({name: t.contiguous() for name, t in given(2.0, tied=None).items()}, path)
    served = Served()
    served.replace(path)
    assert float(served.bound.spare["c0"][0, 0]) == 2.0


def test_a_model_without_weights_has_nothing_to_replace() -> None:
    WeightSets(None, {}, State([], {})).replace({"x": torch.zeros(1)}, [], None, "m")


@pytest.mark.parametrize("held", ["reading", "state"])
def test_a_swap_waits_for_what_reads_in_several_steps(held: str) -> None:
    served = Served()
    done = threading.Event()

    def swap() -> None:
        served.replace(given())
        done.set()

    thread = threading.Thread(target=swap)
    with served.sets.reading() if held == "reading" else served.state.lock:
        thread.start()
        assert not done.wait(0.1)
        assert served.bound.flips == 0  # neither the weights nor the state alone
    thread.join()
    assert done.is_set()
    assert served.bound.flips == 1


SOURCES: dict[str, Callable[[nn.Module, Path], object]] = {
    "a state_dict": lambda module, _: module.state_dict(),
    "a file": lambda module, folder: written(module, folder / "w.safetensors"),
}


def written(module: nn.Module, path: Path) -> Path:
    """Write a module's state_dict to a file, tied weights once."""
    kept = {n: t for n, t in module.state_dict().items() if n != "head.weight"}
    save_file({name: tensor.contiguous() for name, tensor in kept.items()}, path)
    return path


@pytest.mark.parametrize("source", SOURCES)
def test_a_swap_of_a_compiled_model(
    net: runtime.Dispatcher, eager: models.Net, tmp_path: Path, source: str
) -> None:
    """Tied weights, a 0-dim buffer, a transposed one and a small one are all replaced."""
    args, _ = models.net_call()
    old = net(*args)
    other = models.net()
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            tensor.add_(0.25)
    net.load_weights(SOURCES[source](other, tmp_path))  # type: ignore[arg-type]
    for seq in (1, 5, 40):  # the last one is answered by the embedded graph
        call, _ = models.net_call(seq=seq)
        assert same(net(*call), other(*call))
    net.load_weights(eager.state_dict())
    assert same(net(*args), old)


def test_a_swap_from_another_artifact(
    net: runtime.Dispatcher, net_artifact: Path, eager: models.Net
) -> None:
    args, _ = models.net_call()
    net.load_weights({name: tensor + 1 for name, tensor in eager.state_dict().items()})
    assert not same(net(*args), eager(*args))
    net.load_weights(net_artifact)
    assert same(net(*args), eager(*args))
