"""Every guard, one by one: a call that differs in one thing is a miss that says so, or is right."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tcbuild import runtime

from .. import models
from .conftest import same

Change = Callable[[list[Any], dict[str, Any]], object]


class Subclass(torch.Tensor):
    """A tensor that may do anything."""


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Changes nothing, and might."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class FunctionMode(TorchFunctionMode):
    """Changes nothing, and might."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def ids(change: Callable[[torch.Tensor], Any]) -> Change:
    """Return a change of the first argument."""

    def run(args: list[Any], kwargs: dict[str, Any]) -> None:
        args[0] = change(args[0])

    return run


def feat(change: Callable[[torch.Tensor], Any]) -> Change:
    """Return a change of the tensor feats['a']."""

    def run(args: list[Any], kwargs: dict[str, Any]) -> None:
        args[1] = {**args[1], "a": change(args[1]["a"])}

    return run


def keyword(**values: Any) -> Change:
    """Return a change of keyword arguments."""
    return lambda args, kwargs: kwargs.update(values)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor of every second column of another one."""
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


def permuted(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor with its axes in another order in memory."""
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def negative(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor that is a lazy negative."""
    view: torch.Tensor = torch._neg_view(-tensor)
    assert view.is_neg()
    return view


# What differs: the change, and what the reason for the miss says.
CALLS: dict[str, tuple[Change, str]] = {
    "dtype": (ids(lambda x: x.int()), "ids.dtype: expected int64, found int32"),
    "double": (feat(lambda x: x.double()), "feats['a'].dtype: expected float32, found float64"),
    "rank": (feat(lambda x: x[None]), "feats['a'].rank: expected 3, found 4"),
    "size": (feat(lambda x: x[..., :7].clone()), "feats['a'].size(2): expected 8, found 7"),
    "specialized": (ids(lambda x: x[:2]), "ids.size(0): expected 3, found 2"),
    "too long": (ids(lambda x: x.repeat(1, 4)), "ids.size(1): expected 2..16, found 20"),
    "empty": (ids(lambda x: x[:, :0]), "ids.size(1): expected"),
    "unequal": (feat(lambda x: x[:, :4].clone()), "feats['a'].size(1): expected seq = 5, found 4"),
    "transposed": (feat(permuted), "feats['a'].layout: expected contiguous, found 1,0,2"),
    "expanded": (
        feat(lambda x: x[:1].expand(3, -1, -1)),
        "feats['a'].layout: expected contiguous, found strides (0, 8, 1) for shape (3, 5, 8)",
    ),
    "sliced": (feat(sliced), "feats['a'].layout: expected contiguous, found strides (80, 16, 2)"),
    "negative view": (feat(negative), "feats['a'].neg: expected False, found True"),
    "gradient": (
        feat(lambda x: x.clone().requires_grad_()),
        "feats['a'].requires_grad: expected False, found True",
    ),
    "subclass": (
        feat(lambda x: x.as_subclass(Subclass)),
        "feats['a'].type: expected Tensor, found Subclass",
    ),
    "sparse": (
        feat(lambda x: x.to_sparse()),
        "feats['a'].type: expected Tensor, found Tensor with layout sparse_coo",
    ),
    "meta": (feat(lambda x: x.to("meta")), "feats['a'].device: expected cpu, found meta"),
    "none for a tensor": (feat(lambda _: None), "feats['a'].type: expected Tensor, found NoneType"),
    "number for a tensor": (feat(lambda _: 1), "feats['a'].type: expected Tensor, found int"),
    "list for a tensor": (ids(lambda x: x.tolist()), "ids.type: expected Tensor, found list"),
    "tensor for none": (
        keyword(mask=torch.ones(3, 5)),
        "mask.value: expected None, found a Tensor",
    ),
    "another int": (keyword(repeat=3), "repeat.value: expected 2, found 3"),
    "float for int": (keyword(repeat=2.0), "repeat.value: expected 2, found 2.0"),
    "tensor for int": (keyword(repeat=torch.tensor(2)), "repeat.value: expected 2, found a Tensor"),
    "int for bool": (keyword(strict=1), "strict.value: expected True, found 1"),
    "another bool": (keyword(strict=False), "strict.value: expected True, found False"),
    "int for float": (keyword(temperature=0), "temperature.value: expected 0.0, found 0"),
    "bool for float": (keyword(temperature=False), "temperature.value: expected 0.0, found False"),
    "negative zero": (keyword(temperature=-0.0), "temperature.value: expected 0.0, found -0.0"),
    "nan": (keyword(temperature=float("nan")), "temperature.value: expected 0.0, found nan"),
    "another str": (keyword(mode="sum"), "mode.value: expected 'mean', found 'sum'"),
    "none for str": (keyword(mode=None), "mode.value: expected 'mean', found None"),
    "a container": (keyword(sizes=(1, 2)), "sizes: expected to be left out, found a value"),
    "another container": (
        lambda args, kwargs: args.__setitem__(1, list(args[1].items())),
        "feats: expected a dict, found a list",
    ),
    "a tuple for a named one": (
        lambda args, kwargs: args[1].update(pair=tuple(args[1]["pair"])),
        "feats['pair']: expected a Pair, found a tuple",
    ),
    "one more key": (
        lambda args, kwargs: args[1].update(b=1),
        "feats: expected keys [\"'a'\", \"'pair'\"], found [\"'a'\", \"'b'\", \"'pair'\"]",
    ),
    "one key less": (
        lambda args, kwargs: args[1].pop("pair"),
        "feats: expected keys [\"'a'\", \"'pair'\"], found [\"'a'\"]",
    ),
    "unknown name": (keyword(tmperature=1.0), "unexpected keyword argument 'tmperature'"),
    "missing name": (lambda args, kwargs: args.pop(), "missing a required argument: 'feats'"),
    "too many": (lambda args, kwargs: args.extend([None, 2]), "too many positional arguments"),
}

NO_EAGER = {
    # What eager does not answer either, or not in the same way.
    "meta", "sparse", "none for a tensor", "number for a tensor", "list for a tensor", "rank",
    "tensor for int", "a tuple for a named one", "another container", "one key less", "unequal",
    "unknown name", "missing name", "too many", "size", "float for int", "specialized", "too long",
    "double", "empty",
}  # fmt: skip


def changed(name: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the call that is changed in that way."""
    args, kwargs = models.net_call()
    call = list(args), dict(kwargs)
    CALLS[name][0](*call)
    return call


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_differs_in_one_thing_is_refused(
    strict_net: runtime.Dispatcher, name: str
) -> None:
    args, kwargs = models.net_call()
    strict_net(*args, **kwargs)
    strict_net(*args, **kwargs)  # remembered now
    args, kwargs = changed(name)  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(runtime.MissError) as caught:
            strict_net(*args, **kwargs)
        assert CALLS[name][1] in caught.value.found
    assert CALLS[name][1] in str(strict_net.explain(*args, **kwargs))
    assert sum(strict_net.stats().hits.values()) == 2


@pytest.mark.parametrize("name", sorted(CALLS.keys() - NO_EAGER))
def test_a_miss_is_answered_as_eager_answers(
    net_artifact: Path, eager: models.Net, name: str
) -> None:
    args, kwargs = changed(name)
    served = runtime.load(net_artifact, fallback=eager)
    with torch.no_grad():
        assert same(served(*args, **kwargs), eager(*args, **kwargs))
    assert served.stats().fallbacks["fallback module"] == 1


@contextmanager
def global_setting(set_it: Callable[[], object], undo: Callable[[], object]) -> Iterator[None]:
    """Set something for the block."""
    set_it()
    try:
        yield
    finally:
        undo()


PROCESS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "grad mode": (torch.enable_grad, "process.grad_mode: expected False, found True"),
    "autocast": (
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "process.autocast: expected False, found True",
    ),
    "default dtype": (
        lambda: global_setting(
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
        ),
        "process.default_dtype: expected float32, found float64",
    ),
    "deterministic": (
        lambda: global_setting(
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
        ),
        "process.deterministic: expected False, found True",
    ),
    "dispatch mode": (DispatchMode, "process.modes: expected 0, found 1"),
    "function mode": (FunctionMode, "process.modes: expected 0, found 1"),
    "default device": (lambda: torch.device("meta"), "process.modes: expected 0, found 1"),
    "forward differentiation": (forward_ad.dual_level, "process.modes: expected 0, found 1"),
}


@pytest.mark.parametrize("name", PROCESS)
def test_a_setting_of_the_thread_is_refused(strict_net: runtime.Dispatcher, name: str) -> None:
    args, kwargs = models.net_call()
    strict_net(*args, **kwargs)
    enter, reason = PROCESS[name]
    with enter():
        for _ in range(2):
            with pytest.raises(runtime.MissError) as caught:
                strict_net(*args, **kwargs)
            assert reason in caught.value.found
    strict_net(*args, **kwargs)
    assert sum(strict_net.stats().hits.values()) == 2


def test_the_cpu_as_default_device_changes_nothing(net_artifact: Path, eager: models.Net) -> None:
    args, kwargs = models.net_call()
    large, _ = models.net_call(seq=40)
    seen: list[torch.device] = []

    def fallback(*args: Any) -> models.Out:
        seen.append(torch.empty(0).device)
        with torch.device("cpu"):
            made: models.Out = eager(*args)
        return made

    served = runtime.load(net_artifact, fallback=fallback)
    with torch.no_grad():
        expected = eager(*args, **kwargs)
        for enter in (nullcontext, lambda: torch.device("cpu"), nullcontext):
            with enter():
                for _ in range(2):
                    assert same(served(*args, **kwargs), expected)
        assert not seen
        # What was remembered under it is not taken for a call under another mode.
        for mode in (torch.device("meta"), FunctionMode()):
            with mode:
                served(*args, **kwargs)
        with torch.device("cpu"), FunctionMode():
            served(*args, **kwargs)
        with torch.device("cpu"):
            served(*large)
    assert [device.type for device in seen] == ["meta", "cpu", "cpu", "cpu"]
    assert sum(served.stats().hits.values()) == 6


# Torch's rules for forward differentiation are TorchScript.
scripted = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@scripted
def test_a_function_transform_is_refused(strict_net: runtime.Dispatcher) -> None:
    args, kwargs = models.net_call()
    strict_net(*args, **kwargs)

    def call(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = strict_net(args[0], {**args[1], "a": x}).logits
        return made

    with pytest.raises(runtime.MissError, match=r"process\.modes: expected 0, found 1"):
        torch.func.vmap(call)(args[1]["a"].expand(2, -1, -1, -1))
    with pytest.raises(runtime.MissError, match=r"process\.modes: expected 0, found"):
        torch.func.jvp(call, (args[1]["a"],), (args[1]["a"],))


@scripted
def test_a_transform_is_answered_by_the_fallback(net_artifact: Path, eager: models.Net) -> None:
    args, _ = models.net_call()
    served = runtime.load(net_artifact, fallback=eager)
    stack = torch.randn(2, 3, 5, 8)

    def of(model: Callable[..., models.Out]) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: model(args[0], {**args[1], "a": x}).logits

    with torch.no_grad():
        served(*args)
        assert torch.equal(torch.func.vmap(of(served))(stack), torch.func.vmap(of(eager))(stack))
        with forward_ad.dual_level():
            tangent = torch.ones_like(stack[0])
            dual = forward_ad.make_dual(stack[0], tangent)  # type: ignore[no-untyped-call]
            mine, own = (forward_ad.unpack_dual(of(model)(dual)) for model in (served, eager))  # type: ignore[no-untyped-call]
        assert torch.equal(mine.tangent, own.tangent)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_nested_tensor_is_refused(strict_net: runtime.Dispatcher) -> None:
    args, _ = models.net_call()
    nested = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)])
    for tensor in (nested, torch.nested.to_padded_tensor(nested, 0.0).to_sparse_csr):
        with pytest.raises(runtime.MissError, match=r"feats\['a'\].type: expected Tensor, found"):
            strict_net(args[0], {**args[1], "a": tensor})


def test_a_conjugate_view_is_refused() -> None:
    from tcbuild.formats import Guard
    from tcbuild.runtime.observe import refusals

    guard = Guard(subject="x", fact="conj", expected=False)
    (refused,) = refusals([guard], {"x": torch.randn(2, dtype=torch.cfloat).conj()}, {})
    assert refused.text == "x.conj: expected False, found True"


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_channels_last(conv_artifact: Path, memory_format: torch.memory_format) -> None:
    served = runtime.load(conv_artifact, fallback=models.seeded(models.Conv), on_miss="fallback")
    image = models.image().contiguous(memory_format=memory_format)
    with torch.inference_mode():
        made = [served(image) for _ in range(3)]
        assert all(same(one, models.seeded(models.Conv)(image)) for one in made)
    expected = 3 if memory_format is torch.channels_last else 0
    assert sum(served.stats().hits.values()) == expected
    if not expected:
        assert served.stats().misses == {"image.layout": 3}


def test_an_autocast_region_inside_the_model(cast_artifact: Path) -> None:
    (x,), _ = models.CAST.inputs({})
    eager, served = models.seeded(models.Cast), runtime.load(cast_artifact, on_miss="raise")
    with torch.no_grad():
        for context in (nullcontext(), torch.inference_mode()):
            with context:
                assert torch.allclose(served(x), eager(x), rtol=0.02, atol=0.02)
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            pytest.raises(runtime.MissError, match=r"process\.autocast"),
        ):
            served(x)


@pytest.mark.parametrize("n", range(1, 66))
def test_divisibility(fours_artifact: Path, n: int) -> None:
    served = runtime.load(fours_artifact, on_miss="raise")
    x = torch.randn(n, 2)
    with torch.no_grad():
        if n % 4 or n < 8 or n > 63:
            with pytest.raises(runtime.MissError) as caught:
                served(x)
            assert "x.size(0): expected 2..63" in caught.value.found or (
                f"false for n={n}" in caught.value.found
            )
        else:
            assert same(served(x), models.seeded(models.Fours)(x))


def test_warmup_draws_sizes_that_the_relations_allow(fours_artifact: Path) -> None:
    served = runtime.load(fours_artifact)
    served.warmup()
    assert served.stats().calls == 0
