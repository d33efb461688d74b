"""Calls whose tensors are moved to the device that a model is on, and their results back."""

from collections.abc import Callable
from typing import Any

import torch

Storage = torch.UntypedStorage


class Mover:
    """Moves values to a device: tensors keep their strides, and those that share memory still do.

    Attributes:
        moved: for each storage by its address, that storage and the one on the device.
    """

    def __init__(self, device: str | torch.device) -> None:
        self._device = device
        self.moved: dict[int, tuple[Storage, Storage]] = {}

    def __call__(self, value: Any) -> Any:
        """Return a tensor, or a container of them, on the device; a gradient flows back through it."""
        if isinstance(value, torch.Tensor):
            return value.to(self._device) if value.requires_grad else self._tensor(value)
        if isinstance(value, dict):
            return type(value)((key, self(item)) for key, item in value.items())
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, list | tuple):
            return type(value)(map(self, value))
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.moved:
            new = torch.empty(storage.nbytes(), dtype=torch.uint8, device=self._device)
            self.moved[storage.data_ptr()] = storage, new.copy_(_bytes(storage)).untyped_storage()
        made = torch.empty(0, dtype=tensor.dtype, device=self._device)
        other = self.moved[storage.data_ptr()][1]
        return made.set_(other, tensor.storage_offset(), tensor.shape, tensor.stride())


class Placed:
    """A model on a device, called with tensors that are elsewhere as if it were there.

    What it writes into its inputs is written into the caller's, and results that share their memory
    share the caller's. All else is the model's own: `stats`, `named_parameters`.
    """

    def __init__(self, model: Callable[..., Any], device: str) -> None:
        self._model = model
        self._device = device

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        there, back = Mover(self._device), Mover("cpu")
        args, kwargs = there((args, kwargs))
        made = self._model(*args, **kwargs)
        for given, moved in there.moved.values():
            _bytes(given).copy_(_bytes(moved))
            back.moved[moved.data_ptr()] = moved, given
        return back(made)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _bytes(storage: Storage) -> torch.Tensor:
    """Return all of a storage as uint8."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
