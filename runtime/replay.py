"""`python -m tcbuild.runtime.replay FILE FOLDER [WEIGHTS]`: answer given calls in a fresh process.

The builder's check of an artifact. `FOLDER/requests.json` lists calls:

    {"id": "0", "variant": ID, "dims": {"seq": 128}, "seed": 0, "inputs": "0.safetensors" or null,
     "strided": true}

Each call is made twice in a row, from fresh state, by `artifact`; `eager` and, once more, `again`,
the graph that the variant was compiled from; `exact`, the same graph in double precision; `rounded`, the
same with products of bfloat16, where the variant makes them so; and, where a
call is padded, by `noise`: the variant with noise in the padding. With "strided" it is also made once
for each input tensor by the artifact, with a part of a larger tensor in its place: `strided/N/...`
for tensor N has what came out, and is left out where the call was refused. A graph whose result depends on
the order in which threads come is run by one thread, but for the second call of `artifact` and `noise`.
`FOLDER/imports.json` has the modules to import first, by name, with their files.
`result-ID.safetensors` gets the tensors, as `eager/1/output['x']`: who, which call, which leaf. Besides
the outputs that is `written x` for an input and `state x` for a buffer that the model writes to.
`result-ID.json` gets `answered_by` and, by the same names, the leaves that are no tensors.
`error.json` gets the error that stopped it, where there was one of ours.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from ..formats.container import Artifact
from ..formats.errors import TcbuildError
from ..formats.precision import BF16
from ..formats.provider import bring_in
from ..formats.signature import Signature
from ..formats.tree import arguments, flatten
from ..formats.variant import Variant
from . import devices, samples, threads, weights
from .dispatcher import Dispatcher
from .errors import MissError
from .exact import DoublePrecision, double
from .graph_source import Graph
from .load import load
from .packing import PackedWeights
from .padding import Padded
from .program import Program
from .program import load as load_program
from .rounded import RoundedProducts
from .state import State

# How often a graph that draws random numbers is run to see which of its results they are in: a dropout
# of a few elements drops the same ones now and then.
RANDOM_TRIES: Final = 16

# Operators that put numbers where there are others: several threads do so in another order each time.
UNORDERED: Final = ("index_add", "index_put", "index_reduce", "scatter")

Tensors = tuple[torch.Tensor, ...]
Weights = Mapping[str, torch.Tensor]


def main(argv: list[str]) -> int:
    """Answer the requests; return the exit code."""
    path, folder, file = Path(argv[0]), Path(argv[1]), argv[2] if argv[2:] else None
    try:
        requests = json.loads((folder / "requests.json").read_text(encoding="utf-8"))
        bring_in(json.loads((folder / "imports.json").read_text(encoding="utf-8")))
        with Artifact(path) as artifact:
            loaded = _Loaded(artifact, file)
            for request in requests:
                replay = _Replay(artifact, loaded, request)
                with torch.enable_grad() if replay.variant.grad else torch.inference_mode():
                    replay.answer(folder)
    except TcbuildError as error:
        record = {"class": type(error).__name__, "exit_code": error.exit_code}
        record |= {"problem": error.problem, "where": error.where, "tip": error.tip}
        record |= {"found": error.found, "expected": error.expected}
        (folder / "error.json").write_text(json.dumps(record), encoding="utf-8")
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


class _Loaded:
    """An artifact on each kind of device that it is for: the model, and weights of its own."""

    def __init__(self, artifact: Artifact, file: str | None) -> None:
        self._artifact = artifact
        self._file = file
        self._models: dict[torch.device, Dispatcher] = {}
        self._weights: dict[torch.device, Weights] = {}

    def model(self, device: torch.device, entry: str) -> Dispatcher:
        if device not in self._models:
            self._models[device] = self._load(device)
        return _method(self._models[device], entry)

    def fresh(self, device: torch.device, entry: str, *, training: bool = False) -> Dispatcher:
        """Load it anew."""
        return _method(self._load(device, training=training), entry)

    def _load(self, device: torch.device, *, training: bool = False) -> Dispatcher:
        path, file = self._artifact.path, self._file
        return load(path, device=device, on_miss="raise", training=training, weights=file)

    def weights(self, device: torch.device) -> Weights:
        if device not in self._weights:
            self._weights[device] = weights.load(self._artifact, device, file=self._file)
        return self._weights[device]


class _Replay:
    """One request."""

    def __init__(self, artifact: Artifact, loaded: _Loaded, request: Mapping[str, Any]) -> None:
        variants = {variant.id: variant for variant in artifact.manifest.variants}
        self._artifact = artifact
        self._loaded = loaded
        self._request = request
        self.variant: Variant = variants[request["variant"]]
        self._device = devices.choose(artifact.manifest, self.variant.device)
        self._stored = loaded.weights(self._device)
        self.signature: Signature = artifact.manifest.signatures[self.variant.signature]
        self._model = loaded.model(self._device, self.variant.entry)
        self._renew()
        self._leaves: dict[str, object] = {}
        reference = self.variant.reference
        source = "" if reference is None else artifact.text(reference)
        self._unordered = any(name in source for name in UNORDERED)

    def _renew(self) -> None:
        """Load the artifact again where calls leave something behind, or in training mode."""
        training = self.variant.training
        if self.variant.state or training:
            entry = self.variant.entry
            self._model = self._loaded.fresh(self._device, entry, training=training)

    def answer(self, folder: Path) -> None:
        """Answer the request and write what came out."""
        request, name = self._request, f"result-{self._request['id']}"
        call = samples.draw(
            self._artifact.manifest,
            self.variant,
            request["dims"],
            seed=request["seed"],
            device=self._device,
        )
        inputs = call.tensors
        if request["inputs"] is not None:
            saved = load_file(folder / request["inputs"])
            inputs = tuple(
                samples.in_layout(saved[str(leaf.index)], leaf.layout).to(self._device)
                for _, leaf in self.signature.tensors()
            )
        args, kwargs = arguments(self.signature, inputs)
        explanation = self._model.explain(*args, **kwargs)
        self._twice("artifact", self._by_model, inputs, self._model.state())
        if request["strided"]:
            self._strided(inputs)
        if self.variant.pad:
            self._twice("noise", self._by_noise(call.dims), inputs, {})
        if self.variant.reference is not None:
            self._by_eager(self.variant.reference, inputs, call.dims)
            with DoublePrecision():  # type: ignore[no-untyped-call]
                self._by_graph("exact", self.variant.reference, inputs, call.dims, _wide)
            if self.variant.fp32_precision == BF16:
                with RoundedProducts():  # type: ignore[no-untyped-call]
                    self._by_graph(
                        "rounded", self.variant.reference, inputs, call.dims, torch.clone
                    )
        tensors = {key: t for key, t in self._leaves.items() if isinstance(t, torch.Tensor)}
        tensors |= {f"input/{i}": tensor for i, tensor in enumerate(inputs)}
        plain = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
        save_file(plain, folder / f"{name}.safetensors")
        values = {key: repr(v) for key, v in self._leaves.items() if key not in tensors}
        record = {"answered_by": explanation.variant, "values": values}
        (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")

    def _strided(self, inputs: Tensors) -> None:
        """Answer with one tensor at a time in a layout that nothing was compiled for, where accepted."""
        for number, tensor in enumerate(inputs):
            self._renew()
            given = tuple(_copy(other) for other in inputs)
            given = (*given[:number], _spread(tensor), *given[number + 1 :])
            try:
                result = self._by_model(given)
            except MissError:
                continue
            self._keep(f"strided/{number}", result, given, self._model.state())

    def _by_model(self, inputs: Tensors) -> Any:
        args, kwargs = arguments(self.signature, inputs)
        return self._model(*args, **kwargs)

    def _by_noise(self, dims: Mapping[str, int]) -> Callable[[Tensors], Any]:
        """Answer by the variant, with noise wherever the padding may hold anything."""
        loaded = load_program(
            self.variant,
            self._artifact,
            PackedWeights(self._stored),
            State([], {}),
            self._device,
        )
        noise = torch.Generator().manual_seed(1)
        padded = Padded(loaded, self.signature, dims, noise)
        return lambda tensors: padded.result(padded.run(list(tensors)), tensors, dims)

    def _by_eager(self, source: str, inputs: Tensors, dims: Mapping[str, int]) -> None:
        """Answer by the graph as `eager`, and as `again`: otherwise wherever random numbers show."""
        before = devices.random_state(self._device)
        self._by_graph("eager", source, inputs, dims, torch.clone)
        after = devices.random_state(self._device)
        tries = 1 if all(map(torch.equal, before, after)) else RANDOM_TRIES
        shown: dict[str, object] = {}
        for _ in range(tries):
            self._by_graph("again", source, inputs, dims, torch.clone)
            for key in [key for key in self._leaves if key.startswith("again/")]:
                eager = self._leaves[f"eager/{key.removeprefix('again/')}"]
                if key not in shown or not _differ(shown[key], eager):
                    shown[key] = self._leaves[key]
        self._leaves.update(shown)

    def _by_graph(
        self,
        who: str,
        source: str,
        inputs: Tensors,
        dims: Mapping[str, int],
        convert: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """Answer by the graph, with weights and state made from the stored ones."""
        names = {*self.variant.constants.values(), *self.variant.state}
        own = {name: convert(self._stored[name]) for name in names}
        constants = {slot: own[name] for slot, name in self.variant.constants.items()}
        state = State([self.variant], own)
        graph = Graph(self._artifact, source, constants)
        program = Program(self.variant, graph, state, self._device)
        given = tuple(map(convert, inputs))
        self._twice(who, lambda tensors: program(tensors, dims), given, state.tensors)

    def _twice(
        self, who: str, answer: Callable[[Tensors], Any], inputs: Tensors, state: Weights
    ) -> None:
        many = torch.get_num_threads()
        for number in (1, 2):
            given = tuple(_copy(tensor) for tensor in inputs)
            # What the first call is found to be is kept, and must be found again.
            alone = self._unordered and (number == 1 or who not in ("artifact", "noise"))
            with threads.limited_to(1 if alone else many):
                result = answer(given)
            self._keep(f"{who}/{number}", result, given, state)

    def _keep(self, who: str, result: object, given: Tensors, state: Weights) -> None:
        leaves = dict(flatten(result, self.variant.outputs, "output"))
        paths = [path for path, _ in self.signature.tensors()]
        leaves |= {f"written {paths[i]}": given[i] for i in self.variant.written}
        leaves |= {f"state {name}": state[name] for name in self.variant.state}
        for path, leaf in leaves.items():
            self._leaves[f"{who}/{path}"] = _copy(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _method(model: Dispatcher, entry: str) -> Dispatcher:
    return model.methods[entry] if entry else model


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, whatever mode is active."""
    return tensor.detach().clone(memory_format=torch.preserve_format)


def _differ(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return not torch.equal(one, other)
    return False


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor whose elements lie apart in memory, along its last axis of several."""
    axis = max((axis for axis, size in enumerate(tensor.shape) if size > 1), default=None)
    if axis is None:
        return _copy(tensor)
    shape = list(tensor.shape)
    shape[axis] *= 2
    apart = [slice(None)] * tensor.dim()
    apart[axis] = slice(None, None, 2)
    spread = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    return spread[tuple(apart)].copy_(tensor)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return double(tensor).clone()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
