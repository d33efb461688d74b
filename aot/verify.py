"""Every variant, in a fresh process, through the runtime, against eager and against float64.

The rule: a variant's error against a float64 reference is at most twice eager's own error, plus a few
rounding steps of the output's dtype at the size of its largest value (STEPS). Errors are largest
absolute differences over an output. Integers and booleans must be eager's or the reference's.
"""

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ..formats.bucket import Range
from ..formats.container import Artifact
from ..formats.manifest import Manifest
from ..formats.sizes import served
from ..formats.tree import StructureError, flatten
from ..formats.variant import LIBRARY, Variant
from . import structure
from .errors import VerifyError, relayed
from .spec import Call

Inputs = Callable[[Mapping[str, int]], Call]

# Eager adds long sums pairwise; Inductor's C++ adds up to 4,096 terms one behind the other before it
# does, which is right and rounds more: a mean over 512 tokens was 5 steps off where eager was 1. In 16
# bits one step is much more than that, since both add in float32.
STEPS = {torch.float32: 16, torch.float64: 16, torch.complex64: 16, torch.complex128: 16}

REVISION = 3  # raise it when the rule changes: checks that passed before are then done again

_OTHER = "the captured graph is not the model, which has"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One output of one variant at one size.

    Attributes:
        variant: its identifier.
        sizes: the call's sizes.
        output: the path of the output.
        error: largest absolute difference to float64.
        eager: the same of eager.
        allowed: what the rule allows.
        problem: empty where the row passes, else what is wrong, in words.
    """

    variant: str
    sizes: str
    output: str
    error: float = 0.0
    eager: float = 0.0
    allowed: float = 0.0
    problem: str = ""


def verify(
    path: str | os.PathLike[str],
    *,
    module: torch.nn.Module | None = None,
    inputs: Inputs | None = None,
    tune: Mapping[str, int] | None = None,
    tolerance: float = 2.0,
) -> tuple[Row, ...]:
    """Check every variant of an artifact.

    Args:
        path: of the artifact.
        module: the model; without it, the graph that each variant was compiled from stands for it.
        inputs: makes calls of given sizes for `module`; without it, values are drawn as the artifact
            says.
        tune: further sizes to check at, by dimension, besides the ends of each range.
        tolerance: how many times eager's own error is allowed.

    Returns:
        One row for each variant, size and output; `problem` says which do not pass.

    Raises:
        VerifyError: the fresh process fails.
        TcbuildError: the artifact is malformed, or what the runtime says of it in the fresh process, with
            the exit code of the runtime's own error: it is for another host, a library does not load.
    """
    with Artifact(path) as artifact, tempfile.TemporaryDirectory(prefix="tcbuild-") as name:
        artifact.check()
        folder = Path(name)
        requests = list(_requests(artifact.manifest, tune or {}))
        calls = [
            _save_inputs(module, request, inputs, folder) if module and inputs else None
            for request in requests
        ]
        (folder / "requests.json").write_text(json.dumps(requests), encoding="utf-8")
        _replay(path, folder)
        rows: list[Row] = []
        for request, call in zip(requests, calls, strict=True):
            variant = next(v for v in artifact.manifest.variants if v.id == request["variant"])
            model = None
            if module is not None and call is not None:
                with torch.no_grad():
                    model = module(*call[0], **call[1])
            rows.extend(_compare(variant, request, model, folder, tolerance))
    return tuple(rows)


def verify_once(
    path: Path, cache: Path, tolerance: float, check: Callable[[], tuple[Row, ...]]
) -> tuple[tuple[Row, ...], bool]:
    """Return the rows of a check, and whether an equal artifact had passed it here before."""
    with Artifact(path) as artifact:
        rule = f"{REVISION} {tolerance} ".encode()
        key = hashlib.sha256(rule + artifact.manifest.to_bytes()).hexdigest()
    record = cache / "verified" / f"{key}.json"
    try:
        return tuple(Row(**row) for row in json.loads(record.read_text(encoding="utf-8"))), True
    except (OSError, ValueError, TypeError):
        pass
    rows = check()
    if not any(row.problem for row in rows):
        record.parent.mkdir(parents=True, exist_ok=True)
        aside = record.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
        aside.replace(record)
    return rows, False


def refuse(rows: Sequence[Row], path: object) -> None:
    """Raise for the first row that does not pass.

    Raises:
        VerifyError: naming the variant, the sizes, the output and both errors.
    """
    for row in rows:
        if row.problem:
            raise VerifyError(
                f"{path}: {row.variant} at {row.sizes or 'its size'}: {row.output}",
                found=row.problem,
                expected=f"an error of at most {row.allowed:.3g}",
                tip="raise [verify] tolerance if the difference is acceptable, else report the model",
            )


def _requests(manifest: Manifest, tune: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for variant in manifest.variants:
        if variant.form == LIBRARY:
            for dims in _sizes(variant, tune):
                yield {
                    "id": f"{manifest.variants.index(variant)}-{'-'.join(map(str, dims.values()))}",
                    "variant": variant.id,
                    "dims": dims,
                    "seed": 0,
                    "inputs": None,
                }


def _sizes(variant: Variant, tune: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the sizes to check a variant at: near both ends of each range and the tuning size."""
    chosen: list[dict[str, int]] = []
    for pick in (_low, _tuned(tune), _high):
        ranges = variant.bucket.ranges().items()
        dims = served(variant, {name: pick(name, size) for name, size in ranges})
        if dims not in chosen:
            chosen.append(dims)
    return chosen


def _low(_: str, size: Range) -> int:
    return size.min


def _high(_: str, size: Range) -> int:
    return size.max if size.max is not None else 4 * max(size.min, 16)


def _tuned(tune: Mapping[str, int]) -> Callable[[str, Range], int]:
    return lambda name, size: tune[name] if tune.get(name, -1) in size else size.min


def _save_inputs(
    module: torch.nn.Module, request: dict[str, Any], inputs: Inputs, folder: Path
) -> Call:
    """Write the tensors of a call made by the spec; return the call."""
    args, kwargs = inputs(request["dims"])
    leaves = structure.leaves(module.forward, (args, kwargs))
    tensors = [structure.dense(t.detach()) for t in leaves if isinstance(t, torch.Tensor)]
    request["inputs"] = f"{request['id']}.safetensors"
    saved = {str(i): tensor.contiguous().clone() for i, tensor in enumerate(tensors)}
    save_file(saved, folder / request["inputs"])
    return args, kwargs


def _replay(path: str | os.PathLike[str], folder: Path) -> None:
    command = [sys.executable, "-m", "tcbuild.runtime.replay", os.fspath(path), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if (folder / "error.json").exists():
        raise relayed(json.loads((folder / "error.json").read_text(encoding="utf-8")))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        signal = f" (signal {-done.returncode})" if done.returncode < 0 else ""
        raise VerifyError(
            path,
            found=f"the fresh process that answers calls failed{signal}: {lines[-1]}",
            expected="answers",
            tip=f"run it by hand: {' '.join(command[:4])} FOLDER",
        )


def _compare(
    variant: Variant, request: Mapping[str, Any], model: Any, folder: Path, tolerance: float
) -> Iterator[Row]:
    result = load_file(folder / f"result-{request['id']}.safetensors")
    record = json.loads((folder / f"result-{request['id']}.json").read_text(encoding="utf-8"))
    sizes = ", ".join(f"{name}={size}" for name, size in request["dims"].items())
    base = Row(variant=variant.id, sizes=sizes, output="output")

    def row(output: str, problem: str = "", **numbers: float) -> Row:
        return Row(**{**asdict(base), "output": output, "problem": problem, **numbers})

    if record["answered_by"] != variant.id:
        yield row("output", f"the call was answered by {record['answered_by']}")
    own: dict[str, object] = {}
    if model is not None:
        try:
            own = dict(flatten(model, variant.outputs, "output"))
        except StructureError as error:
            yield row("output", f"the model returns another structure: {error}")
            return
    values = record["values"]
    for key, value in values.items():
        name, _, path = key.partition("/")
        expected = repr(own[path]) if path in own else values.get(f"eager/{path}", value)
        if name in ("first", "second") and value != expected:
            yield row(path, f"{name} call returned {value}, eager {expected}")
    for key, tensor in result.items():
        name, _, path = key.partition("/")
        if name == "first":
            yield from _rows(result, path, tensor, own.get(path), tolerance, row)


def _rows(
    result: Mapping[str, torch.Tensor],
    path: str,
    first: torch.Tensor,
    model: object,
    tolerance: float,
    row: Callable[..., Row],
) -> Iterator[Row]:
    eager, again = result[f"eager/{path}"], result[f"again/{path}"]
    exact = result[f"exact/{path}"]
    if not _equal(eager, again):
        yield row(path, eager=math.inf, allowed=math.inf)  # random numbers: nothing to compare
        return
    if first.shape != eager.shape or first.dtype != eager.dtype:
        yield row(
            path, f"{first.dtype} {list(first.shape)}, eager {eager.dtype} {list(eager.shape)}"
        )
        return
    own = model if isinstance(model, torch.Tensor) else None
    if own is not None and (own.shape != eager.shape or own.dtype != eager.dtype):
        found = f"{own.dtype} {list(own.shape)}"
        yield row(path, f"{_OTHER} {found}, the graph has {eager.dtype} {list(eager.shape)}")
        return
    if not first.dtype.is_floating_point and not first.dtype.is_complex:
        good = _equal(first, eager) or _equal(first, exact.to(first.dtype))
        yield row(path, "" if good else f"{int((first != eager).sum())} values differ from eager's")
        if own is not None and not (_equal(own, eager) or _equal(own, exact.to(own.dtype))):
            yield row(path, f"{_OTHER} {int((own != eager).sum())} other values")
        return
    yield _judge(path, first, eager, exact, tolerance, row)
    yield from (
        _judge(path, other, eager, exact, tolerance, row, prefix)
        for other, prefix in ((result[f"second/{path}"], "the second call: "),)
        if not _equal(other, first)
    )
    if own is not None:
        # Held against the graph's error, not its own: against float64 of another graph its own error
        # is as large as the difference, and would allow it.
        judged = _judge(path, own, eager, exact, tolerance, row, f"{_OTHER} ")
        if judged.problem:
            yield judged


def _judge(
    path: str,
    made: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    tolerance: float,
    row: Callable[..., Row],
    prefix: str = "",
) -> Row:
    wide = torch.complex128 if exact.dtype.is_complex else torch.float64
    made, own, exact = made.detach().to(wide), eager.to(wide), exact.to(wide)
    if not torch.equal(made.isnan(), own.isnan()) or not torch.equal(made.isinf(), own.isinf()):
        return row(path, f"{prefix}nan or inf where eager has none, or the reverse")
    finite = own.isfinite() & exact.isfinite()
    error, mine = _largest((made - exact)[finite]), _largest((own - exact)[finite])
    step = torch.finfo(eager.dtype).eps * _largest(exact[finite])
    allowed = tolerance * mine + STEPS.get(eager.dtype, 1) * step
    problem = ""
    if not error <= allowed:
        problem = f"{prefix}an error of {error:.3g} against float64, eager has {mine:.3g}"
    return row(path, problem, error=error, eager=mine, allowed=allowed)


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or bool(
        torch.all((one == other) | (one.isnan() & other.isnan()))
    )
