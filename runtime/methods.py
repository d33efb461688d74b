"""A model with several methods: a dispatcher for each, over one set of weights and one state."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import torch

from ..formats.manifest import Manifest
from . import setting
from .alert import Alerter
from .dispatcher import Dispatcher
from .errors import StateError
from .miss import Explanation
from .program import Program, Tensors
from .state import State
from .stats import Stats
from .weight_sets import Source, WeightSets


class Method(Dispatcher):
    """One method of a model; its weights are the model's."""

    def load_weights(self, source: Source) -> None:
        """Refuse: weights are replaced for all methods at once.

        Raises:
            StateError: always.
        """
        raise StateError(
            f"{self.manifest.name}: load_weights",
            found="a call for one method",
            expected="one for the model, whose methods have the same weights",
            tip="call load_weights of what tcbuild.runtime.load has returned",
        )


class Methods(Dispatcher):
    """A model, served from an artifact with several methods: `model.prefill(...)`.

    Call it as the model itself where `forward` is among them. Weights, and the buffers that the model
    writes to, are common to all.
    """

    def __init__(
        self,
        manifest: Manifest,
        methods: Mapping[str, Method],
        *,
        fallback: Callable[..., Any] | None,
        on_miss: str,
        alerter: Alerter,
        weights: WeightSets,
        state: State,
        device: torch.device,
    ) -> None:
        super().__init__(
            manifest,
            [],
            [],
            fallback=fallback,
            on_miss=on_miss,
            alerter=alerter,
            weights=weights,
            state=state,
            device=device,
            setting=setting.reader(manifest, fallback, training=False),
        )
        self.methods = dict(methods)
        self._libraries = tuple(chain.from_iterable(one._libraries for one in methods.values()))
        self._embedded = tuple(chain.from_iterable(one._embedded for one in methods.values()))

    def __getattr__(self, name: str) -> Dispatcher:
        methods: Mapping[str, Dispatcher] = self.__dict__.get("methods", {})
        if name in methods:
            return methods[name]
        raise AttributeError(
            f"{self.manifest.name} has no method {name!r}; it has {', '.join(methods)}"
            if methods
            else name
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call of the model itself, where `forward` is among its methods.

        Raises:
            StateError: it is not.
            MissError: as of a Dispatcher.
        """
        return self._forward()(*args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Say what becomes of a call of the model itself; ask a method for its own."""
        return self._forward().explain(*args, **kwargs)

    def stats(self) -> Stats:
        """Return the counts of all methods; `model.prefill.stats()` has those of one."""
        every = {name: one.stats() for name, one in self.methods.items()}
        return Stats(
            hits={id: count for one in every.values() for id, count in one.hits.items()},
            misses={
                f"{name}: {guards}": count
                for name, one in every.items()
                for guards, count in one.misses.items()
            },
            fallbacks={
                who: sum(one.fallbacks[who] for one in every.values())
                for who in dict.fromkeys(who for one in every.values() for who in one.fallbacks)
            },
            padded={id: waste for one in every.values() for id, waste in one.padded.items()},
            graphs={id: held for one in every.values() for id, held in one.graphs.items()},
        )

    def _forward(self) -> Dispatcher:
        if "forward" not in self.methods:
            first = next(iter(self.methods))
            raise StateError(
                self.manifest.name,
                found="a call of the model itself",
                expected=f"one of its methods: {', '.join(self.methods)}",
                tip=f"call model.{first}(...); or build [methods.forward], too",
            )
        return self.methods["forward"]

    def _on_drawn_calls(self, use: Callable[[Program, Tensors], object]) -> None:
        for method in self.methods.values():
            method._on_drawn_calls(use)
