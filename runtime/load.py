"""From a file to a callable: check the host, map the weights, load the libraries, bind, dispatch."""

import contextlib
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import torch

from ..formats.container import Artifact
from ..formats.errors import ManifestError
from ..formats.manifest import Manifest
from ..formats.variant import GRAPH, LIBRARY, STEP, Variant
from . import devices, extension, host, memory, operators, program, setting
from . import fallback as fallbacks
from . import weights as stored
from .alert import Alert, Alerter
from .cuda_graphs import GraphOptions
from .dispatcher import FALLBACK, RAISE, Dispatcher
from .errors import StateError
from .methods import Method, Methods
from .packing import PackedWeights
from .state import State
from .tensor_check import Compiled
from .weight_sets import WeightSets

D = TypeVar("D", bound=Dispatcher)

# Above so many variants each library is opened by the first call that needs it: 10,000 of them would be
# most of a minute.
DEFERRED: Final = 256


def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    fallback: Callable[..., Any] | None = None,
    on_miss: str = FALLBACK,
    on_alert: Callable[[Alert], None] | None = None,
    check_weights: bool = True,
    borrow_inputs: bool = False,
    borrow_outputs: bool = False,
    training: bool = False,
    weights: str | os.PathLike[str] | None = None,
    keep_freed: bool = True,
) -> Dispatcher:
    """Load an artifact. Starts no compiler, and writes nothing but the unpack cache.

    An artifact of a model with several methods gives a `methods.Methods`: `model.prefill(...)`.

    Of more than DEFERRED variants each library is opened by its first call, or by `warmup`: the file stays
    open for that, and an error of a library comes then.

    Args:
        path: of the `.tcb` file.
        device: where to run: "cpu", "cuda:1"; where left out, the kind of device that the artifact is
            for. On CUDA the calls' tensors, the weights and the fallback module are on that GPU.
        fallback: what answers a call that no variant accepts: the module that the artifact was built
            from, with the same weights. Buffers that the model writes to are shared with it. Without
            it the embedded graph answers, where it can.
        on_miss: "fallback", or "raise" to get a MissError for each such call.
        on_alert: called with an Alert for each miss.
        check_weights: hold all weights against their checksum; False leaves pages unread until used.
        borrow_inputs: the caller keeps its tensors and writes new values into them: a CUDA graph then
            reads them where they are, instead of from copies.
        borrow_outputs: what a CUDA graph returns is valid until the next call, which overwrites it:
            it is then not copied.
        training: whether to answer as the model does in training mode, by the variants that were built
            for that; a fallback module has a mode of its own, which counts instead.
        weights: path of the safetensors file with the weights, of an artifact that has them in a file of
            their own; where left out, it is beside the artifact.

        keep_freed: on the CPU, let this process keep up to 1 GiB of memory that it frees for the next
            call, in place of giving it back to the system (memory.py).

    Raises:
        FormatError: the file is malformed, or one part of several, or the file with the weights is
            missing or another one; nothing of it has been run.
        HostError: it has no variant for this machine, torch version or device, or none for one of the
            methods.
        StateError: the fallback module has other weights, is on another device, or has other values
            among its attributes and the globals that its code reads; or all variants are training steps.
        LibraryError: a library does not load.
        OperatorError: a custom operator that the model calls is not registered here.
        ValueError: `on_miss` is neither of the two.
    """
    if on_miss not in (FALLBACK, RAISE):
        message = f"on_miss: found {on_miss!r}, expected {FALLBACK!r} or {RAISE!r}"
        raise ValueError(message)
    with contextlib.ExitStack() as opened:
        artifact = opened.enter_context(Artifact(path))
        manifest = artifact.manifest
        if manifest.shard is not None:
            raise ManifestError(
                path,
                found=f"{manifest.shard}, by itself",
                expected="a whole artifact",
                tip="join the parts with: tcbuild merge PART... -o FILE",
            )
        place = devices.choose(manifest, device)
        if keep_freed and place.type == "cpu":
            memory.keep_freed()
        variants = [
            variant
            for entry in manifest.entries
            for variant in host.usable(
                manifest.of(entry), place, f"{path}: {entry}" if entry else str(path)
            )
        ]
        variants = operators.known(variants, str(path))
        _need_inference(variants, str(path))
        tensors = stored.load(artifact, place, check=check_weights, file=weights)
        state = State(variants, tensors)
        if fallback is not None:
            fallbacks.check(fallback, manifest, tensors)
            fallbacks.check_methods(fallback, manifest)
            state.attach(fallback)
        alerter = Alerter(manifest.name, on_alert)
        packed = PackedWeights(tensors)
        graphs = GraphOptions(
            borrow_inputs=borrow_inputs, borrow_outputs=borrow_outputs, alerter=alerter
        )
        defer = len(variants) > DEFERRED
        loaded = {
            variant.id: program.load(variant, artifact, packed, state, place, graphs, defer=defer)
            for variant in variants
            if variant.form != STEP  # steps need a module whose weights they train: see attach
        }
        for name in packed.packed_only() if not defer else ():
            tensors.forget(name)  # a miss that the graph answers reads it again
        sets = WeightSets(manifest.weights, tensors, state)
        serve = partial(
            _dispatcher,
            loaded=loaded,
            module=fallback,
            on_miss=on_miss,
            weights=sets,
            state=state,
            training=training,
            compiled=extension.tensor_check(artifact, place),
            device=place,
        )
        if manifest.entries == ("",):
            dispatcher = serve(Dispatcher, manifest, alerter, fallback)
        else:
            dispatcher = Methods(
                manifest,
                {
                    entry: serve(
                        Method,
                        manifest.of(entry),
                        Alerter(f"{manifest.name}.{entry}", on_alert),
                        None if fallback is None else getattr(fallback, entry),
                    )
                    for entry in manifest.entries
                },
                fallback=fallback,
                on_miss=on_miss,
                alerter=alerter,
                weights=sets,
                state=state,
                device=place,
            )
        if defer:
            weakref.finalize(dispatcher, opened.pop_all().close)
        return dispatcher


def _dispatcher(
    kind: type[D],
    manifest: Manifest,
    alerter: Alerter,
    fallback: Callable[..., Any] | None,
    *,
    loaded: Mapping[str, program.Program],
    module: Callable[..., Any] | None,
    on_miss: str,
    weights: WeightSets,
    state: State,
    training: bool,
    compiled: Compiled | None,
    device: torch.device,
) -> D:
    """Return what dispatches the calls of a model or, where the manifest is of one, of a method."""
    own = [loaded[variant.id] for variant in manifest.variants if variant.id in loaded]
    return kind(
        manifest,
        [program for program in own if program.variant.form == LIBRARY],
        [program for program in own if program.variant.form == GRAPH],
        fallback=fallback,
        owner=module,
        on_miss=on_miss,
        alerter=alerter,
        weights=weights,
        state=state,
        device=device,
        setting=setting.reader(manifest, module, training=training),
        compiled=compiled,
    )


def _need_inference(variants: Sequence[Variant], where: str) -> None:
    if not any(variant.form == LIBRARY for variant in variants):
        raise StateError(
            where,
            found="training steps only",
            expected="a variant for calls that record no gradients",
            tip="train with it: tcbuild.runtime.attach(module, path); or build it with "
            "[training] inference = true",
        )
