"""Training steps, in a fresh process, against the model's own gradients in eager and in float64.

The rule is that of numerics.py, for outputs, gradients and buffers of two calls in a row, and for the
weights after some steps of an optimizer. Where random numbers show, there is nothing to compare with: the
loss must then change along the gradient as the gradient says.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from ..formats.manifest import Manifest
from ..formats.signature import Signature
from ..formats.tree import arguments, flatten
from ..formats.variant import STEP, Variant
from . import structure
from .call_mode import CallMode
from .numerics import SUMMED, Verdict, equal, judge
from .placement import Placement, call_on
from .spec import Call

STEPS: Final = 20  # of the optimizer
PART: Final = 1e-3  # of the weights' own size that one of them moves
SLOPE: Final = 0.1  # how far a difference may be from what the gradient says, as a part of it
TRIES: Final = 4  # to see random numbers in what eager makes

Tensors = dict[str, torch.Tensor]
Sizes = Callable[[Variant], Sequence[Mapping[str, int]]]
Judged = tuple[str, Mapping[str, int], str, Verdict]  # variant, sizes, what, verdict


class StepCheck:
    """The check of all training steps of an artifact."""

    def __init__(
        self, manifest: Manifest, placement: Placement, inputs: Callable[..., Call], sizes: Sizes
    ) -> None:
        """Prepare the calls.

        Args:
            manifest: of the artifact.
            placement: of the model.
            inputs: makes calls of it, from a variant's identifier and sizes.
            sizes: at which a variant is checked.
        """
        self._trials = [
            _Trial(manifest, variant, placement, inputs, dims, last=dims == chosen[-1])
            for variant in manifest.variants
            if variant.form == STEP
            for chosen in [sizes(variant)]
            for dims in chosen
        ]

    def __bool__(self) -> bool:
        return bool(self._trials)

    def write(self, folder: Path) -> None:
        """Write what the fresh process reads; see runtime/replay_step.py."""
        requests = [trial.write(folder, str(i)) for i, trial in enumerate(self._trials)]
        (folder / "steps.json").write_text(json.dumps(requests), encoding="utf-8")

    def compare(self, folder: Path, tolerance: float) -> Iterator[Judged]:
        """Hold what came out against the model's own."""
        for i, trial in enumerate(self._trials):
            made = load_file(folder / f"step-{i}.safetensors")
            for what, verdict in trial.compare(made, tolerance):
                yield trial.variant.id, trial.dims, what, verdict


class _Trial:
    """One step at certain sizes."""

    def __init__(
        self,
        manifest: Manifest,
        variant: Variant,
        placement: Placement,
        inputs: Callable[..., Call],
        dims: Mapping[str, int],
        *,
        last: bool,
    ) -> None:
        self.variant = variant
        self.dims = dims
        self._signature: Signature = manifest.signatures[variant.signature]
        self._model = placement.on(variant.device)
        call = call_on(inputs(variant.id, dims), self._model, variant.device)
        leaves = structure.leaves(self._model.forward, call)
        self._inputs = [structure.dense(t.detach()) for t in leaves if isinstance(t, torch.Tensor)]
        assert variant.step is not None
        self._asked = [i for i in variant.step.trained if i < len(self._inputs)]
        self._tangents: Tensors = {}
        self._eager = self._twice()
        again = [self._twice() for _ in range(TRIES - 1)] if self._draws else [self._eager]
        self._random = {
            key
            for key, value in self._eager.items()
            if any(not equal(value, a[key]) for a in again)
        }
        self._steps = STEPS if last and not self._random else 0
        self._rate = self._moderate() if self._steps else 0.0

    def write(self, folder: Path, number: str) -> dict[str, Any]:
        """Write the call; return what the fresh process is told of it."""
        given = {str(i): tensor for i, tensor in enumerate(self._inputs)} | self._tangents
        name = f"step-in-{number}.safetensors"
        save_file(
            {k: v.detach().cpu().contiguous().clone() for k, v in given.items()}, folder / name
        )
        told = {"id": number, "variant": self.variant.id, "inputs": name}
        return {**told, "rate": self._rate, "steps": self._steps}

    def compare(self, made: Tensors, tolerance: float) -> Iterator[tuple[str, Verdict]]:
        """Yield a verdict for each thing that was made."""
        with _in_double():
            exact = self._twice(wide=True)
        eager = self._eager
        if self._steps:
            eager = eager | self._trained()
            with _in_double():
                exact |= self._trained(wide=True)
        for key, value in eager.items():
            number, _, what = key.partition("/")
            if key not in made:
                yield what, Verdict(problem="the artifact's step does not have it")
            elif key in self._random:
                form = (made[key].shape, made[key].dtype) != (value.shape, value.dtype)
                problem = f"{made[key].dtype} {list(made[key].shape)}" if form else ""
                if number == "1":
                    yield what, Verdict(eager=math.inf, allowed=math.inf, problem=problem)
            else:
                summed = SUMMED if what.startswith(("gradient ", "weight ")) else 1
                verdict = judge(made[key], value.cpu(), exact[key].cpu(), tolerance, summed)
                words = {"1": what, "2": f"{what} (second call)"}
                if number != "2" or verdict.problem:
                    yield words.get(number, f"{what} after {self._steps} steps"), verdict
        if self._random and "slope/apart" in made:
            yield "slope", _slope(float(made["slope/apart"]), float(made["slope/expected"]))

    def _twice(self, *, wide: bool = False) -> Tensors:
        """Return what two calls of a copy of the model make, by the names of replay_step.py."""
        found: Tensors = {}
        self._draws = False
        with self._own(wide=wide) as model:
            for number in (1, 2):
                before = self._random_state()
                leaves, given = self._backward(model, wide=wide)
                self._draws |= not torch.equal(before, self._random_state())
                paths = [path for path, _ in self._signature.tensors()]
                for path, leaf in leaves.items():
                    found[f"{number}/{path}"] = leaf.detach()
                for i in self._asked:
                    found[f"{number}/gradient {paths[i]}"] = _grad(given[i])
                for name, weight in model.named_parameters():
                    if weight.requires_grad:
                        found[f"{number}/gradient {name}"] = _grad(weight)
                    weight.grad = None
                assert self.variant.step is not None
                for name, buffer in model.named_buffers():
                    if name in self.variant.step.weights:
                        found[f"{number}/buffer {name}"] = buffer.detach().clone()
        return found

    def _random_state(self) -> torch.Tensor:
        """Return the state of the random numbers that the model draws."""
        on_cuda = self.variant.device == "cuda"
        return torch.cuda.get_rng_state() if on_cuda else torch.get_rng_state()

    def _trained(self, *, wide: bool = False) -> Tensors:
        with self._own(wide=wide) as model:
            some = [weight for weight in model.parameters() if weight.requires_grad]
            if not some:
                return {}
            optimizer = torch.optim.SGD(some, lr=self._rate)
            for _ in range(self._steps):
                optimizer.zero_grad()
                self._backward(model, wide=wide)
                optimizer.step()
            assert self.variant.step is not None
            return {
                f"trained/weight {name}": weight.detach().clone()
                for name, weight in model.named_parameters()
                if name in self.variant.step.weights
            }

    def _own(self, *, wide: bool) -> "_Copy":
        return _Copy(self._model, CallMode.of(self.variant), wide=wide)

    def _backward(
        self, model: torch.nn.Module, *, wide: bool
    ) -> tuple[Tensors, list[torch.Tensor]]:
        """Call a model, forward and backward; return its outputs and what it was given."""
        given = []
        for i, tensor in enumerate(self._inputs):
            own = tensor.clone(memory_format=torch.preserve_format)
            own = _double(own) if wide else own
            given.append(own.requires_grad_() if i in self._asked else own)
        args, kwargs = arguments(self._signature, given)
        made = dict(flatten(model(*args, **kwargs), self.variant.outputs, "output"))
        leaves = {path: leaf for path, leaf in made.items() if isinstance(leaf, torch.Tensor)}
        if not self._tangents:
            noise = torch.Generator().manual_seed(0)
            for path, leaf in leaves.items():
                if leaf.requires_grad:
                    drawn = torch.randn(leaf.shape, generator=noise)
                    self._tangents[path] = drawn.to(leaf.device, leaf.dtype)
        parts = [
            (leaves[path] * (_double(tangent) if wide else tangent)).sum()
            for path, tangent in self._tangents.items()
        ]
        torch.stack([part.double() for part in parts]).sum().backward()  # type: ignore[no-untyped-call]
        return leaves, given

    def _moderate(self) -> float:
        """Return a rate at which a step moves the weights by a small part of their size."""
        gradients = [v for k, v in self._eager.items() if k.startswith("1/gradient ")]
        size = _norm([p for p in self._model.parameters() if p.requires_grad])
        length = _norm(gradients)
        return float(f"{PART * size / length:.3g}") if length and size else 1e-3


@contextmanager
def _in_double() -> Iterator[None]:
    """Let what has no dtype of its own be in float64, in the whole process."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


class _Copy:
    """A copy of the model in a mode, in double precision where asked for."""

    def __init__(self, model: torch.nn.Module, mode: CallMode, *, wide: bool) -> None:
        self._model = copy.deepcopy(model)
        if wide:
            self._model = self._model.double()
        self._mode = mode
        self._stack = ExitStack()

    def __enter__(self) -> torch.nn.Module:
        self._stack.enter_context(self._mode.on(self._model))
        return self._model

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _slope(apart: float, expected: float) -> Verdict:
    error, allowed = abs(apart - expected), SLOPE * abs(expected)
    problem = ""
    if not error <= allowed:
        problem = f"along the gradient the loss changes by {apart:.4g}, which says {expected:.4g}"
    return Verdict(error=error, allowed=allowed, problem=problem)


def _grad(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.detach().clone()


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(tensor.detach().double().square().sum()) for tensor in tensors))
