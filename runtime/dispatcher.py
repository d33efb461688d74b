"""The callable that `load` returns: the variant that is right for a call, or a visible miss."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch

from ..formats.manifest import Manifest
from . import devices, samples
from .alert import Alerter
from .binding import Binder, Lookup, compile_lookup, memo_key
from .by_size import BySize
from .choice import Choice, choose, find, survey
from .errors import MissError
from .miss import Explanation
from .observe import also_unshared
from .own_weights import OwnWeights
from .padding import Padded
from .program import Program, Tensors
from .setting import Read
from .state import State
from .stats import Counter, Stats
from .step import StepProgram
from .tensor_check import Compiled, TensorCheck, exact_check
from .weight_sets import Source, WeightSets

# Remembered for each signature, or twice as many as there are programs; all are dropped when there are more.
MAX_KEYS: Final = 4096
MAX_ENTRIES: Final = 8  # under one key: calls of the same sizes that differ in something else
SHOWN: Final = 64  # variants that a message names

FALLBACK: Final = "fallback"
RAISE: Final = "raise"

# A call that was accepted: what is the same in every such call, who answered, with which sizes.
Entry = tuple[TensorCheck, Program | StepProgram | Padded, dict[str, int]]


class Dispatcher:
    """A model, served from an artifact. Call it as the model itself is called.

    Each call goes to the first variant whose guards all hold. A call like one that was accepted before
    is recognised by its sizes and one exact check of its tensors; every other call has its guards
    evaluated one by one. Safe to call from many threads.

    Attributes:
        manifest: the artifact's table of contents.
        device: where the model runs; the calls' tensors are there.
        methods: a dispatcher for each method, by name; none for a model that is called itself.
    """

    methods: Mapping[str, "Dispatcher"] = MappingProxyType({})

    def __init__(
        self,
        manifest: Manifest,
        programs: Sequence[Program | StepProgram],
        embedded: Sequence[Program],
        *,
        fallback: Callable[..., Any] | None,
        on_miss: str,
        alerter: Alerter,
        weights: WeightSets | OwnWeights,
        state: State,
        device: torch.device,
        setting: Read,
        compiled: Compiled | None = None,
        attached: bool = False,
        owner: object = None,
    ) -> None:
        self.manifest = manifest
        self._attached = attached
        self.device = device
        self._programs = tuple(programs)
        self._libraries = tuple(program for program in programs if isinstance(program, Program))
        self._embedded = tuple(embedded)
        self._by_size = BySize(self._programs, manifest.signatures)
        self._fallback = fallback
        self._owner = (
            fallback if owner is None else owner
        )  # of the buffers that the fallback writes to
        self._on_miss = on_miss
        self._alerter = alerter
        self._weights = weights
        self._state = state
        self._setting = setting
        self._compiled = compiled
        self._binders = [Binder(signature, device) for signature in manifest.signatures]
        self._memos: list[dict[tuple[object, ...], tuple[Entry, ...]]] = [{} for _ in self._binders]
        facts = {guard.fact for program in programs for guard in program.guards}
        self._more = (torch.get_float32_matmul_precision,) if "matmul_precision" in facts else ()
        self._lookups: list[Lookup] = [
            compile_lookup(signature, memo, self._setting, self._more, device)
            for signature, memo in zip(manifest.signatures, self._memos, strict=True)
        ]
        self._lock = threading.Lock()
        self._served = {
            name: Counter() for name in ("fallback module", "embedded graph", "nothing")
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call.

        Raises:
            MissError: no variant accepts it, and there is no fallback for it or `on_miss="raise"`.
        """
        for lookup in self._lookups:
            try:
                found = lookup(*args, **kwargs)
            except Exception:  # not a call of this structure; the slow reading says why
                continue
            if found is not None:
                entries, tensors = found
                for check, program, dims in entries:
                    if check(*tensors):
                        program.hits.add()
                        return program.result(program.run(list(tensors)), tensors, dims)
        return self._first_call(args, kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Say which variant answers a call, or why each refuses it. Nothing is run or counted."""
        return self._choose(self._programs, args, kwargs)[1]

    def stats(self) -> Stats:
        """Return the counts since the artifact was loaded."""
        return Stats(
            hits={program.variant.id: program.hits.read() for program in self._programs},
            misses=self._alerter.counts(),
            fallbacks={name: counter.read() for name, counter in self._served.items()},
            padded={p.variant.id: p.padding.read() for p in self._programs if p.variant.pad},
            graphs={p.variant.id: p.graphs.read() for p in self._programs if p.graphs is not None},
        )

    def warmup(self) -> None:
        """Run each compiled variant on drawn values, so that no call pays for a first time.

        What each takes is measured: from then on a call that must be padded goes to the variant that
        is cheapest, not merely the next in size. The state of the model and of torch's random numbers
        stays as it is.
        """
        self._on_drawn_calls(lambda program, tensors: program.measure(tensors))

    def load_weights(self, source: Source) -> None:
        """Replace the weights, also while other threads call: each call sees the old or the new ones.

        The values are copied. The fallback module gets them too. The first time, memory for a second
        set is allocated, which later swaps use again.

        Args:
            source: a state_dict of the model, or the path of a safetensors file or of an artifact.

        Raises:
            StateError: a weight is missing or has another dtype or shape, or tied weights differ;
                nothing was replaced.
        """
        programs = (*self._libraries, *self._embedded)
        if self.device.type == "cuda" and not self._weights.swapped:
            # A library that takes no locks refuses to run on its second set of constants as long as
            # it has never run on the first.
            self._on_drawn_calls(lambda program, tensors: program.run(list(tensors)))
        self._weights.replace(source, programs, self._fallback, self.manifest.name)

    def state(self) -> Mapping[str, torch.Tensor]:
        """Return the buffers that the model writes to, by name: the tensors in use, not copies."""
        return dict(self._state.tensors)

    def _on_drawn_calls(self, use: Callable[[Program, Tensors], object]) -> None:
        """Use each compiled variant on drawn values; the model's state and random numbers stay."""

        def run() -> None:
            for program in self._libraries:
                call = samples.draw(self.manifest, program.variant, device=program.device)
                with torch.inference_mode():
                    use(program, call.tensors)

        with devices.keep_random_state(self.device):
            self._state.preserved(run)

    def _first_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        choice = find(self._binders, self._by_size, args, kwargs, self._setting())
        if choice is None:
            if self._by_size.padded:
                choice, explanation = self._choose(self._programs, args, kwargs)
            else:
                choice, explanation = survey(
                    self._binders, self._by_size, args, kwargs, self._setting()
                )
            if choice is None:
                return self._miss(explanation, args, kwargs)
        self._remember(choice)
        return choice.answer()

    def _choose(
        self,
        programs: Sequence[Program | StepProgram],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[Choice | None, Explanation]:
        return choose(self._binders, programs, args, kwargs, self._setting())

    def _remember(self, choice: Choice) -> None:
        """Let the next call like this one skip the guards."""
        index = choice.program.variant.signature
        signature = self.manifest.signatures[index]
        key = memo_key(signature, choice.tensors, self._setting(), self._more, self.device)
        with self._lock:
            memo = self._memos[index]
            entries = memo.get(key, ())
            if len(memo) >= max(MAX_KEYS, 2 * len(self._programs)) and not entries:
                memo.clear()
            if len(entries) < MAX_ENTRIES:
                check = exact_check(choice.tensors, self._compiled)
                written = choice.program.variant.written
                if written:
                    check = also_unshared(check, written)
                program = choice.program
                fits = (program.program if isinstance(program, Padded) else program).fits
                if self._attached:
                    check = _also(check, fits)
                memo[key] = (*entries, (check, choice.program, choice.dims))

    def _miss(
        self, explanation: Explanation, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        reason = explanation.reason
        if self._on_miss == FALLBACK:
            if self._fallback is not None:
                self._tell(explanation.guards, reason, "fallback module")
                return self._call_fallback(args, kwargs)
            choice, beyond = self._choose(self._embedded, args, kwargs)
            if choice is not None:
                self._tell(explanation.guards, reason, "embedded graph")
                with self._weights.reading():
                    return choice.answer()
            if self._embedded:
                reason = f"{reason}; the embedded graph: {beyond.reason}"
        self._tell(explanation.guards, reason, "nothing")
        named = [program.variant.id for program in self._programs[:SHOWN]]
        if len(self._programs) > SHOWN:
            named.append(f"{len(self._programs) - SHOWN} more")
        expected = f"a call for one of {', '.join(named)}"
        raise MissError(self.manifest.name, found=reason, expected=expected)

    def _call_fallback(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        assert self._fallback is not None
        with self._weights.reading():
            if not self._state.tensors:
                return self._fallback(*args, **kwargs)
            with self._state.lock:
                try:
                    return self._fallback(*args, **kwargs)
                finally:
                    self._state.collect(self._owner)

    def _tell(self, guards: str, reason: str, served_by: str) -> None:
        self._served[served_by].add()
        self._alerter.miss(guards, reason, served_by)


def _also(check: TensorCheck, fits: Callable[[], bool]) -> TensorCheck:
    """Return a check that also looks at the weights."""

    def checked(*tensors: torch.Tensor) -> bool:
        return check(*tensors) and fits()

    return checked
