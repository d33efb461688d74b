"""`python -m tcbuild.runtime.replay_step FILE FOLDER`: train with an artifact in a fresh process.

The builder's check of training steps. `FOLDER/steps.json` lists calls:

    {"id": "0", "variant": ID, "inputs": "0.safetensors", "rate": 0.01, "steps": 20}

The file has the call's tensors by number, and by path the gradient of each output. A module that has the
artifact's weights and nothing else gets it attached. Each call is made twice in a row, forward and
backward; then, from fresh weights, `steps` times with an optimizer step of `rate` behind each. All but the
second call is done by one thread: where several add to one number, as to the gradient of an embedding, they do
so in any order, and what was found would never be found again.
`step-ID.safetensors` gets `1/output['x']` for what came out of the first call, `1/gradient NAME` for a
weight or an input, `1/buffer NAME`, and `trained/weight NAME` after the last step; `slope/...` has, by the same seed of random numbers, the
loss a little to either side along the gradient, and what the gradient says of the difference.
`FOLDER/imports.json` and `error.json` are as for `replay`.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
from safetensors.torch import load_file, save_file

from ..formats.container import Artifact
from ..formats.errors import TcbuildError
from ..formats.guard import MODULE
from ..formats.manifest import Weights
from ..formats.provider import bring_in
from ..formats.training import ALL
from ..formats.tree import arguments, flatten
from ..formats.variant import Variant
from . import devices, threads, weights
from .attach import attach
from .samples import in_layout

Tensors = Mapping[str, torch.Tensor]

REACH: Final = 1e-2  # of a step along the gradient, as a part of the weights' own size


class Skeleton(torch.nn.Module):
    """A module that has weights, and nothing that it could do with them."""

    def forward(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the artifact answers.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError


def skeleton(variant: Variant, stored: Tensors, record: Weights | None) -> Skeleton:
    """Return a module with the stored weights of a step, tied as they are, set as the step expects it."""
    assert variant.step is not None
    module, made = Skeleton(), dict[str, torch.nn.Parameter | torch.Tensor]()
    roles = {name: w.role for name, w in record.tensors.items()} if record is not None else {}
    aliases = record.aliases if record is not None else {}
    count = len(variant.step.gradients) - len(variant.step.weights)
    for i, name in enumerate(variant.step.weights):
        if roles[name] == "constant":
            continue
        path, _, attribute = name.rpartition(".")
        owner, first = _part(module, path), aliases.get(name, name)
        if first not in made:
            tensor = stored[name].clone(memory_format=torch.preserve_format)
            asks = count + i in variant.step.trained
            is_parameter = roles[name] == "parameter"
            made[first] = torch.nn.Parameter(tensor, requires_grad=asks) if is_parameter else tensor
        tensor = made[first]
        if isinstance(tensor, torch.nn.Parameter):
            owner.register_parameter(attribute, tensor)
        else:
            owner.register_buffer(attribute, tensor)
    expected = next(
        str(g.expected) for g in variant.guards if g.subject == MODULE and g.fact == "training"
    )
    module.train()
    for path in expected.removeprefix(ALL).removeprefix(" but ").split(", "):
        if path:
            _part(module, path).training = False
    return module


def _part(module: torch.nn.Module, path: str) -> torch.nn.Module:
    """Return a submodule, made where there is none."""
    for name in path.split(".") if path else ():
        if name not in module._modules:
            module.add_module(name, Skeleton())
        made = module._modules[name]
        assert made is not None
        module = made
    return module


class _Trial:
    """A step of one request."""

    def __init__(
        self, artifact: Artifact, file: str | None, request: Mapping[str, Any], folder: Path
    ) -> None:
        manifest = artifact.manifest
        self._path, self._file = artifact.path, file
        self.variant = next(v for v in manifest.variants if v.id == request["variant"])
        device = devices.choose(manifest, self.variant.device)
        self._record = manifest.weights
        self._stored = weights.load(artifact, device, file=file)
        given = load_file(folder / request["inputs"])
        signature = manifest.signatures[self.variant.signature]
        assert self.variant.step is not None
        self._inputs = {
            path: in_layout(given[str(leaf.index)], leaf.layout).to(device)
            for path, leaf in signature.tensors()
        }
        self._asked = [
            path for path, leaf in signature.tensors() if leaf.index in self.variant.step.trained
        ]
        self._tangents = {k: v.to(device) for k, v in given.items() if not k.isdigit()}
        self._signature = signature
        self._request = request
        self._threads = torch.get_num_threads()

    def fresh(self) -> Skeleton:
        module = skeleton(self.variant, self._stored, self._record)
        attach(module, self._path, on_miss="raise", weights=self._file)
        return module

    def loss(self, module: Skeleton, kept: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
        """Call the module; return the sum of the outputs, each times what its gradient is to be."""
        tensors = {}
        for path, tensor in self._inputs.items():
            own = tensor.clone(memory_format=torch.preserve_format)
            tensors[path] = own.requires_grad_() if path in self._asked else own
        args, kwargs = arguments(self._signature, tuple(tensors.values()))
        made = dict(flatten(module(*args, **kwargs), self.variant.outputs, "output"))
        leaves = {k: leaf for k, leaf in made.items() if isinstance(leaf, torch.Tensor)}
        if kept is not None:
            kept |= leaves | {f"input {path}": tensors[path] for path in self._asked}
        parts = [(leaves[path] * tangent).sum() for path, tangent in self._tangents.items()]
        total: torch.Tensor = torch.stack([part.double() for part in parts]).sum()
        return total

    def twice(self) -> dict[str, torch.Tensor]:
        """Return what two calls in a row have made."""
        module, found = self.fresh(), {}
        for number in (1, 2):
            kept: dict[str, torch.Tensor] = {}
            with threads.limited_to(1 if number == 1 else self._threads):
                self.loss(module, kept).backward()  # type: ignore[no-untyped-call]
            for path, leaf in kept.items():
                if path.startswith("input "):
                    name = path.removeprefix("input ")
                    found[f"{number}/gradient {name}"] = _grad(leaf)
                else:
                    found[f"{number}/{path}"] = leaf
            for name, weight in module.named_parameters():
                if weight.requires_grad:
                    found[f"{number}/gradient {name}"] = _grad(weight)
                weight.grad = None
            for name, buffer in module.named_buffers():
                found[f"{number}/buffer {name}"] = buffer.clone()
        return found

    def trained(self) -> dict[str, torch.Tensor]:
        """Return the weights after some steps."""
        module = self.fresh()
        some = [weight for weight in module.parameters() if weight.requires_grad]
        if not some:
            return {}
        optimizer = torch.optim.SGD(some, lr=self._request["rate"])
        for _ in range(self._request["steps"]):
            optimizer.zero_grad()
            self.loss(module).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return {f"trained/weight {name}": weight for name, weight in module.named_parameters()}

    def slope(self) -> dict[str, torch.Tensor]:
        """Return the loss to either side along the gradient, and how far apart they should be."""
        module = self.fresh()
        some = [weight for weight in module.parameters() if weight.requires_grad]
        if not some:
            return {}
        before = [weight.detach().clone() for weight in module.buffers()]
        self._seeded(module).backward()  # type: ignore[no-untyped-call]
        along = [_grad(weight) for weight in some]
        length = _norm(along)
        if not length:
            return {}
        reach = REACH * _norm(some) / length
        sides = []
        for sign in (1, -2):
            with torch.no_grad():
                for buffer, value in zip(module.buffers(), before, strict=True):
                    buffer.copy_(value)
                for weight, gradient in zip(some, along, strict=True):
                    weight.add_(gradient, alpha=sign * reach)
            sides.append(self._seeded(module).detach())
        apart = torch.tensor(2 * reach * length * length, dtype=torch.float64)
        return {"slope/apart": sides[0] - sides[1], "slope/expected": apart}

    def _seeded(self, module: Skeleton) -> torch.Tensor:
        torch.manual_seed(0)
        return self.loss(module)


def _grad(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.detach().clone()


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(tensor.detach().double().square().sum()) for tensor in tensors))


def main(argv: list[str]) -> int:
    """Make the calls; return the exit code."""
    path, folder, file = Path(argv[0]), Path(argv[1]), argv[2] if argv[2:] else None
    try:
        requests = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
        bring_in(json.loads((folder / "imports.json").read_text(encoding="utf-8")))
        with Artifact(path) as artifact:
            for request in requests:
                trial = _Trial(artifact, file, request, folder)
                found = trial.twice()
                with threads.limited_to(1):
                    found |= trial.slope()
                    if request["steps"]:
                        found |= trial.trained()
                plain = {k: v.detach().cpu().contiguous().clone() for k, v in found.items()}
                save_file(plain, folder / f"step-{request['id']}.safetensors")
    except TcbuildError as error:
        record = {"class": type(error).__name__, "exit_code": error.exit_code}
        record |= {"problem": error.problem, "where": error.where, "tip": error.tip}
        record |= {"found": error.found, "expected": error.expected}
        (folder / "error.json").write_text(json.dumps(record), encoding="utf-8")
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
