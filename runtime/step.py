"""A training step that is loaded: forward and backward behind one autograd function."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..formats.container import Artifact
from ..formats.guard import HOST, MODULE
from ..formats.layout import axes
from ..formats.step import Step, Tangent
from ..formats.variant import BACKWARD, Variant
from . import library_files, setting
from .aoti import Library
from .errors import LibraryError
from .miss import Refusal
from .own_weights import OwnWeights
from .program import LIBRARY_FILE, Tensors, placed, result
from .state import State
from .stats import Counter, Waste
from .tensor_check import Compiled, TensorCheck, exact_check


class StepProgram:
    """A variant for training steps, with the weights of the module that it is attached to.

    Attributes:
        variant, guards, setting_guards, device, graphs, hits, padding, seconds, result: as of a Program.
    """

    def __init__(
        self,
        variant: Variant,
        forward: Library,
        backward: Library,
        weights: OwnWeights,
        state: State,
        device: torch.device,
        compiled: Compiled | None,
    ) -> None:
        assert variant.step is not None
        self.variant = variant
        self.device = device
        self.graphs = None
        self.guards = tuple(
            placed(guard, device) for guard in variant.guards if guard.subject not in (HOST, MODULE)
        )
        self.setting_guards = setting.guards(variant)
        self.hits = Counter()
        self.padding = Waste()
        self.seconds: float | None = None
        self.result = result(variant.outputs)
        self._step = variant.step
        self._weights = weights
        self._read = weights.reader(variant.step.weights)
        count = len(variant.step.gradients) - len(variant.step.weights)
        self._trained = [count + i in variant.step.trained for i in range(len(self._step.weights))]
        self._check: TensorCheck | None = None
        self._compiled = compiled
        self._function = _Programs(variant.step, forward, backward, state)

    def fits(self) -> bool:
        """Return whether the weights are as in a call that was accepted."""
        return self._check is not None and self._check(*self._read())

    def refusals(self) -> list[Refusal]:
        """Return what of the weights is not as the artifact was built for."""
        refused = self._weights.refusals(self._step.weights, self._trained)
        if not refused:
            self._check = exact_check(self._read(), self._compiled)
        return refused

    def run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Answer a call that the guards have accepted; gradients flow back from what is returned."""
        flat = [*tensors, *self._read()]
        views: dict[int, torch.Tensor] = {}
        made = iter(_Function.apply(self._function, views, *flat))  # type: ignore[no-untyped-call]
        results: list[torch.Tensor] = []
        for i, one in enumerate(self._step.results):
            if one.view_of is None:
                results.append(next(made))
            else:
                view = views[i]
                results.append(
                    flat[one.view_of].as_strided(view.shape, view.stride(), view.storage_offset())
                )
        return results

    def __call__(self, tensors: Tensors, dims: Mapping[str, int]) -> Any:
        """Answer a call that the guards have accepted, in the model's own types."""
        return self.result(self.run(list(tensors)), tensors, dims)


def load(
    variant: Variant,
    artifact: Artifact,
    tensors: Mapping[str, torch.Tensor],
    weights: OwnWeights,
    state: State,
    device: torch.device,
    compiled: Compiled | None,
) -> StepProgram:
    """Load a training step; its host guards have been checked.

    Raises:
        FormatError: a section is not the one that was recorded.
        LibraryError: a library does not load, or needs other constants than the manifest says.
    """
    assert variant.step is not None
    files = library_files.place(artifact, variant.files)
    forward, backward = (Library(files[name], device) for name in (LIBRARY_FILE, BACKWARD))
    forward.bind({slot: tensors[name] for slot, name in variant.constants.items()})
    backward.bind({slot: tensors[name] for slot, name in variant.step.backward_constants.items()})
    return StepProgram(variant, forward, backward, weights, state, device, compiled)


class _Programs:
    """Forward and backward as an autograd function calls them."""

    def __init__(self, step: Step, forward: Library, backward: Library, state: State) -> None:
        self.step = step
        self.lock = state.lock
        self._run_forward = forward.run
        self._run_backward = backward.run
        written = {write.input for write in step.writes}
        self._kept = [of in written for of in step.shares]

    def forward(
        self, flat: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return all values of a call and, of them, those that the backward takes."""
        inputs = [tensor.detach() for tensor in flat]
        if not self.step.writes:
            return self._values(inputs)
        with self.lock:
            values, saved = self._values(inputs)
            # What is about to be overwritten, as it was.
            saved = [s.clone() if kept else s for s, kept in zip(saved, self._kept, strict=True)]
            for write in self.step.writes:
                flat[write.input].copy_(values[write.value])
        return values, saved

    def _values(self, inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        values = [*inputs, *self._run_forward(inputs)]
        try:
            return values, [values[i] for i in self.step.saved]
        except IndexError:
            found = f"{len(values) - len(inputs)} outputs"
            raise LibraryError(
                "forward", found=found, expected="those that its record says"
            ) from None

    def backward(
        self, saved: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Return the gradient of each input."""
        ready = [_laid_out(tangents[tangent.result], tangent) for tangent in self.step.tangents]
        made = self._run_backward([*saved, *ready])
        return [None if i is None else made[i] for i in self.step.gradients]


class _Function(torch.autograd.Function):
    """A call of a step, as autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any, programs: _Programs, views: dict[int, torch.Tensor], *flat: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        step = programs.step
        values, saved = programs.forward(flat)
        given = len(flat)
        # The callers' own tensors, so that autograd notices when they are written to.
        taken = [
            flat[i] if i < given and not kept else s
            for i, s, kept in zip(step.saved, saved, programs._kept, strict=True)
        ]
        ctx.programs = programs
        ctx.count = len(taken)
        results = []
        ctx.at = []
        for i, one in enumerate(step.results):
            value = values[one.value]
            if one.view_of is None:
                ctx.at.append(i)
                results.append(value)
            else:
                views[i] = value
        fixed = [
            values[r.value] for r in step.results if r.view_of is None and not r.differentiable
        ]
        ctx.mark_non_differentiable(*fixed)
        watched = [flat[i] if i < given else values[i] for i in step.watched]
        ctx.save_for_backward(*taken, *watched)
        return tuple(results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors[: ctx.count]
        tangents = dict(zip(ctx.at, gradients, strict=True))
        made = ctx.programs.backward([tensor.detach() for tensor in saved], tangents)
        return None, None, *made


def _laid_out(tensor: torch.Tensor, tangent: Tangent) -> torch.Tensor:
    """Return a gradient in the layout that the backward was compiled for; itself where it has it."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    order = axes(tangent.layout, tensor.dim())
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(back)
