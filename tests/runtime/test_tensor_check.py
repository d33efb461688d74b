"""The compiled check accepts what Dynamo's accepts, nothing else, and only where it fits the host."""

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tcbuild import runtime
from tcbuild.formats import Manifest
from tcbuild.runtime.tensor_check import Compiled, TensorCheck, exact_check

from .. import models
from ..conftest import Rewrite
from .conftest import same

pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")

CHOICES: dict[str, Sequence[Any]] = {
    "sizes": ((2, 3), (3, 2), (6,), (), (0, 3), (2, 1)),
    "dtype": (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.complex64),
    "device": ("cpu", "meta"),
    "layout": ("plain", "transposed", "sliced", "expanded", "offset", "sparse", "nested"),
    "flag": ("plain", "gradient", "parameter", "negative", "conjugate", "inference", "subclass"),
}
MODES = ("inference", "no_grad", "autocast", "dispatch", "invisible", "vmap", "grad", "device")


class Subclass(torch.Tensor):
    """A tensor that may do anything."""


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Invisible(Mode):  # type: ignore[no-untyped-call]
    """One that torch.compile is asked not to see."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


@dataclass(frozen=True)
class Look:
    """What a tensor looks like."""

    sizes: tuple[int, ...] = (2, 3)
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    layout: str = "plain"
    flag: str = "plain"


def make(look: Look) -> torch.Tensor:
    """Make a tensor; what does not go together is left out."""
    tensor = torch.zeros(look.sizes, dtype=look.dtype, device=look.device)
    real = tensor.dtype.is_floating_point
    if look.layout == "sparse" and look.device == "cpu":
        return tensor.to_sparse()
    if look.layout == "nested" and look.device == "cpu" and look.sizes and real:
        return torch.nested.as_nested_tensor([tensor, tensor])
    match look.layout:
        case "transposed" if len(look.sizes) == 2:
            tensor = tensor.t().contiguous().t()
        case "sliced" if look.sizes:
            tensor = torch.cat([tensor, tensor], -1)[..., ::2]
        case "expanded" if look.sizes and look.sizes[0]:
            tensor = tensor[:1].expand(look.sizes)
        case "offset":
            tensor = tensor.new_zeros(tensor.numel() + 3)[3:].view(look.sizes)
    match look.flag:
        case "gradient" if real:
            tensor.requires_grad_()
        case "parameter" if real:
            tensor = torch.nn.Parameter(tensor)
        case "negative" if real:
            tensor = torch._neg_view(tensor)
        case "conjugate":
            tensor = tensor.conj()
        case "inference":
            with torch.inference_mode():
                tensor = tensor.clone()
        case "subclass":
            tensor = tensor.as_subclass(Subclass)
    return tensor


@contextmanager
def under(names: Sequence[str]) -> Iterator[None]:
    """Activate the modes within the block."""
    made: dict[str, Callable[[], Any]] = {
        "inference": torch.inference_mode,
        "no_grad": torch.no_grad,
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "dispatch": Mode,
        "invisible": Invisible,
        "device": lambda: torch.device("cpu"),
    }
    with ExitStack() as stack:
        for name in names:
            if name == "vmap":
                torch._C._functorch._vmap_increment_nesting(2, "error")
                stack.callback(torch._C._functorch._vmap_decrement_nesting)
            elif name == "grad":
                torch._C._functorch._grad_increment_nesting()
                stack.callback(torch._C._functorch._grad_decrement_nesting)
            else:
                stack.enter_context(made[name]())
        yield


@dataclass(frozen=True)
class Drawn:
    """A call that a check is made of, and one that it is given."""

    looks: list[Look]
    places: list[int]
    modes: list[str]
    other_looks: list[Look]
    other_places: list[int]
    other_modes: list[str]
    reused: bool


@st.composite
def pairs(draw: st.DrawFn) -> Drawn:
    """Draw two calls that differ in up to two ways."""
    count = draw(st.integers(1, 6))
    ways = draw(st.lists(st.sampled_from([*CHOICES, "places", "modes", "again"]), max_size=2))
    usual = draw(st.sampled_from([Look(), *(Look(**{k: v}) for k in CHOICES for v in CHOICES[k])]))
    looks, places = [usual] * count, list(range(count))
    if draw(st.booleans()):
        places = draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count))
    modes = draw(st.lists(st.sampled_from(MODES), max_size=1))
    others, other_places, other_modes = list(looks), list(places), list(modes)
    for way in ways:
        at = draw(st.integers(0, count - 1))
        if way in CHOICES:
            others[at] = replace(others[at], **{way: draw(st.sampled_from(CHOICES[way]))})
        elif way == "places":
            other_places[at] = draw(st.integers(0, count - 1))
        elif way == "modes":
            other_modes = draw(st.lists(st.sampled_from(MODES), max_size=2, unique=True))
    return Drawn(looks, places, modes, others, other_places, other_modes, "again" in ways)


@pytest.fixture(scope="module")
def compiled(net_artifact: Path) -> Compiled:
    """Return what makes compiled checks."""
    made = runtime.load(net_artifact)._compiled
    assert made is not None
    return made


@pytest.fixture
def made(compiled: Compiled) -> Callable[..., TensorCheck]:
    """Return a function that makes a compiled check of the tensors that it is given."""

    def make_check(*tensors: torch.Tensor) -> TensorCheck:
        check = compiled(tensors)
        assert check is not None
        return check

    return make_check


def test_it_agrees_with_dynamo(compiled: Compiled) -> None:
    seen = {True: 0, False: 0}

    @settings(
        max_examples=1000,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(pairs())
    def drawn_pairs(drawn: Drawn) -> None:
        first = [make(look) for look in drawn.looks]
        second = first if drawn.reused else [make(look) for look in drawn.other_looks]
        tensors = tuple(first[i] for i in drawn.places)
        others = tuple(second[i] for i in drawn.other_places)
        with under(drawn.modes):
            ours = compiled(tensors)
            if ours is None:
                layouts = {drawn.looks[i].layout for i in drawn.places}
                assert {*layouts, *drawn.modes} & {"sparse", "nested", "dispatch", "invisible"}
                return
            dynamos = exact_check(tensors)
            assert ours(*tensors)
        with under(drawn.other_modes):
            accepted = ours(*others)
            theirs = dynamos(*others)
        seen[accepted] += 1
        assert accepted == theirs

    drawn_pairs()
    assert min(seen.values()) > 200


@pytest.mark.parametrize("count", [1, 2, 9, 64, 255, 256, 257, 1000])
def test_many_tensors(made: Callable[..., TensorCheck], count: int) -> None:
    tensors = [torch.zeros(2) for _ in range(count)]
    check = made(*tensors)
    assert check(*tensors)
    assert check(*reversed(tensors))
    assert check(*[torch.zeros(2) for _ in range(count)])
    assert not check(*tensors[1:])
    assert not check(*tensors, tensors[0])
    for i, j in {(0, count - 1), (count // 2, 0), (count - 1, count // 2)}:
        twice = list(tensors)
        twice[i] = twice[j]
        assert check(*twice) == (i == j)
        again = made(*twice)
        assert again(*twice)
        assert again(*tensors) == (i == j)


@pytest.mark.parametrize("how", ["compiled", "Dynamo's"])
def test_a_nested_tensor_is_refused(compiled: Compiled, how: str) -> None:
    check = exact_check([torch.zeros(2, 3)], compiled if how == "compiled" else None)
    assert not check(torch.nested.as_nested_tensor([torch.zeros(2, 3)] * 2))


@pytest.mark.parametrize("odd", [None, 1, "x", [], torch.Tensor, object(), (torch.zeros(2),)])
def test_what_is_no_tensor(compiled: Compiled, odd: object) -> None:
    tensor = torch.zeros(2)
    check = compiled((tensor, torch.zeros(2)))
    assert check is not None
    assert not check(tensor, odd)
    assert not check(odd, odd)
    assert not exact_check((tensor, torch.zeros(2)))(tensor, odd)
    assert compiled((tensor, odd)) is None  # type: ignore[arg-type]


def test_symbolic_sizes_are_refused(made: Callable[..., TensorCheck], compiled: Compiled) -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbolic = torch.empty((ShapeEnv().create_unbacked_symint(), 3), device="meta")
    assert type(symbolic) is torch.Tensor
    assert compiled((symbolic,)) is None
    assert not made(torch.empty(4, 3, device="meta"))(symbolic)


def test_tensors_are_not_kept_alive(made: Callable[..., TensorCheck]) -> None:
    tensors = [torch.zeros(2), torch.zeros(2)]
    gone = [weakref.ref(tensor) for tensor in tensors]
    check = made(*tensors)
    tensors.clear()
    assert [reference() for reference in gone] == [None, None]
    assert check(torch.zeros(2), torch.zeros(2))


def test_nothing_leaks(made: Callable[..., TensorCheck]) -> None:
    tensors = [torch.zeros(2).as_subclass(Subclass), torch.zeros(2)]
    watched = [*tensors, Subclass, None, True, False]
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(1000):
        check = made(*tensors)
        assert check(*tensors)
        assert not check(*reversed(tensors))
        assert not check(tensors[0], None)
        del check
    after = [sys.getrefcount(thing) for thing in watched]
    assert max(now - then for now, then in zip(after, before, strict=True)) < 100


@pytest.mark.parametrize("mode", ["dispatch", "invisible"])
def test_none_is_made_where_python_handles_operators(compiled: Compiled, mode: str) -> None:
    tensors = (torch.zeros(2),)
    with under([mode]):
        assert compiled(tensors) is None
        check = exact_check(tensors, compiled)
        assert check(*tensors)
    assert not check(*tensors)


def test_modes_that_hide_from_dynamo_are_seen(compiled: Compiled) -> None:
    tensor = torch.zeros(2)
    for how in (compiled, None):
        for tensors in ((tensor,), (tensor, tensor)):
            check = exact_check(tensors, how)
            assert check(*tensors)
            with under(["invisible"]):
                assert not check(*tensors)


def test_a_check_that_refuses_its_own_tensors_is_not_used() -> None:
    tensors = (torch.zeros(2), torch.zeros(2))
    assert exact_check(tensors, lambda _: lambda *_: False)(*tensors)
    assert exact_check(tensors, lambda _: None)(*tensors)


Change = Callable[[Manifest], Manifest]


def elsewhere(fact: str, expected: str) -> Change:
    """Return a change that makes the tensor check one for another host."""

    def change(manifest: Manifest) -> Manifest:
        assert manifest.tensor_check is not None
        guards = manifest.tensor_check.guards
        assert fact in {guard.fact for guard in guards}
        others = tuple(
            replace(guard, expected=expected) if guard.fact == fact else guard for guard in guards
        )
        return replace(manifest, tensor_check=replace(manifest.tensor_check, guards=others))

    return change


UNFIT: dict[str, Change] = {
    "python": elsewhere("python", "cpython-27mu"),
    "torch": elsewhere("torch", "1.0.0"),
    "os": elsewhere("os", "plan9"),
    "arch": elsewhere("arch", "z80"),
    "glibc": elsewhere("glibc", "9.9"),
    "none": lambda manifest: replace(manifest, tensor_check=None),
}


def answers(path: Path) -> runtime.Dispatcher:
    """Load an artifact of the net and make calls that are recognised."""
    served, eager = runtime.load(path, on_miss="raise"), models.net()
    args, _ = models.net_call()
    with torch.no_grad():
        for _ in range(3):
            assert same(served(*args), eager(*args))
    return served


@pytest.mark.parametrize("why", UNFIT)
def test_dynamos_check_is_used_where_it_does_not_fit(
    net_artifact: Path, rewrite: Rewrite, why: str
) -> None:
    assert answers(rewrite(net_artifact, UNFIT[why]))._compiled is None


def test_one_that_does_not_load_is_left(net_artifact: Path, rewrite: Rewrite) -> None:
    from tcbuild.formats import Artifact

    with Artifact(net_artifact) as artifact:
        assert artifact.manifest.tensor_check is not None
        section = artifact.manifest.tensor_check.section
    path = rewrite(net_artifact, sections={section: b"\x7fELF of some kind"})
    assert answers(path)._compiled is None


def test_it_needs_no_folder(net_artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCBUILD_CACHE", "/dev/null/nowhere")
    assert answers(net_artifact)._compiled is not None
