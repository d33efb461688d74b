"""`python -m tcbuild.runtime.replay FILE FOLDER`: answer given calls in a fresh process.

The builder's check of an artifact. `FOLDER/requests.json` lists calls:

    {"id": "0", "variant": ID, "dims": {"seq": 128}, "seed": 0, "inputs": "0.safetensors" or null}

For each, `result-ID.safetensors` gets the tensors of the call (`input/0`, ...), and of the answers:
`first` and `second` from the artifact, `eager` and `again` from the graph that the variant was compiled
from, `exact` from the same graph in double precision; each followed by `/` and the path of the leaf.
`result-ID.json` gets `answered_by` and, by the same names, the leaves that are no tensors.
`error.json` gets the error that stopped it, where there was one of ours.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ..formats.container import Artifact
from ..formats.errors import TcbuildError
from ..formats.tree import arguments, flatten
from ..formats.variant import Variant
from . import graph_source, samples, weights
from .dispatcher import Dispatcher
from .exact import DoublePrecision, double
from .load import load
from .program import Program


def main(argv: list[str]) -> int:
    """Answer the requests; return the exit code."""
    path, folder = Path(argv[0]), Path(argv[1])
    try:
        model = load(path, on_miss="raise")
        requests = json.loads((folder / "requests.json").read_text(encoding="utf-8"))
        with Artifact(path) as artifact, torch.inference_mode():
            tensors = weights.load(artifact)
            variants = {variant.id: variant for variant in artifact.manifest.variants}
            for request in requests:
                variant = variants[request["variant"]]
                _answer(model, artifact, variant, tensors, request, folder)
    except TcbuildError as error:
        record = {"class": type(error).__name__, "exit_code": error.exit_code}
        record |= {"problem": error.problem, "where": error.where, "tip": error.tip}
        record |= {"found": error.found, "expected": error.expected}
        (folder / "error.json").write_text(json.dumps(record), encoding="utf-8")
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _answer(
    model: Dispatcher,
    artifact: Artifact,
    variant: Variant,
    stored: Mapping[str, torch.Tensor],
    request: Mapping[str, Any],
    folder: Path,
) -> None:
    signature = model.manifest.signatures[variant.signature]
    call = samples.draw(model.manifest, variant, request["dims"], seed=request["seed"])
    inputs = call.tensors
    if request["inputs"] is not None:
        saved = load_file(folder / request["inputs"])
        inputs = tuple(
            samples.in_layout(saved[str(leaf.index)], leaf.layout)
            for _, leaf in signature.tensors()
        )
    args, kwargs = arguments(signature, inputs)
    answers = {"first": model(*args, **kwargs), "second": model(*args, **kwargs)}
    if variant.reference is not None:
        constants = {slot: stored[name] for slot, name in variant.constants.items()}
        graph = graph_source.load(artifact, variant.reference, constants)
        program = Program(variant, lambda tensors: graph(*tensors))
        answers["eager"] = program(inputs, call.dims)
        answers["again"] = program(inputs, call.dims)
        wide = {slot: double(tensor) for slot, tensor in constants.items()}
        exact = graph_source.load(artifact, variant.reference, wide)
        with DoublePrecision():  # type: ignore[no-untyped-call]
            program = Program(variant, lambda tensors: exact(*tensors))
            answers["exact"] = program(tuple(map(double, inputs)), call.dims)
    out = {f"input/{i}": tensor for i, tensor in enumerate(inputs)}
    values: dict[str, object] = {}
    for name, answer in answers.items():
        for path, leaf in flatten(answer, variant.outputs, "output"):
            if isinstance(leaf, torch.Tensor):
                out[f"{name}/{path}"] = leaf
            else:
                values[f"{name}/{path}"] = repr(leaf)
    saved = {key: tensor.detach().contiguous().clone() for key, tensor in out.items()}
    save_file(saved, folder / f"result-{request['id']}.safetensors")
    record = {"answered_by": model.explain(*args, **kwargs).variant, "values": values}
    (folder / f"result-{request['id']}.json").write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
