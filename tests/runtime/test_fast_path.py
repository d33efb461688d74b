"""The quick recognition of a call never serves what the guards refuse, and every answer is eager's."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tcbuild import runtime

from .. import models
from .conftest import same

LAYOUTS = ("plain", "transposed", "sliced", "offset", "expanded")
FLAGS = ("plain", "plain", "plain", "gradient", "parameter", "negative", "inference", "subclass")


class Subclass(torch.Tensor):
    """A tensor that may do anything."""


@dataclass(frozen=True)
class Shape:
    """How a tensor of a call is made."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    flag: str


@dataclass(frozen=True)
class Drawn:
    """A call: what it passes, and the settings of the thread."""

    ids: Shape
    a: Shape
    left: Shape
    twice: bool
    as_keywords: bool
    kwargs: dict[str, Any]
    settings: Sequence[str]


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.complex64)
SETTINGS = ("inference", "autocast", "float64", "deterministic", "device", "grad")
VALUES: dict[str, list[Any]] = {
    "repeat": [2, 1, True, 2.0],
    "temperature": [0.0, -0.0, 1.5, 0, float("nan")],
    "mode": ["mean", "sum"],
    "strict": [True, False, 1],
    "mask": [None, torch.ones(models.BATCH, 5)],
}
ODD = [
    *(f"{name}.{what}" for name in ("ids", "a", "left") for what in Shape.__annotations__),
    *("settings", "kwargs", "seq", "batch"),
]


@st.composite
def calls(draw: st.DrawFn) -> Drawn:
    """Draw a call that differs from an accepted one in up to three ways."""
    odd = draw(st.lists(st.sampled_from(ODD), max_size=3, unique=True))
    seq = draw(st.integers(0, 18) if "seq" in odd else st.sampled_from([1, 2, 5, 16]))
    batch = draw(st.integers(0, 4)) if "batch" in odd else models.BATCH

    def shape(name: str, usual: tuple[int, ...], dtype: torch.dtype) -> Shape:
        def choose(what: str, value: Any, others: st.SearchStrategy[Any]) -> Any:
            return draw(others) if f"{name}.{what}" in odd else value

        return Shape(
            sizes=choose("sizes", usual, st.lists(st.integers(0, 9), max_size=4).map(tuple)),
            dtype=choose("dtype", dtype, st.sampled_from(DTYPES)),
            layout=choose("layout", "plain", st.sampled_from(LAYOUTS)),
            flag=choose("flag", "plain", st.sampled_from(FLAGS)),
        )

    names = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True)) if "kwargs" in odd else ()
    return Drawn(
        ids=shape("ids", (batch, seq), torch.int64),
        a=shape("a", (batch, seq, models.WIDTH), torch.float32),
        left=shape("left", (batch, models.WIDTH), torch.float32),
        twice=draw(st.booleans()),
        as_keywords=draw(st.booleans()),
        kwargs={name: draw(st.sampled_from(VALUES[name])) for name in names},
        settings=draw(st.lists(st.sampled_from(SETTINGS), max_size=2)) if "settings" in odd else [],
    )


def make(shape: Shape, seed: int) -> torch.Tensor:
    """Make a tensor."""
    random = torch.Generator().manual_seed(seed)
    sizes = shape.sizes
    if not shape.dtype.is_floating_point and not shape.dtype.is_complex:
        tensor = torch.randint(models.WORDS, sizes, generator=random).to(shape.dtype)
    else:
        tensor = torch.randn(sizes, generator=random, dtype=torch.float32).to(shape.dtype)
    match shape.layout:
        case "transposed" if len(sizes) > 1:
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        case "sliced" if sizes:
            wide = tensor.new_zeros(*sizes[:-1], 2 * sizes[-1])
            wide[..., ::2] = tensor
            tensor = wide[..., ::2]
        case "offset":
            room = tensor.new_zeros(tensor.numel() + 3)
            room[3:] = tensor.reshape(-1)
            tensor = room[3:].view(sizes)
        case "expanded" if sizes and sizes[0]:
            tensor = tensor[:1].expand(sizes)
    match shape.flag:
        case "gradient" if tensor.dtype.is_floating_point:
            tensor = tensor.detach().requires_grad_()
        case "parameter" if tensor.dtype.is_floating_point:
            tensor = torch.nn.Parameter(tensor.detach(), requires_grad=seed % 2 == 0)
        case "negative" if tensor.dtype.is_floating_point:
            tensor = torch._neg_view(-tensor)
        case "inference":
            with torch.inference_mode():
                tensor = tensor + tensor.new_zeros(())
        case "subclass":
            tensor = tensor.as_subclass(Subclass)
    return tensor


def arguments(drawn: Drawn, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make the arguments of a call."""
    ids, a, left = (
        make(shape, seed + i) for i, shape in enumerate((drawn.ids, drawn.a, drawn.left))
    )
    right = left if drawn.twice else make(drawn.left, seed + 3)
    feats = {"a": a, "pair": models.Pair(left, right)}
    if drawn.as_keywords:
        turned = {"pair": feats["pair"], "a": a}
        return (), {**drawn.kwargs, "feats": turned, "ids": ids}
    return (ids, feats), dict(drawn.kwargs)


@contextmanager
def thread(names: Sequence[str]) -> Iterator[None]:
    """Set what the drawn settings say, for the block."""
    with ExitStack() as stack:
        if "grad" not in names:
            stack.enter_context(torch.no_grad())
        if "inference" in names:
            stack.enter_context(torch.inference_mode())
        if "autocast" in names:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        if "device" in names:
            stack.enter_context(torch.device("cpu"))
        if "float64" in names:
            stack.callback(torch.set_default_dtype, torch.float32)
            torch.set_default_dtype(torch.float64)
        if "deterministic" in names:
            stack.callback(torch.use_deterministic_algorithms, False)
            torch.use_deterministic_algorithms(True)
        yield


@pytest.fixture(scope="module")
def served(net_artifact: Path) -> runtime.Dispatcher:
    """Return one net for all drawn calls, so that it remembers what it has accepted."""
    return runtime.load(net_artifact, on_miss="raise")


EAGER = models.net()
HITS = {"drawn": 0, "hit": 0}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep small operators from waiting for threads that have no processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def answer(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a model answers, None where it raises."""
    try:
        return model(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError, AttributeError, NotImplementedError):
        return None


def play(served: runtime.Dispatcher, drawn: Drawn, seed: int) -> None:
    """Make a call twice; hold what the guards say and what eager answers against what is served."""
    for _ in range(2):
        args, kwargs = arguments(drawn, seed)
        with thread(drawn.settings):
            accepted = served.explain(*args, **kwargs).variant
            before = served.stats().hits
            try:
                made = served(*args, **kwargs)
            except runtime.MissError:
                made = None
            hits = {name: n - before[name] for name, n in served.stats().hits.items()}
            answered = [name for name, n in hits.items() if n]
            assert answered == ([] if accepted is None else [accepted])
            HITS["drawn"] += 1
            if accepted is not None:
                HITS["hit"] += 1
                assert same(made, answer(EAGER, args, kwargs))


def check(served: runtime.Dispatcher, examples: int, start: int | None = None) -> None:
    """Draw and play so many calls, the same ones each time unless there is a seed to start from."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=start is None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn=calls(), seed=st.integers(0, 3))
    def drawn_calls(drawn: Drawn, seed: int) -> None:
        play(served, drawn, seed)

    if start is not None:
        hypothesis.seed(start)(drawn_calls)
    drawn_calls()


@pytest.mark.filterwarnings("ignore:.*deterministic.*:UserWarning")
def test_quick_and_slow_recognition_agree(served: runtime.Dispatcher) -> None:
    # By hand for the first time, so that drawn calls meet a full memory.
    with torch.no_grad():
        for seq in range(1, models.MOST + 1):
            args, _ = models.net_call(seq=seq)
            assert same(served(*args), EAGER(*args))
    check(served, 1000)
    assert HITS["drawn"] >= 2000
    assert 100 < HITS["hit"] < HITS["drawn"] - 100


def test_threads_get_right_answers_and_exact_counts(net_artifact: Path) -> None:
    served = runtime.load(net_artifact, fallback=EAGER)
    sizes = [1, 2, 5, 16, 17]
    inputs = {seq: models.net_call(seq=seq)[0] for seq in sizes}
    with torch.no_grad():
        expected = {seq: EAGER(*args) for seq, args in inputs.items()}
    wrong: list[int] = []
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        with torch.no_grad():
            for i in range(500):
                seq = sizes[(i + number) % len(sizes)]
                if not same(served(*inputs[seq]), expected[seq]):
                    wrong.append(seq)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []
    stats = served.stats()
    assert sorted(stats.hits.values()) == [800, 2400]
    assert stats.misses == {"ids.size(1)": 800}
    assert stats.fallbacks == {"fallback module": 800, "embedded graph": 0, "nothing": 0}
    assert (stats.calls, stats.fallback_share) == (4000, 0.2)


def test_memory_of_accepted_calls_is_bounded(
    net_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tcbuild.runtime import dispatcher

    monkeypatch.setattr(dispatcher, "MAX_KEYS", 4)
    served = runtime.load(net_artifact, on_miss="raise")
    with torch.no_grad():
        for _ in range(2):
            for seq in range(1, models.MOST + 1):
                args, _ = models.net_call(seq=seq)
                for one in (
                    args,
                    (args[0], {**args[1], "pair": models.Pair(*[args[1]["pair"][0]] * 2)}),
                ):
                    assert same(served(*one), EAGER(*one))
    assert all(len(memo) <= 4 for memo in served._memos)
    assert sum(served.stats().hits.values()) == 64


def test_a_call_without_tensors_is_recognised_by_the_thread_too() -> None:
    from tcbuild.runtime.tensor_check import exact_check

    check = exact_check([])
    assert check()
    with torch.autocast("cpu"):
        assert not check()
    with torch.inference_mode():
        assert not check()
