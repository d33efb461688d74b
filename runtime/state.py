"""The buffers that a model writes to: one set, shared by all variants and by the fallback module."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..formats.variant import Variant

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]


class State:
    """The state of one loaded model.

    Calls that write to it, or to their own inputs, run one behind the other; so do those of a variant
    that only reads, as a weight, what another one writes to.

    Attributes:
        tensors: the buffers by name; every program writes to these in place.
        lock: held while a call that writes is running.
    """

    def __init__(self, variants: Iterable[Variant], weights: Mapping[str, torch.Tensor]) -> None:
        names = dict.fromkeys(name for variant in variants for name in variant.state)
        self.tensors = {name: weights[name] for name in names}
        self.lock = threading.RLock()

    def around(self, variant: Variant, run: Run) -> Run:
        """Return `run` with the state passed behind the call's tensors; itself where there is none.

        Torch is told of each tensor that was written to, so that a gradient that needs the old value
        is refused, as it is in eager.
        """
        state = [self.tensors[name] for name in variant.state]
        if not (state or variant.written):
            return self._reading(run) if self._reads(variant) else run

        def stateful(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
            with self.lock:
                made = run([*tensors, *state])
            for tensor in (*(tensors[i] for i in variant.written), *state):
                if not tensor.is_inference():
                    torch.autograd.graph.increment_version(tensor)
            return made

        return stateful

    def _reads(self, variant: Variant) -> bool:
        return not self.tensors.keys().isdisjoint(variant.constants.values())

    def _reading(self, run: Run) -> Run:
        def locked(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
            with self.lock:
                return run(tensors)

        return locked

    def attach(self, module: Any) -> None:
        """Let a module use these very tensors as its buffers.

        What it has under these names was found to be equal. A module that puts another tensor in the
        place of its buffer is brought back by `collect`.
        """
        for owner, attribute, tensor in self._places(module):
            owner._buffers[attribute] = tensor

    def collect(self, module: Any) -> None:
        """Take over what a module has put in the place of its buffers while it answered a call."""
        for owner, attribute, tensor in self._places(module):
            current = owner._buffers[attribute]
            if current is not tensor and current is not None:
                tensor.copy_(current)
                owner._buffers[attribute] = tensor

    def preserved(self, run: Callable[[], object]) -> None:
        """Run something and put the state back as it was."""
        with self.lock:
            before = {name: tensor.clone() for name, tensor in self.tensors.items()}
            run()
            for name, tensor in before.items():
                self.tensors[name].copy_(tensor)

    def _places(self, module: Any) -> list[tuple[torch.nn.Module, str, torch.Tensor]]:
        places = []
        for name, tensor in self.tensors.items():
            path, _, attribute = name.rpartition(".")
            owner = module.get_submodule(path) if isinstance(module, torch.nn.Module) else None
            if owner is not None and attribute in owner._buffers:
                places.append((owner, attribute, tensor))
        return places
