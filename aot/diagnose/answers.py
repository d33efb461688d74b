"""What a model answers, by name: outputs, what it writes to, and gradients; and how two such compare."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...formats.signature import Node, TensorLeaf, ValueLeaf
from .. import structure
from ..call_mode import CallMode
from ..numerics import SUMMED, equal, judge
from ..spec import Call
from .kinds import DIFFERS, OVERFLOWS

Tensors = dict[str, torch.Tensor]
Model = Callable[..., Any]
How = Callable[[torch.nn.Module], Model]

_LOW: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})


class Difference(NamedTuple):
    """An answer that is not as it should be: its name, what is wrong in words, and which kind it is of."""

    what: str
    problem: str
    kind: str = DIFFERS


class Flat(tuple[torch.Tensor, ...]):
    """The tensors of a result in their order, without the structure around them."""


class Expected:
    """What eager answers, in its own precision and in float64; and where random numbers show."""

    def __init__(self, module: torch.nn.Module, call: Call, mode: CallMode) -> None:
        self.eager = answers(module, call, mode)
        again = answers(module, call, mode, seed=1)
        self.random = {key for key, value in self.eager.items() if not equal(value, again[key])}
        self.widened = True
        try:
            self.exact = answers(module, call, mode, wide=True)
        except Exception:  # an operator that has no float64
            self.exact, self.widened = self.eager, False

    def difference(self, made: Tensors, tolerance: float) -> Difference | None:
        """Return the first answer that breaks the rule of numerics.py.

        Args:
            made: to be held against eager's.
            tolerance: how many times eager's own error is allowed.
        """
        for key, eager in self.eager.items():
            if key not in made:
                return Difference(key, "is not there")
            exact = eager if key in self.random else self.exact[key]
            steps = SUMMED if key.startswith("gradient") else 1
            verdict = judge(made[key], eager, exact, tolerance, steps)
            alike = (made[key].shape, made[key].dtype) == (eager.shape, eager.dtype)
            if verdict.problem and not (key in self.random and alike):
                return Difference(key, verdict.problem)
        return None

    def overflow(self) -> Difference | None:
        """Return the first of eager's answers that is inf or nan where float64 has a number."""
        for key, eager in self.eager.items():
            bad = overflows(eager, self.exact[key])
            if bad and key not in self.random:
                return Difference(key, bad, OVERFLOWS)
        return None


def overflows(made: torch.Tensor, exact: torch.Tensor) -> str:
    """Say in words that a tensor is inf or nan where float64 is finite; empty where it is not."""
    if not made.is_floating_point() or made.shape != exact.shape:
        return ""
    lost = exact.isfinite() & ~made.isfinite()
    if not lost.any():
        return ""
    largest = float(exact[lost].abs().max())
    name, most = structure.dtype_name(made.dtype), torch.finfo(made.dtype).max
    return (
        f"{int(lost.sum())} of {made.numel()} numbers are inf or nan where float64 has up to "
        f"{largest:.4g}; {name} ends at {most:.4g}"
    )


def answers(
    module: torch.nn.Module,
    call: Call,
    mode: CallMode,
    how: How | None = None,
    *,
    wide: bool = False,
    seed: int = 0,
) -> Tensors:
    """Call a copy of a model.

    Args:
        module: the model, in eval mode.
        call: copied, too.
        mode: of the call; for a training step, gradients are among the answers.
        how: makes what is called of the model; itself where left out.
        wide: whether to compute in float64.
        seed: of the random numbers that it draws.
    """
    module, call = copy.deepcopy(module), copied(call)
    if wide:
        module, call = module.double(), _map(call, double)
    with ExitStack() as stack:
        stack.enter_context(mode.on(module))
        if wide:
            stack.enter_context(Wide())  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)
        run = module if how is None else how(module)
        made = run(*call[0], **call[1])
        found = dict(leaves(made))
        if mode.step:
            found |= _gradients(module, call, found)
    found |= {f"buffer {name}": buffer for name, buffer in module.named_buffers()}
    found |= {f"input {name}": given for name, given in leaves(call, "")}
    return {key: tensor.detach().clone() for key, tensor in found.items()}


def leaves(value: object, path: str = "output") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a result, each with its path."""
    found: list[tuple[str, torch.Tensor]] = []

    def leaf(where: str, one: object) -> Node:
        if isinstance(one, torch.Tensor):
            found.append((where, one))
            return TensorLeaf(dtype="", shape=(), index=0)
        return ValueLeaf.of(None)

    if isinstance(value, Flat):
        yield from ((str(i), tensor) for i, tensor in enumerate(value))
        return
    structure.describe(value, path, leaf)
    yield from found


def named(made: Tensors, like: Mapping[str, torch.Tensor]) -> Tensors:
    """Give the answers of a flat result the names of another's outputs, which are in the same order."""
    names = [name for name in like if name.startswith("output")]
    return {names[int(key)] if key.isdigit() else key: value for key, value in made.items()}


def tangents(outputs: Mapping[str, torch.Tensor]) -> Tensors:
    """Draw the gradient of each output that has one: the same for the same outputs."""
    noise = torch.Generator().manual_seed(0)
    drawn = {}
    for key, tensor in outputs.items():
        if tensor.requires_grad:
            drawn[key] = torch.randn(tensor.shape, generator=noise).to(tensor)
    return drawn


def _gradients(module: torch.nn.Module, call: Call, outputs: Tensors) -> Tensors:
    drawn = tangents(outputs)
    if drawn:
        torch.autograd.backward([outputs[key] for key in drawn], list(drawn.values()))
    held = [*module.named_parameters(), *leaves(call, "")]
    return {f"gradient {name}": grad_of(one) for name, one in held if one.requires_grad}


def grad_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's gradient; zeros where it has none."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def copied(call: Call) -> Call:
    """Return a call with tensors of its own, with the same strides."""
    return _map(call, copy_of)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides that asks for a gradient where the tensor does."""
    made = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return made.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


def double(tensor: torch.Tensor) -> torch.Tensor:
    """Return a floating-point tensor in float64, any other as it is."""
    if tensor.dtype not in _LOW:
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def _map(call: Call, change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    made: Call = torch.utils._pytree.tree_map_only(torch.Tensor, change, call)
    return made


class Wide(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, an operator that asks for a floating-point dtype gets float64."""

    def __enter__(self) -> Any:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *raised: Any) -> None:
        torch.set_default_dtype(self._default)
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = {name: _widened(value) for name, value in (kwargs or {}).items()}
        return func(*map(_widened, args), **given)


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _LOW else value
