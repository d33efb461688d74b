"""Weights that are replaced while calls are answered: one set in use, one spare.

New values are copied into the spare set, which nothing reads, and then each program is switched to it.
A call is answered by one program, so it sees the old weights or the new ones, never a mix. The spare is
allocated at the first swap and used from then on: the memory of a second set, whatever the number of
swaps. What is packed of it is packed anew by each swap.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..formats.container import Artifact
from ..formats.layout import strides_of
from ..formats.manifest import Weight, Weights
from . import devices
from . import weights as stored
from .errors import StateError
from .fallback import named_tensors
from .packing import PackedWeights
from .program import Program
from .state import State

Source = Mapping[str, torch.Tensor] | str | os.PathLike[str]


class WeightSets:
    """The weights of one loaded model."""

    def __init__(
        self, record: Weights | None, tensors: dict[str, torch.Tensor], state: State
    ) -> None:
        self._record = record
        self._current = tensors
        self._spare: dict[str, torch.Tensor] | None = None
        self._state = state
        self._swapping = threading.Lock()
        self._readers = 0
        self._idle = threading.Condition()

    @property
    def swapped(self) -> bool:
        """Whether the weights have been replaced before."""
        return self._spare is not None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the weights as they are while something reads them in more than one step."""
        with self._idle:
            self._readers += 1
        try:
            yield
        finally:
            with self._idle:
                self._readers -= 1
                self._idle.notify_all()

    def replace(self, source: Source, programs: Sequence[Program], module: Any, where: str) -> None:
        """Take new weights into use; see Dispatcher.load_weights."""
        if self._record is None:
            return
        with self._swapping:
            given = _read(source)
            new = _checked(given, self._record, self._current, where)
            first = self._spare is None
            if self._spare is None:
                self._spare = _like(self._current, self._record, self._state.tensors)
            # Readers of the set in use stay on it; the ones that a former swap left on this set end.
            with self._idle:
                self._idle.wait_for(lambda: self._readers == 0)
                self._finish()  # calls that were made before the last swap may still be running
                for name, tensor in new.items():
                    if name not in self._state.tensors:
                        self._spare[name].copy_(tensor)
                self._finish()
                packed = PackedWeights(self._spare)
                for program in programs:
                    if first or program.variant.packed:
                        program.bind_spare(packed)
                # A call that uses state holds its lock: it sees neither weights nor state alone replaced.
                with self._state.lock, torch.no_grad():
                    for program in programs:
                        program.flip()
                    for name, tensor in self._state.tensors.items():
                        tensor.copy_(new[name])
                    _load(module, new)
            self._current, self._spare = self._spare, self._current

    def _finish(self) -> None:
        """Wait until the device has done all that was asked of it."""
        for device in {tensor.device for tensor in self._current.values()}:
            devices.synchronize(device)


def _read(source: Source) -> Mapping[str, torch.Tensor]:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    if path.suffix == ".tcb":
        with Artifact(path) as artifact:
            return stored.load(artifact)
    from safetensors.torch import load_file  # nobody who swaps no weights waits for it

    return load_file(path)


def _checked(
    given: Mapping[str, torch.Tensor],
    record: Weights,
    current: Mapping[str, torch.Tensor],
    where: str,
) -> dict[str, torch.Tensor]:
    """Return a tensor for each weight, or refuse the whole.

    Names that the variants do not use are ignored. Constants that are in no state_dict keep their
    value where they are not given.
    """
    new = {}
    for name, weight in record.tensors.items():
        tensor = _given(name, given, record.aliases)
        if tensor is None and weight.role == "constant":
            tensor = current[name]
        if tensor is None:
            expected = f"{weight.dtype} {list(weight.shape)}"
            raise StateError(f"{where}: {name}", found="no such tensor", expected=expected)
        made = Weight(dtype=stored.dtype_name(tensor.dtype), shape=tuple(tensor.shape))
        if (made.dtype, made.shape) != (weight.dtype, tuple(weight.shape)):
            raise StateError(
                f"{where}: {name}",
                found=stored.describe(tensor),
                expected=f"{weight.dtype} {list(weight.shape)}",
            )
        new[name] = tensor.detach()
    for name, other in record.aliases.items():
        if name in given and not torch.equal(given[name], new[other]):
            raise StateError(
                f"{where}: {name}",
                found=f"other values than {other!r}",
                expected="the same tensor: the two are tied in the model that was built",
            )
    return new


def _given(
    name: str, given: Mapping[str, torch.Tensor], aliases: Mapping[str, str]
) -> torch.Tensor | None:
    """Return what is given for a weight, under its own name or that of one it is tied to."""
    stored = aliases.get(name, name)
    tied = (other for other, target in aliases.items() if target == stored)
    return next((given[other] for other in (name, stored, *tied) if other in given), None)


def _like(
    current: Mapping[str, torch.Tensor], record: Weights, state: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Allocate a second set, tied where the first is; the state is not doubled."""
    made: dict[str, torch.Tensor] = {}
    for name, weight in record.tensors.items():
        if name in state:
            made[name] = current[name]
        elif name not in record.aliases:
            shape = tuple(weight.shape)
            now = current[name]
            strides = strides_of(weight.layout, shape)
            made[name] = torch.empty_strided(shape, strides, dtype=now.dtype, device=now.device)
    for name, other in record.aliases.items():
        made.setdefault(name, made[other])
    return made


def _load(module: Any, new: Mapping[str, torch.Tensor]) -> None:
    """Copy the new weights into the fallback module, whose callers wait."""
    if not isinstance(module, torch.nn.Module):
        return
    own = named_tensors(module)
    for name, tensor in new.items():
        if name in own and own[name].data_ptr() != tensor.data_ptr():
            own[name].detach().copy_(tensor)
