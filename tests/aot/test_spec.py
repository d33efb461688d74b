"""A spec, from a file or from a module: what it says, and every way to get it wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tcbuild.aot import Plan, Spec
from tcbuild.aot.dims import Dynamic, Specialize
from tcbuild.aot.errors import ModelError, SpecError
from tcbuild.formats import Bucket, Range, TcbuildError

MODEL = """
import torch
built = 0
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y
def build():
    return Model().eval()
def inputs(n, m=1):
    return (torch.zeros(n, m),), {"y": torch.zeros(n, m)}
def everything(**sizes):
    return (torch.zeros(sizes["n"], 2),), {"y": torch.zeros(1)}
def nothing():
    return None
def listed():
    return [torch.zeros(1)], {}
number = 3
"""

SPEC = """
[model]
source = "model:build"
inputs = "model:inputs"

[dims.n]
policy = "dynamic"
min = 1
max = 9
tune = 4

[shapes]
x = ["n"]
y = ["n", "_"]
"""


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Spec]:
    """Return a function that reads SPEC with some text replaced, from a folder of its own."""
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")

    def run(old: str = "", new: str = "", model: str = MODEL) -> Spec:
        assert old in SPEC
        (tmp_path / "model.py").write_text(model, encoding="utf-8")
        (tmp_path / "tcbuild.toml").write_text(SPEC.replace(old, new, 1), encoding="utf-8")
        return Spec.load(tmp_path / "tcbuild.toml")

    return run


def test_a_whole_file(read: Callable[..., Spec], tmp_path: Path) -> None:
    spec = read(
        "[shapes]",
        '[build]\ntargets = ["cpu"]\nmode = "default"\n[fallback]\nembed = false\n'
        "[verify]\nenabled = false\ntolerance = 3\n[shapes]",
    )
    assert (spec.name, spec.source) == (tmp_path.name, "model:build")
    assert spec.dims == {"n": Dynamic(min=1, max=9, tune=4)}
    assert spec.shapes == {"x": ("n",), "y": ("n", None)}
    assert (spec.embed_graph, spec.verify, spec.tolerance) == (False, False, 3.0)
    (x,), kwargs = spec.inputs({"n": 5})
    assert (x.shape, kwargs["y"].shape) == ((5, 1), (5, 1))
    assert type(spec.model()).__name__ == "Model"


def test_the_example_function_may_take_all_sizes(read: Callable[..., Spec]) -> None:
    (x,), _ = read('"model:inputs"', '"model:everything"').inputs({"n": 3})
    assert x.shape == (3, 2)


def test_two_specs_with_a_model_py_each(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text(MODEL.replace("Model", name), encoding="utf-8")
        (tmp_path / name / "tcbuild.toml").write_text(SPEC, encoding="utf-8")
    specs = [Spec.load(tmp_path / name / "tcbuild.toml") for name in ("one", "two")]
    assert [type(spec.model()).__name__ for spec in specs] == ["one", "two"]


# What is wrong: the text, what it becomes, what the error says.
WRONG = {
    "no TOML": ("[model]", "[model", "TOML"),
    "a table unknown": ("[shapes]", "[shape]", "did you mean 'shapes'?"),
    "a key unknown": ("source", "sorce", "did you mean 'source'?"),
    "a key like no other": ("source", "zzz", "expected one of source, inputs, name"),
    "a key of a dim unknown": ("tune", "tun", "did you mean 'tune'?"),
    "a key of another policy": ("tune = 4", "values = [1]", "an unknown key"),
    "a policy unknown": ('"dynamic"', '"dynamc"', "did you mean 'dynamic'?"),
    "a policy of no type": ('"dynamic"', "3", "found 3"),
    "a policy that is a list": ('"dynamic"', "[]", "found []"),
    "no policy": ('policy = "dynamic"', "", "found None"),
    "no model": ('source = "model:build"', "", "no source under [model]"),
    "no inputs": ('inputs = "model:inputs"', "", "no inputs under [model]"),
    "a name of another type": ("[model]", "[model]\nname = 3", "found 3, expected a value of type str"),
    "a table of another type": ("[shapes]", "[verify]\nenabled = 1\n[shapes]", "of type bool"),
    "a text for a number": ("min = 1", 'min = "1"', "found '1', expected a value of type int"),
    "a bool for a number": ("min = 1", "min = true", "found True, expected a value of type int"),
    "a fraction for a size": ("max = 9", "max = 9.0", "of type int"),
    "an empty range": ("min = 1", "min = 10", "0 <= min <= max"),
    "a negative size": ("min = 1", "min = -1", "0 <= min <= max"),
    "a tune outside": ("tune = 4", "tune = 10", "within 1..9"),
    "a dim unknown": ('x = ["n"]', 'x = ["m"]', "the dim 'm', expected one of n"),
    "a dim unused": ('x = ["n"]\ny = ["n", "_"]', "", "used by no input"),
    "a dim that is no table": ("[shapes]", "[dims]\nm = 3\n[shapes]", "[dims"),
    "a dim with a name of Python's": ("[dims.n]", "[dims.class]", "a name like batch"),
    "a dim with a name of a function": ("[dims.n]", "[dims.min]", "a name like batch"),
    "a dim with a dash": ("[dims.n]", "[dims.a-b]", "a name like batch"),
    "a shape of another type": ('x = ["n"]', 'x = "n"', "a list with a dim name for each axis"),
    "an axis of another type": ('x = ["n"]', "x = [[]]", "a list with a dim name for each axis"),
    "a mode unknown": ("[shapes]", '[build]\nmode = "fast"\n[shapes]', "expected one of default"),
    "a target unknown": ("[shapes]", '[build]\ntargets = ["gpu"]\n[shapes]', "found gpu, expected cpu"),
    "a target of no type": ("[shapes]", "[build]\ntargets = [1]\n[shapes]", "found 1, expected cpu"),
    "weights somewhere": (
        "[shapes]",
        '[build]\nweights = "elsewhere"\n[shapes]',
        "embedded or external",
    ),
    "no target": ("[shapes]", "[build]\ntargets = []\n[shapes]", "build.targets"),
    "an optional of no type": (
        "[model]",
        "[model]\noptional = [1]",
        "model.optional",
    ),
    "training modes of another type": ("[model]", "[model]\ntraining = true", "of type list"),
    "a training mode unknown": ("[model]", "[model]\ntraining = [1]", "one or both of False, True"),
    "a grad mode unknown": ("[model]", '[model]\ngrad = ["yes"]', "one or both of 'off', 'on'"),
    "a tolerance of no size": ("[shapes]", "[verify]\ntolerance = nan\n[shapes]", "tolerance"),
    "a negative tolerance": ("[shapes]", "[verify]\ntolerance = -1\n[shapes]", "tolerance"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_file(read: Callable[..., Spec], fault: str) -> None:
    old, new, says = WRONG[fault]
    with pytest.raises(SpecError) as caught:
        read(old, new)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("", "no values"),
        ("values = []", "different sizes, 0 or more"),
        ("values = [1, 1]", "different sizes, 0 or more"),
        ("values = [-1]", "different sizes, 0 or more"),
        ("values = [1.5]", "found 1.5, expected sizes"),
        ("values = [true]", "found True, expected sizes"),
        ("values = 8", "of type list"),
        ("values = [8]\nmin = 1", "min: the spec is not valid: found an unknown key"),
    ],
)
def test_a_wrong_list_of_sizes(read: Callable[..., Spec], policy: str, says: str) -> None:
    dim = 'policy = "dynamic"\nmin = 1\nmax = 9\ntune = 4'
    with pytest.raises(SpecError) as caught:
        read(dim, f'policy = "specialize"\n{policy}')
    assert says in str(caught.value)


@pytest.mark.parametrize("text", [None, "\xff".encode("latin-1")])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "tcbuild.toml").write_bytes(text)
    with pytest.raises(SpecError, match=r"expected a file|expected TOML"):
        Spec.load(tmp_path / "tcbuild.toml")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"model:build"', '"model"', "expected module:callable"),
        ('"model:build"', '":build"', "expected module:callable"),
        ('"model:build"', '"model:biuld"', "no such callable"),
        ('"model:build"', '"model:number"', "found a int"),
        ('"model:build"', '"nowhere:build"', "No module named 'nowhere'"),
        ('"model:inputs"', '"model:no"', "model.inputs"),
    ],
)
def test_a_callable_that_is_not_there(
    read: Callable[..., Spec], old: str, new: str, says: str
) -> None:
    with pytest.raises(ModelError) as caught:
        read(old, new)
    assert says in str(caught.value)


def test_a_module_that_does_not_import(read: Callable[..., Spec]) -> None:
    with pytest.raises(ModelError, match=r"importing 'model'.*ZeroDivisionError"):
        read(model="1 / 0")
    read()  # and does once it is repaired


@pytest.mark.parametrize(("name", "found"), [("nothing", "a NoneType"), ("build", "a Model")])
def test_an_example_function_that_returns_something_else(
    read: Callable[..., Spec], name: str, found: str
) -> None:
    with pytest.raises(ModelError, match=f"found {found}, expected .args, kwargs."):
        read('"model:inputs"', f'"model:{name}"').inputs({})


def test_an_example_function_may_return_a_list(read: Callable[..., Spec]) -> None:
    (x,), _ = read('"model:inputs"', '"model:listed"').inputs({})
    assert x.shape == (1,)


def test_an_example_function_that_fails(read: Callable[..., Spec]) -> None:
    with pytest.raises(ModelError, match=r"found TypeError: .*, expected an example call for \{\}"):
        read().inputs({})


class Two(nn.Module):
    """Takes a tensor, and a dict of tensors."""

    def forward(self, x: Tensor, more: dict[str, Any] | None = None) -> Tensor:
        """Add what there is."""
        return x if more is None else x + more["y"] + more["z"][0]


N = Dim("n", min=2, max=9)
X, MORE = torch.arange(12.0).view(4, 3), {"y": torch.ones(4, 3), "z": [torch.ones(4, 1)]}

FORMS: dict[str, tuple[Any, dict[str, tuple[str | None, ...]]]] = {
    "a dict of dicts": ({"x": {0: N}}, {"x": ("n", None)}),
    "a dict of lists": ({"x": [N, None]}, {"x": ("n", None)}),
    "a dict of tuples": ({"x": (N, 3)}, {"x": ("n", None)}),
    "a tuple": (({0: N}, None), {"x": ("n", None)}),
    "a list": ([{0: N}, None], {"x": ("n", None)}),
    "static": ({"x": (N, Dim.STATIC)}, {"x": ("n", None)}),
    "automatic": ({"x": {0: Dim.AUTO}}, {"x": ("x_0", None)}),
    "dynamic": ({"x": (Dim.DYNAMIC, None)}, {"x": ("x_0", None)}),
    "nested": (
        {"x": {0: N}, "more": {"y": {0: N}, "z": [{0: N}]}},
        {"x": ("n", None), "more['y']": ("n", None), "more['z'][0]": ("n", None)},
    ),
    "none": (None, {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_from_module(form: str) -> None:
    declared, shapes = FORMS[form]
    spec = Spec.from_module(Two().eval(), (X,), {"more": MORE}, dynamic_shapes=declared)
    assert spec.shapes == shapes
    for name, dim in spec.dims.items():
        assert dim == (Dynamic(min=2, max=9) if name == "n" else Dynamic())
    args, kwargs = spec.inputs(dict.fromkeys(spec.dims, 6))
    given = {**dict(zip(["x", "more"], args, strict=False)), **kwargs}
    assert given["x"].shape == (6 if spec.dims else 4, 3)
    assert torch.equal(given["x"][:4], X)
    if form == "nested":
        assert given["more"]["z"][0].shape == (6, 1)


def test_from_module_with_buckets() -> None:
    module, shapes = Two().eval(), {"x": {0: N}}
    by_name = Spec.from_module(module, (X,), dynamic_shapes=shapes, buckets={"n": [2, 4]})
    by_axis = Spec.from_module(module, (X,), dynamic_shapes=shapes, buckets={"x": {0: (2, 4)}})
    assert by_name.dims == by_axis.dims == {"n": Specialize(values=(2, 4))}
    assert (by_name.name, by_name.model()) == ("Two", module)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dynamic_shapes": {"z": {0: N}}}, "found 'z', expected one of x"),
        ({"args": ()}, "missing a required argument: 'x'"),
        ({"kwargs": {"z": 1}}, "unexpected keyword argument 'z'"),
        ({"buckets": {"m": [1]}}, "found 'm', expected one of n"),
        ({"buckets": {"x": {1: [3]}}}, "axis 1 of 'x'"),
        ({"buckets": {"x": {7: [3]}}}, "axis 7 of 'x'"),
        ({"buckets": {"n": []}}, "different sizes"),
        ({"mode": "fast"}, "expected one of default"),
    ],
)
def test_from_module_that_does_not_fit(options: dict[str, Any], says: str) -> None:
    options = {"args": (X,), "dynamic_shapes": {"x": {0: N}}, **options}
    with pytest.raises(TcbuildError) as caught:
        Spec.from_module(Two().eval(), **options)
    assert says in str(caught.value)


DIMS = {
    Specialize(values=(1, 8)): (1, 8),
    Dynamic(min=2, max=9): (Range(min=2, max=9),),
    Dynamic(min=0, max=9): (0, 1, Range(min=2, max=9)),
    Dynamic(min=1, max=2): (1, 2),
    Dynamic(min=1, max=1): (1,),
    Dynamic(min=0, max=0): (0,),
    Dynamic(min=5, max=5): (5,),
    Dynamic(min=1): (1, Range(min=2)),
}


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_pieces(dim: Specialize | Dynamic) -> None:
    pieces = dim.pieces()
    assert pieces == DIMS[dim]
    assert any(dim.example() in p if isinstance(p, Range) else dim.example() == p for p in pieces)


def test_the_plan_names_every_job() -> None:
    spec = Spec(
        name="two",
        model=Two,
        inputs=lambda _: ((), {}),
        dims={"a": Dynamic(min=1, max=4), "b": Specialize(values=(2, 3))},
        shapes={"x": ("a", "b")},
    )
    jobs = Plan.of(spec).jobs
    assert [job.id.partition("@")[0] for job in jobs] == [
        *("a=1,b=2", "a=1,b=3"),
        *("a=2..4,b=2", "a=2..4,b=3"),
    ]
    assert len({job.id.partition("@")[2] for job in jobs}) == 1
    assert jobs[0].bucket == Bucket(dims={"a": 1, "b": 2})
    assert str(Plan.of(spec)).startswith("two: 4 jobs\n  a=1,b=2@cpu-")
    chosen = Plan.of(spec).only(["a=1,*", "*b=3@*"])
    assert [job.id.partition("@")[0] for job in chosen.jobs] == ["a=1,b=2", "a=1,b=3", "a=2..4,b=3"]
    static = Spec(name="two", model=Two, inputs=lambda _: ((), {}))
    assert [job.id.partition("@")[0] for job in Plan.of(static).jobs] == ["static"]


def test_example_sizes_differ() -> None:
    dims = {name: Dynamic(min=2, max=9) for name in "abc"}
    spec = Spec(
        name="x", model=Two, inputs=lambda _: ((), {}), dims=dims, shapes={"x": tuple("abc")}
    )
    (job,) = Plan.of(spec).jobs
    sizes = spec.example_sizes(job.bucket)
    assert len(set(sizes.values())) == 3
    assert all(2 <= size <= 9 for size in sizes.values())


def test_modes_in_a_file(read: Callable[..., Spec]) -> None:
    spec = read("[model]", '[model]\ntraining = [false, true]\ngrad = ["off", "on"]')
    assert (spec.training, spec.grad) == ((False, True), ("off", "on"))
    assert (read().training, read().grad) == ((False,), ("off",))


def test_where_the_weights_are_in_a_file(read: Callable[..., Spec]) -> None:
    spec = read("[shapes]", '[build]\nweights = "external"\n[shapes]')
    assert (spec.weights, read().weights) == ("external", "embedded")
