"""The facts of one call, as the guards of a variant ask for them."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import torch

from ..formats.guard import DIMS, PROCESS, Guard
from ..formats.signature import Signature, Symbol, ValueLeaf
from . import devices, modes
from .miss import Refusal
from .tensor_check import TensorCheck
from .weights import dtype_name

Leaves = Mapping[str, object]  # what a call passed, by path


def refusals(guards: Sequence[Guard], leaves: Leaves, dims: Mapping[str, int]) -> list[Refusal]:
    """Return each guard that does not hold, with both values; empty if all hold."""
    return Observed(leaves, dims).refusals(guards)


class Observed:
    """A call that guards are held against: one that many variants share, once."""

    def __init__(
        self, leaves: Leaves, dims: Mapping[str, int], device: torch.device = devices.CPU
    ) -> None:
        """Take a call.

        Args:
            leaves: what it passed, by path.
            dims: its sizes by dimension name.
            device: where the model runs.
        """
        self._device = device
        self.leaves = leaves
        self.dims = dims
        # By identity, which the guard in it keeps: None where it holds.
        self._held: dict[int, tuple[Guard, Refusal | None]] = {}

    def refusals(self, guards: Sequence[Guard]) -> list[Refusal]:
        """Return each guard that does not hold, with both values; empty if all hold."""
        refused: list[Refusal] = []
        for guard in guards:
            held = self._held.get(id(guard))
            if held is None:
                actual = observe(guard, self.leaves, self._device)
                if actual is None:
                    # Of a leaf that has no such fact: another guard on it has refused, else this does.
                    if not refused:
                        text = guard.refusal(kind_of(self.leaves[guard.subject]), self.dims)
                        refused.append(Refusal(guard.name, text))
                    continue
                held = self._held[id(guard)] = guard, self._hold(guard, actual)
            if held[1] is not None:
                refused.append(held[1])
        return refused

    def _hold(self, guard: Guard, actual: object) -> Refusal | None:
        if guard.accepts(actual, self.dims):
            return None
        return Refusal(guard.name, guard.refusal(actual, self.dims))


def sizes(signature: Signature, leaves: Leaves) -> dict[str, int]:
    """Return the sizes of the call by dimension name, as far as they can be read."""
    tensors = [path for path, _ in signature.tensors()]
    found = {}
    for symbol in signature.symbols:
        size = _size(leaves.get(tensors[symbol.input]), symbol)
        if size is not None:
            found[symbol.name] = size
    return found


def size(leaf: object, axis: int) -> int | None:
    """Return the size of an axis; None where there is none."""
    return leaf.size(axis) if is_plain(leaf) and axis < leaf.dim() else None


def observe(guard: Guard, leaves: Leaves, device: torch.device) -> object:
    """Return the actual value of the fact, or None if its subject has no such fact."""
    if guard.subject == PROCESS:
        return _process(guard.fact, device)
    if guard.subject == DIMS:
        return True
    leaf = leaves[guard.subject]
    if guard.fact == "value":
        return words(leaf)
    if guard.fact == "type":
        return kind_of(leaf)
    if not is_plain(leaf):
        return None
    if guard.fact == "shared":
        others = (value for path, value in leaves.items() if path != guard.subject)
        return any(is_plain(other) and _share(leaf, other) for other in others)
    return _tensor(guard, leaf)


def also_unshared(check: TensorCheck, written: Sequence[int]) -> TensorCheck:
    """Return a check that also refuses a tensor of `written` that shares memory with another one."""

    def checked(*tensors: torch.Tensor) -> bool:
        return check(*tensors) and not any(
            i != j and _share(tensors[i], other) for i in written for j, other in enumerate(tensors)
        )

    return checked


def words(value: object) -> str:
    """Return a Python value as a guard on its value writes it, else its type."""
    if value is None or type(value) in (bool, int, float, str):
        return str(ValueLeaf.of(value))
    return f"a {kind_of(value)}"


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two dense tensors overlap in memory."""
    start, begin = one.data_ptr(), other.data_ptr()
    return start < begin + other.nbytes and begin < start + one.nbytes


def _tensor(guard: Guard, tensor: torch.Tensor) -> object:
    match guard.fact:
        case "dtype":
            return dtype_name(tensor.dtype)
        case "device":
            return devices.name(tensor.device)
        case "rank":
            return tensor.dim()
        case "size":
            has_axis = guard.axis is not None and guard.axis < tensor.dim()
            return tensor.size(guard.axis) if has_axis else None
        case "layout":
            return tuple(tensor.shape), tensor.stride()
        case "neg":
            return tensor.is_neg()
        case "conj":
            return tensor.is_conj()
        case "requires_grad":
            return tensor.requires_grad
    return None


def _process(fact: str, device: torch.device) -> object:
    match fact:
        case "grad_mode":
            return torch.is_grad_enabled()
        case "autocast":
            return bool(torch._C._is_any_autocast_enabled())
        case "default_dtype":
            return dtype_name(torch.get_default_dtype())
        case "deterministic":
            return torch.are_deterministic_algorithms_enabled()
        case "modes":
            return modes.count(device)
        case "matmul_precision":
            return torch.get_float32_matmul_precision()
    return None


def kind_of(value: object) -> str:
    """Return "Tensor" for plain tensors and parameters, "nested Tensor" and the like, else the type."""
    if type(value) is torch.Tensor or type(value) is torch.nn.Parameter:
        if value.layout is not torch.strided:
            return f"Tensor with layout {str(value.layout).removeprefix('torch.')}"
        return "nested Tensor" if value.is_nested else "Tensor"
    return type(value).__qualname__


def is_plain(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether it is a tensor with a size and a stride for each axis."""
    return kind_of(value) == "Tensor"


def _size(leaf: object, symbol: Symbol) -> int | None:
    if not is_plain(leaf) or symbol.axis >= leaf.dim():
        return None
    size, rest = divmod(leaf.size(symbol.axis) - symbol.offset, symbol.scale)
    return size if rest == 0 else None
