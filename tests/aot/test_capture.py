"""What cannot be captured says where and why; what can is guarded exactly."""

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tcbuild.aot import Spec, sizes
from tcbuild.aot.build import make_module
from tcbuild.aot.capture import Captured, capture
from tcbuild.aot.dims import Dim, Dynamic, Specialize
from tcbuild.aot.errors import CaptureError, ModelError, SpecError
from tcbuild.aot.partition import Partitioned, partition
from tcbuild.aot.plan import Plan
from tcbuild.aot.structure import dense
from tcbuild.formats import TcbuildError
from tcbuild.formats.expression import evaluate, holds
from tcbuild.formats.signature import Branch, DimLeaf, InputLeaf, TensorLeaf, ValueLeaf

Forward = Callable[..., Any]
N = Dynamic(min=2, max=64, tune=8)


class Model(nn.Module):
    """Runs a function, which may use a weight, a buffer and a plain tensor of the model."""

    count: Tensor

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("count", torch.zeros(4))
        self.plain = torch.zeros(4)
        self.tied = self.weight
        self.function = function
        self.eval()

    def forward(self, x: Tensor, y: Any = None) -> Any:
        """Run the function."""
        return self.function(self, x) if y is None else self.function(self, x, y)


def stages(
    function: Forward,
    dims: Mapping[str, Dim] | None = None,
    y: Any = None,
    shapes: Mapping[str, tuple[str | None, ...]] | None = None,
) -> tuple[Captured, tuple[str, ...], Partitioned]:
    """Take a function through the stages before compilation; x is float32 [n, 4]."""
    dims = {"n": N} if dims is None else dims

    def inputs(chosen: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        other = y(chosen) if callable(y) else y
        return (torch.randn(chosen.get("n", 8), 4), *([] if other is None else [other])), {}

    module = Model(function)
    spec = Spec(
        name="m",
        model=lambda: module,
        inputs=inputs,
        dims=dims,
        shapes=shapes or ({"x": ("n",)} if dims else {}),
    )
    job = Plan.of(spec).jobs[-1]
    captured = capture(spec, module, job.bucket, job.id)
    names = sizes.Names.of(captured, job.id)
    relations = sizes.relations(captured.program.graph, job.bucket, names, job.id)
    return captured, relations, partition(captured, names, job.id)


def branch_on_data(model: Model, x: Tensor) -> Tensor:
    """Decide by a value."""
    if x.sum() > 0:
        return x
    return -x


def to_number(model: Model, x: Tensor) -> Tensor:
    """Read a value."""
    return x * x.sum().item()


def size_of_data(model: Model, x: Tensor) -> Tensor:
    """Return as many rows as are positive."""
    return x[x[:, 0] > 0]


def fails(model: Model, x: Tensor) -> Tensor:
    """Fail eagerly."""
    return x @ model.weight.view(2, 2)


def narrows(model: Model, x: Tensor) -> Tensor:
    """Take another way for few rows."""
    return x * 2 if x.shape[0] < 10 else x * 3


def fixes(model: Model, x: Tensor) -> Tensor:
    """Take 8 rows and no other number."""
    return x + torch.ones(8, 4)


def unsupported(model: Model, x: Tensor) -> Any:
    """Return an object."""
    return {"x": x, "device": [x.device]}


class Local:
    """No container."""

    def __repr__(self) -> str:
        return "local"  # the same in every process, as a test's name must be


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (branch_on_data, CaptureError, ["test_capture.py:", "`if x.sum() > 0:`", "torch.where"]),
        (size_of_data, CaptureError, ["depends on data"]),
        (fails, ModelError, ["test_capture.py:", "in fails", "cannot be multiplied"]),
        (narrows, CaptureError, ["n < 10", "% of the declared sizes fail", "n in 2..64"]),
        (fixes, CaptureError, ["needs n == 8", "98% of the", "policy = 'specialize' for n"]),
        (unsupported, CaptureError, ["output['device'][0]", "found a device"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_captured(
    function: Forward, error: type[TcbuildError], says: list[str]
) -> None:
    with pytest.raises(error) as caught:
        stages(function)
    for text in says:
        assert text in str(caught.value)


def failed_trace() -> AbstractContextManager[object]:
    """Leave behind what torch keeps of a trace that stopped in the middle."""
    with pytest.raises(CaptureError):
        stages(branch_on_data)
    return nullcontext()


def constants_lifted() -> AbstractContextManager[object]:
    """Trace a model with a constant of its own before."""
    stages(lambda model, x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]))
    return nullcontext()


@contextmanager
def collected_elsewhere() -> Iterator[None]:
    """Let another thread collect garbage and make tensors all the while."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.0005):
            gc.collect(1)
            torch.tensor([1.0]).add_(torch.zeros(1))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("function", [size_of_data, fixes, branch_on_data])
@pytest.mark.parametrize(
    "state",
    [
        failed_trace,
        constants_lifted,
        collected_elsewhere,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("cpu"),
    ],
    ids=["failed", "constants", "threads", "no_grad", "inference", "autocast", "device"],
)
def test_a_refusal_says_the_same_whatever_ran_before(
    function: Forward, state: Callable[[], AbstractContextManager[object]]
) -> None:
    def refusal() -> str:
        with pytest.raises(CaptureError) as caught:
            stages(function)
        return str(caught.value)

    expected = refusal()
    with state():
        assert refusal() == expected
    assert refusal() == expected


@pytest.mark.parametrize(
    "state",
    [torch.inference_mode, lambda: torch.autocast("cpu", dtype=torch.bfloat16)],
    ids=["inference", "autocast"],
)
def test_the_callers_own_modes_are_no_part_of_the_graph(
    state: Callable[[], AbstractContextManager[object]],
) -> None:
    def product(model: Model, x: Tensor) -> Tensor:
        return x @ torch.ones(4, 4)

    expected = stages(product)[2]
    with state():
        made = stages(product)[2]
    assert made.outputs == expected.outputs
    assert made.graph.code == expected.graph.code


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (torch.float32, "input y: the model cannot be captured: found a dtype"),
        ({"a": {1.5: 1}}, "found a key of type float, expected str or int keys"),
        ([Local()], "input y[0]: the model cannot be captured: found a Local"),
        (1 + 2j, "found a complex"),
        (torch.Size([3]), "found a Size"),
        (range(3), "found a range"),
    ],
    ids=str,
)
def test_an_input_that_is_no_tensor_and_no_value(y: Any, says: str) -> None:
    with pytest.raises(CaptureError) as caught:
        stages(lambda model, x, y: x, y=lambda _: y)
    assert says in str(caught.value)


def test_a_container_of_a_local_class() -> None:
    @dataclass
    class Here:
        y: int

    with pytest.raises(CaptureError, match="a class at the top level of a module"):
        stages(lambda model, x, y: x, y=Here(1))


def write_to_parameter(model: Model, x: Tensor) -> Tensor:
    """Change a parameter."""
    model.weight.add_(1)
    return x


def write_to_plain(model: Model, x: Tensor) -> Tensor:
    """Change a tensor that is no buffer."""
    model.plain.add_(1)
    return x + model.plain


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (write_to_parameter, "a write to the parameter '"),
        (write_to_plain, "a write to the plain tensor attribute 'plain'"),
    ],
)
def test_a_write_that_nobody_could_find(function: Forward, says: str) -> None:
    with pytest.raises(CaptureError) as caught:
        stages(function, {})
    assert says in str(caught.value)
    assert "test_capture.py" in str(caught.value)


def test_a_write_to_a_buffer_is_state() -> None:
    def write(model: Model, x: Tensor) -> Tensor:
        model.count.add_(1)
        return x + model.count

    made = stages(write)[2]
    assert (made.state, made.written) == (("count",), ())


def test_a_model_in_training_mode() -> None:
    spec = Spec(name="m", model=lambda: Model(fails).train(), inputs=lambda _: ((), {}))
    with pytest.raises(ModelError, match=r"call \.eval\(\) on it"):
        make_module(spec)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: 3, "found a int, expected a torch.nn.Module"),
        (lambda: 1 / 0, "found ZeroDivisionError: division by zero"),
    ],
)
def test_no_model(model: Callable[[], Any], says: str) -> None:
    with pytest.raises(ModelError) as caught:
        make_module(Spec(name="m", model=model, inputs=lambda _: ((), {})))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"x": ("n",), "z": ("n",)}, "shapes.z: the spec is not valid: found no such tensor input"),
        ({"x": ("n", None, None)}, "found 3 axes, expected at most 2"),
    ],
)
def test_shapes_of_no_input(shapes: Any, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        stages(lambda model, x: x, shapes=shapes)
    assert says in str(caught.value)


def test_dims_that_must_be_equal() -> None:
    def rows(chosen: Mapping[str, int]) -> Tensor:
        return torch.randn(chosen["m"], 4)

    with pytest.raises(ModelError) as caught:
        stages(
            lambda model, x, y: x + y,
            {"n": N, "m": Dynamic(min=2, max=64, tune=9)},
            rows,
            {"x": ("n",), "y": ("m",)},
        )
    assert "must match" in str(caught.value)
    assert "the call has n=8, m=9" in str(caught.value)


def test_one_dim_of_two_inputs() -> None:
    _, relations, _ = stages(
        lambda model, x, y: x + y,
        {"n": N},
        lambda chosen: torch.randn(chosen["n"], 4),
        {"x": ("n",), "y": ("n",)},
    )
    assert relations == ()


@pytest.mark.parametrize(
    ("function", "accepted"),
    [
        (lambda model, x: x.view(x.shape[0] // 4, 4, -1), {n for n in range(8, 65, 4)}),
        (lambda model, x: x.unflatten(0, (2, -1)), {n for n in range(2, 65, 2)}),
        (lambda model, x: x[:-1], set(range(2, 65))),
        (lambda model, x: x * 2, set(range(2, 65))),
    ],
    ids=["view", "unflatten", "slice", "any"],
)
def test_relations_hold_where_the_model_runs(function: Forward, accepted: set[int]) -> None:
    _, relations, _ = stages(function)
    held = {n for n in range(2, 65) if all(holds(text, {"n": n}) for text in relations)}
    assert held <= accepted
    assert len(held) >= len(accepted) - 2  # a size where the graph would be another one is left out


def test_a_specialized_dim_needs_no_relation() -> None:
    captured, relations, _ = stages(fixes, {"n": Specialize(values=(8,))})
    assert relations == ()
    assert captured.signature.symbols[0].name == "n"


def test_outputs_each_once_sizes_as_expressions_and_inputs_as_they_are() -> None:
    def function(model: Model, x: Tensor) -> Any:
        y = x * model.weight
        return {"y": y, "again": (y, x), "size": 2 * x.shape[0] + 1, "none": None, "text": "a"}

    _, _, made = stages(function)
    assert isinstance(made.outputs, Branch)
    y, again, size, none, text = made.outputs.children
    assert again.children == (y, InputLeaf(index=0))  # type: ignore[union-attr]
    assert y == TensorLeaf(dtype="float32", shape=("n", 4), index=0)
    assert isinstance(size, DimLeaf)
    assert evaluate(size.size, {"n": 5}) == 11
    assert (none, text) == (ValueLeaf.of(None), ValueLeaf.of("a"))
    assert len(made.constants) == 1  # what is not used is left out
    assert len(next(iter(made.graph.graph.find_nodes(op="output"))).args[0]) == 1


def test_tied_weights_are_one() -> None:
    _, _, made = stages(lambda model, x: x * model.weight + model.tied)
    assert len(made.constants) == 1


def test_constants_made_while_tracing_are_weights() -> None:
    _, _, made = stages(lambda model, x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]))
    (name,) = made.constants.values()
    assert made.weights[name].tolist() == [1, 2, 3, 4]
    assert made.roles[name] == "constant"


@pytest.mark.parametrize(
    "lazy",
    [torch.tensor([1 + 2j, 3 - 4j]).conj(), torch._neg_view(torch.tensor([1.0, 2.0]))],
    ids=["conj", "neg"],
)
def test_a_weight_that_is_a_lazy_view_is_stored_as_it_looks(lazy: Tensor) -> None:
    stored = dense(lazy)
    assert not stored.is_conj()
    assert not stored.is_neg()
    assert torch.equal(stored, lazy)


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (torch.zeros(8, 4, dtype=torch.complex128), "torch.complex128 with layout torch.strided"),
        (torch.zeros(8, 4).to_sparse(), "torch.float32 with layout torch.sparse_coo"),
    ],
)
def test_a_weight_that_cannot_be_stored(weight: Tensor, says: str) -> None:
    with pytest.raises(CaptureError) as caught:
        stages(lambda model, x: x + weight, {})
    assert says in str(caught.value)
