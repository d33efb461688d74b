"""The weights of a module that an artifact is attached to: the module's own tensors, and no copy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..formats.layout import is_dense
from ..formats.manifest import Weight, Weights
from .errors import StateError
from .miss import Refusal
from .observe import is_plain, kind_of
from .weights import describe, dtype_name

# Of each tensor: the dict of its owner that has it, and its name there.
_Place = tuple[dict[str, Any], str]


class OwnWeights:
    """Where a module has the tensors that the variants take, and what must stay as it was.

    A module whose tensors are replaced (`.to`, `.data =`, another submodule) is another one to a program
    that was bound to the old tensors; one that takes its weights with each call takes the new ones.
    """

    def __init__(
        self, module: torch.nn.Module, record: Weights | None, stored: Mapping[str, torch.Tensor]
    ) -> None:
        """Find the tensors.

        Args:
            module: that the artifact is attached to.
            record: of the artifact's weights.
            stored: the artifact's own, for what the module does not have by name: constants.
        """
        self._record = record.tensors if record is not None else {}
        self._places: dict[str, _Place] = {}
        for name in self._record:
            path, _, attribute = name.rpartition(".")
            owner = _submodule(module, path)
            for held in (owner._parameters, owner._buffers) if owner is not None else ():
                if held.get(attribute) is not None:
                    self._places[name] = held, attribute
        self._held: dict[str, Any] = {
            name: stored[name]
            for name, weight in self._record.items()
            if weight.role == "constant" and name not in self._places
        }
        self._parts = [
            (parent._modules, name, child)
            for parent in module.modules()
            for name, child in parent._modules.items()
            if child is not None
        ]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors in use, by name, without what autograd knows of them."""
        return {name: self._now(name).detach() for name in self._record}

    def reader(self, names: Sequence[str]) -> Callable[[], list[torch.Tensor]]:
        """Return a function that reads the tensors of these names, as they are by then."""
        places = [self._places.get(name, (self._held, name)) for name in names]

        def read() -> list[torch.Tensor]:
            return [held[name] for held, name in places]

        return read

    def keeps(self, names: Sequence[str]) -> Callable[[], str | None]:
        """Return a function that names the first of these tensors that is another than now."""
        seen = [
            (name, *self._places.get(name, (self._held, name)), self._now(name)) for name in names
        ]
        marks = [(*entry, entry[-1].data_ptr()) for entry in seen]
        parts = self._parts

        def changed() -> str | None:
            for held, key, part in parts:
                if held.get(key) is not part:
                    return key
            for name, held, key, tensor, address in marks:
                now = held.get(key)
                if now is not tensor or now.data_ptr() != address:
                    return name
            return None

        return changed

    def refusals(
        self, names: Sequence[str], trained: Sequence[bool] | None = None
    ) -> list[Refusal]:
        """Return what of the tensors is not as the artifact was built for, with both values.

        Args:
            names: of the weights that matter.
            trained: whether each asks for a gradient; not looked at where left out.
        """
        refused: list[Refusal] = []
        for i, name in enumerate(names):
            asks = None if trained is None else trained[i]
            refused += _differences(name, self._now(name), self._record[name], asks)
        return refused

    def check(self, where: str, device: torch.device) -> None:
        """Refuse a module with tensors that no variant could take.

        Raises:
            StateError: naming the first.
        """
        for name, weight in self._record.items():
            tensor = self._now(name)
            expected = f"{weight.dtype} {list(weight.shape)} on {device}"
            if not isinstance(tensor, torch.Tensor):
                raise StateError(f"{where}: {name}", found="no such tensor", expected=expected)
            if tensor.device != device:
                raise StateError(
                    f"{where}: {name}",
                    found=f"on {tensor.device}",
                    expected=expected,
                    tip=f"move the module there: module.to({str(device)!r})",
                )
            wrong = _differences(name, tensor, weight, None)
            if wrong:
                raise StateError(
                    f"{where}: {name}",
                    found=f"{describe(tensor)} ({wrong[0]})",
                    expected=expected,
                    tip="make the module as the artifact's spec does, or rebuild",
                )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Nothing replaces the weights but the module's owner."""
        yield

    @property
    def swapped(self) -> bool:
        """Whether there is a second set: never."""
        return False

    def replace(self, source: object, programs: object, module: object, where: str) -> None:
        """Refuse: the weights are the module's.

        Raises:
            StateError: always.
        """
        raise StateError(
            where,
            found="load_weights on an artifact that is attached to a module",
            expected="module.load_state_dict: the weights are the module's own",
        )

    def _now(self, name: str) -> Any:
        held, key = self._places.get(name, (self._held, name))
        return held.get(key)


def _submodule(module: torch.nn.Module, path: str) -> torch.nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def _differences(name: str, tensor: object, weight: Weight, asks: bool | None) -> list[Refusal]:
    """Return what of a tensor is not as its record says."""
    guard = f"weights.{name}"
    if not is_plain(tensor):
        return [Refusal(f"{guard}.type", f"{guard}.type: expected Tensor, found {kind_of(tensor)}")]
    facts: list[tuple[str, object, object]] = [
        ("dtype", weight.dtype, dtype_name(tensor.dtype)),
        ("shape", list(weight.shape), list(tensor.shape)),
    ]
    if facts[1][1] == facts[1][2]:
        dense = is_dense(weight.layout, tuple(tensor.shape), tensor.stride())
        facts.append(("layout", weight.layout, weight.layout if dense else tensor.stride()))
    if asks is not None:
        facts.append(("requires_grad", asks, tensor.requires_grad))
    return [
        Refusal(f"{guard}.{fact}", f"{guard}.{fact}: expected {expected}, found {found}")
        for fact, expected, found in facts
        if expected != found
    ]
