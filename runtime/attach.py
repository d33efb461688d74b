"""An artifact behind a module's own `forward`: the module keeps its weights, and trains with them."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from ..formats.container import Artifact
from ..formats.variant import LIBRARY, STEP, Variant
from . import devices, extension, fallback, host, operators, program, setting, step
from . import weights as stored
from .alert import Alert, Alerter, logger
from .cuda_graphs import GraphOptions
from .dispatcher import FALLBACK, RAISE, Dispatcher
from .errors import StateError
from .own_weights import OwnWeights
from .packing import PackedWeights
from .state import State


def attach(
    module: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    on_miss: str = FALLBACK,
    on_alert: Callable[[Alert], None] | None = None,
    check_weights: bool = True,
    weights: str | os.PathLike[str] | None = None,
) -> Dispatcher:
    """Let an artifact answer the calls of a module, and the module itself those that it has no variant for.

    The programs use the module's own parameters and buffers, whatever values they have: an optimizer that
    writes to them, or `load_state_dict`, changes what the next call computes. `module(...)` runs the
    module's hooks as ever; `module.train()`, `module.eval()` and `torch.no_grad()` decide which variant
    answers. A copy of the module (`copy.deepcopy`) has nothing attached.

    Args:
        module: made as the artifact's spec makes it; where its weights are is where it runs.
        path: of the `.tcb` file.
        on_miss: as for `load`.
        on_alert: as for `load`.
        check_weights: as for `load`; of the artifact's weights only constants are used.
        weights: as for `load`; without constants no such file is needed.

    Returns:
        What answers the calls, for its `stats` and `explain`.

    Raises:
        StateError: the module has an artifact already, or has other weights, in form or place, or other
            plain values than the artifact was built for.
        FormatError, HostError, LibraryError, OperatorError, ValueError: as `load`.
    """
    if on_miss not in (FALLBACK, RAISE):
        message = f"on_miss: found {on_miss!r}, expected {FALLBACK!r} or {RAISE!r}"
        raise ValueError(message)
    if isinstance(vars(module).get("forward"), _Forward):
        raise StateError(
            type(module).__name__,
            found="a module that has an artifact attached",
            expected="one that has none",
            tip="call tcbuild.runtime.detach(module) first",
        )
    with Artifact(path) as artifact:
        manifest = artifact.manifest
        if manifest.entries != ("",):
            raise StateError(
                path,
                found=f"an artifact of the methods {', '.join(manifest.entries)}",
                expected="one of the model's own call",
                tip="serve it with tcbuild.runtime.load",
            )
        place = devices.indexed(_device(module))
        variants = operators.known(host.usable(manifest, place, str(path)), str(path))
        variants = _following(
            [variant for variant in variants if variant.form in (LIBRARY, STEP)], str(path)
        )
        record = manifest.weights
        listed = {} if record is None else record.tensors
        constants = [name for name, weight in listed.items() if weight.role == "constant"]
        loaded = stored.load(artifact, check=check_weights, file=weights, only=constants)
        own = OwnWeights(module, record, loaded)
        own.check(f"module for {manifest.name}", place)
        fallback.check_frozen(module, manifest)
        tensors = own.tensors()
        packed = PackedWeights(tensors)
        state = State(variants, tensors)
        alerter = Alerter(manifest.name, on_alert)
        graphs = GraphOptions(alerter=alerter)
        compiled = extension.tensor_check(artifact, place)
        programs: list[program.Program | step.StepProgram] = []
        for variant in variants:
            if variant.form == STEP:
                programs.append(step.load(variant, artifact, tensors, own, state, place, compiled))
                continue
            one = program.load(variant, artifact, packed, state, place, graphs)
            one.changed = own.keeps((*variant.constants.values(), *variant.state))
            programs.append(one)
    eager = module.forward
    dispatcher = Dispatcher(
        manifest,
        programs,
        [],
        fallback=eager,
        on_miss=on_miss,
        alerter=alerter,
        weights=own,
        state=state,
        device=place,
        setting=setting.reader(manifest, module, training=False),
        compiled=compiled,
        attached=True,
    )
    had = "forward" in vars(module)
    module.forward = _Forward(dispatcher, module, eager if had else None)
    return dispatcher


def detach(module: torch.nn.Module) -> None:
    """Let a module answer its calls itself again; nothing is done where nothing is attached."""
    forward = vars(module).get("forward")
    if isinstance(forward, _Forward):
        if forward.before is None:
            del module.forward
        else:
            module.forward = forward.before


class _Forward:
    """The `forward` of a module that has an artifact attached.

    Attributes:
        before: what the module itself had in place of its class's `forward`, if anything.
    """

    def __init__(
        self, dispatcher: Dispatcher, module: torch.nn.Module, before: Callable[..., Any] | None
    ) -> None:
        self._dispatcher = dispatcher
        self._module = module
        self.before = before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._dispatcher(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return what the copy of the module calls: its own weights are not the ones attached to."""
        copy = memo.get(id(self._module))
        if copy is None:
            raise TypeError(
                "a module with an artifact attached is copied as a whole, or detached first"
            )
        return type(copy).forward.__get__(copy)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a module with an artifact attached is not pickled: detach it first")


def _following(variants: Sequence[Variant], where: str) -> list[Variant]:
    """Return the variants that read the weights where they are: packed copies would go stale.

    Raises:
        StateError: there are none.
    """
    kept = [variant for variant in variants if not variant.packed]
    if variants and not kept:
        raise StateError(
            where,
            found="variants with packed weights only, which do not follow a module's own",
            expected="one that reads the weights where they are",
            tip="rebuild with [build] pack_weights = false, or load() it",
        )
    for variant in variants:
        if variant.packed:
            logger.warning(
                "%s: left out of what is attached: packed weights do not follow a module's own; "
                "build with [build] pack_weights = false",
                variant.id,
            )
    return kept


def _device(module: torch.nn.Module) -> torch.device:
    for held in (*module.parameters(), *module.buffers()):
        return held.device
    return torch.device("cpu")
