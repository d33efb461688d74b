"""From a file to a callable: check the host, map the weights, load the libraries, bind, dispatch."""

import os
from collections.abc import Callable
from typing import Any

import torch

from ..formats.container import Artifact
from ..formats.variant import GRAPH, LIBRARY
from . import fallback as fallbacks
from . import host, operators, program, setting, weights
from .alert import Alert, Alerter
from .dispatcher import FALLBACK, RAISE, Dispatcher
from .errors import HostError
from .state import State
from .weight_sets import WeightSets


def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device = "cpu",
    fallback: Callable[..., Any] | None = None,
    on_miss: str = FALLBACK,
    on_alert: Callable[[Alert], None] | None = None,
    check_weights: bool = True,
    training: bool = False,
) -> Dispatcher:
    """Load an artifact. Starts no compiler, and writes nothing but the unpack cache.

    Args:
        path: of the `.tcb` file.
        device: where to run.
        fallback: what answers a call that no variant accepts: the module that the artifact was built
            from, with the same weights. Buffers that the model writes to are shared with it. Without
            it the embedded graph answers, where it can.
        on_miss: "fallback", or "raise" to get a MissError for each such call.
        on_alert: called with an Alert for each miss.
        check_weights: hold all weights against their checksum; False leaves pages unread until used.
        training: whether to answer as the model does in training mode, by the variants that were built
            for that; a fallback module has a mode of its own, which counts instead.

    Raises:
        FormatError: the file is malformed; nothing of it has been run.
        HostError: it has no variant for this machine, torch version or device.
        StateError: the fallback module has other weights, or other values among its attributes
            and the globals that its code reads.
        LibraryError: a library does not load.
        OperatorError: a custom operator that the model calls is not registered here.
        ValueError: `on_miss` is neither of the two.
    """
    if on_miss not in (FALLBACK, RAISE):
        message = f"on_miss: found {on_miss!r}, expected {FALLBACK!r} or {RAISE!r}"
        raise ValueError(message)
    with Artifact(path) as artifact:
        manifest = artifact.manifest
        variants = host.usable(manifest, str(path))
        if torch.device(device).type != "cpu":
            raise HostError(path, found=f"device {str(device)!r}", expected="'cpu'")
        operators.check(variants, str(path))
        tensors = weights.load(artifact, check=check_weights)
        state = State(variants, tensors)
        if fallback is not None:
            fallbacks.check(fallback, manifest, tensors)
            state.attach(fallback)
        loaded = [program.load(variant, artifact, tensors, state) for variant in variants]
    return Dispatcher(
        manifest,
        [program for program in loaded if program.variant.form == LIBRARY],
        [program for program in loaded if program.variant.form == GRAPH],
        fallback=fallback,
        on_miss=on_miss,
        alerter=Alerter(manifest.name, on_alert),
        weights=WeightSets(manifest.weights, tensors, state),
        state=state,
        setting=setting.reader(manifest, fallback, training=training),
    )
