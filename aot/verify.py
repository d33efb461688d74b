"""Every variant, in a fresh process, through the runtime, against eager and against float64.

Each call is made twice in a row, from fresh state. The rule is in numerics.py. Once for each variant it
is also made with the elements of an input apart in memory, for each input: whoever accepts that must
answer as well.
"""

import copy
import hashlib
import itertools
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ..formats.bucket import Range
from ..formats.container import Artifact
from ..formats.manifest import Check, Manifest
from ..formats.sizes import served
from ..formats.tree import flatten
from ..formats.variant import LIBRARY, Variant
from . import own_process, structure
from .call_mode import CallMode
from .errors import VerifyError, relayed
from .numerics import Verdict, equal, judge
from .placement import Placement, call_on
from .spec import Call
from .verify_step import StepCheck

Inputs = Callable[[str, Mapping[str, int]], Call]

REVISION = 8  # raise it when the rule changes: checks that passed before are then done again


@dataclass(frozen=True, kw_only=True)
class Row(Check):
    """What a check found; unlike what the artifact keeps of it, not rounded.

    Attributes:
        problem: empty where it passes, else what is wrong, in words.
    """

    problem: str = ""


def verify(
    path: str | os.PathLike[str],
    *,
    module: torch.nn.Module | None = None,
    inputs: Inputs | None = None,
    tune: Mapping[str, int] | None = None,
    tolerance: float = 2.0,
    imports: Mapping[str, str] | None = None,
    name: object = None,
    at: Mapping[str, int] | None = None,
    padded: Mapping[str, Sequence[int]] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> tuple[Row, ...]:
    """Check every variant of an artifact.

    Args:
        path: of the artifact.
        module: the model, whose methods answer the calls of the variants that are for them; without it, the graph that each variant was compiled from stands for it.
        inputs: makes calls for `module`, from a variant's identifier and sizes; without it, values
            are drawn as the artifact says.
        tune: further sizes to check at, by dimension, besides the ends of each range.
        tolerance: how many times eager's own error is allowed.
        imports: the files of modules that register the model's custom operators, by module; the ones
            that Python finds by name need not be given.
        name: what messages call the artifact; `path` where left out.
        at: check at these sizes alone, on the calls that `inputs` makes but against the graph that each
            variant was compiled from.
        padded: all sizes that calls are padded up to, by dimension; those of the artifact's own variants
            where left out.
        weights: the file that the weights are in, where they are in one that is not beside the artifact.

    Returns:
        One row for each variant, size and output; `problem` says which do not pass.

    Raises:
        VerifyError: the fresh process fails.
        TcbuildError: the artifact is malformed, or what the runtime says of it in the fresh process, with
            the exit code of the runtime's own error: it is for another host, a library does not load.
    """
    with Artifact(path) as artifact, tempfile.TemporaryDirectory(prefix="tcbuild-") as made:
        artifact.check(weights)
        folder = Path(made)
        requests = list(_requests(artifact.manifest, tune or {}, at, padded))
        placement = Placement(module) if module is not None else None
        calls = [
            _save_inputs(_called(module, artifact.manifest, request), request, inputs, folder)
            if module and inputs
            else None
            for request in requests
        ]
        (folder / "requests.json").write_text(json.dumps(requests), encoding="utf-8")
        modules = {m for v in artifact.manifest.variants for m in v.operators.values() if m}
        files = {module: (imports or {}).get(module, "") for module in sorted(modules)}
        (folder / "imports.json").write_text(json.dumps(files), encoding="utf-8")
        named = path if name is None else name
        replay = partial(_replay, path=path, folder=folder, name=named, weights=weights)
        replay("replay")
        rows: list[Row] = []
        for request, call in zip(requests, calls, strict=True):
            variant = next(v for v in artifact.manifest.variants if v.id == request["variant"])
            model: tuple[dict[str, object], ...] = ()
            if placement is not None and call is not None and at is None:
                seen = placement.on(variant.device, variant.entry)
                model = _model_answers(seen, call, variant)
            rows.extend(_compare(variant, request, model, folder, tolerance))
        if placement is not None and inputs is not None and at is None:
            steps = StepCheck(
                artifact.manifest, placement, inputs, lambda one: _sizes(one, {}, tune or {})
            )
            rows.extend(_steps(steps, replay, folder, tolerance))
    return tuple(rows)


def _steps(
    check: StepCheck, replay: Callable[[str], None], folder: Path, tolerance: float
) -> Iterator[Row]:
    """Check the training steps: against the model, as there is no graph of eager's gradients."""
    if not check:
        return
    check.write(folder)
    replay("replay_step")
    for variant, dims, what, verdict in check.compare(folder, tolerance):
        yield Row(variant=variant, sizes=_words(dims), output=what, **asdict(verdict))


def _words(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())


def verify_once(
    path: Path, cache: Path, rule: str, check: Callable[[], tuple[Row, ...]]
) -> tuple[tuple[Row, ...], bool]:
    """Return the rows of a check, and whether an equal artifact had passed it here before.

    Args:
        path: of the artifact.
        cache: a folder that stays.
        rule: what the outcome depends on besides the artifact: the tolerance, the model's own answers.
        check: makes the check.
    """
    with Artifact(path) as artifact:
        rule = f"{REVISION} {rule} "
        key = hashlib.sha256(rule.encode() + artifact.manifest.to_bytes()).hexdigest()
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


def checks(rows: Sequence[Row]) -> tuple[Check, ...]:
    """Return the rows as the artifact keeps them; those with random numbers have nothing to keep."""
    return tuple(
        Check(
            variant=row.variant,
            sizes=row.sizes,
            output=row.output,
            error=_rounded(row.error),
            eager=_rounded(row.eager),
            allowed=_rounded(row.allowed),
        )
        for row in rows
        if math.isfinite(row.allowed)
    )


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def refuse(
    rows: Sequence[Row], path: object, explain: Callable[[Row], str] = lambda row: ""
) -> None:
    """Raise for the first row that does not pass.

    Args:
        rows: what the check found.
        path: what messages call the artifact.
        explain: says more about a row that does not pass; empty where there is nothing to say.

    Raises:
        VerifyError: naming the variant, the sizes, the output and both errors.
    """
    for row in rows:
        if row.problem:
            raise VerifyError(
                f"{path}: {row.variant} at {row.sizes or 'its size'}: {row.output}",
                found="; ".join(filter(None, [row.problem, explain(row)])),
                expected=f"an error of at most {row.allowed:.3g}",
                tip="raise [verify] tolerance if the difference is acceptable, else report the model",
            )


def _requests(
    manifest: Manifest,
    tune: Mapping[str, int],
    at: Mapping[str, int] | None,
    padded: Mapping[str, Sequence[int]] | None,
) -> Iterator[dict[str, Any]]:
    steps = dict(padded or {})
    for variant in manifest.variants if padded is None else ():
        for name in variant.pad:
            steps[name] = [*steps.get(name, ()), variant.bucket.fixed()[name]]
    for variant in manifest.variants:
        if variant.form == LIBRARY:
            chosen = [at] if at is not None else _sizes(variant, steps, tune)
            for number, dims in enumerate(chosen):
                yield {
                    "id": f"{manifest.variants.index(variant)}-{'-'.join(map(str, dims.values()))}",
                    "variant": variant.id,
                    "dims": dims,
                    "seed": 0,
                    "inputs": None,
                    "strided": number == 0 and at is None,
                }


def _sizes(
    variant: Variant, steps: Mapping[str, Sequence[int]], tune: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return the sizes to check a variant at: both ends of each range, and the tuning size.

    For a dimension that is padded, the bucket's size, one less, and the smallest that no smaller
    bucket serves; all combinations of these.
    """
    padded = itertools.product(*(_padded(variant, steps[name], name) for name in variant.pad))
    chosen: list[dict[str, int]] = []
    for sizes, pick in itertools.product(list(padded), (_low, _tuned(tune), _high)):
        ranges = variant.bucket.ranges().items()
        dims = served(variant, {name: pick(name, size) for name, size in ranges})
        dims.update(zip(variant.pad, sizes, strict=True))
        if dims not in chosen:
            chosen.append(dims)
    return chosen


def _padded(variant: Variant, steps: Sequence[int], name: str) -> list[int]:
    size = variant.bucket.fixed()[name]
    below = max((other for other in steps if other < size), default=variant.pad[name] - 1)
    return sorted({below + 1, max(below + 1, size - 1), size})


def _low(_: str, size: Range) -> int:
    return size.min


def _high(_: str, size: Range) -> int:
    return size.max if size.max is not None else 4 * max(size.min, 16)


def _tuned(tune: Mapping[str, int]) -> Callable[[str, Range], int]:
    return lambda name, size: tune[name] if tune.get(name, -1) in size else size.min


def _called(
    module: torch.nn.Module, manifest: Manifest, request: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the method of the model that a request is for."""
    entry = next(v.entry for v in manifest.variants if v.id == request["variant"])
    called: Callable[..., Any] = getattr(module, entry or "forward")
    return called


def _save_inputs(
    called: Callable[..., Any], request: dict[str, Any], inputs: Inputs, folder: Path
) -> Call:
    """Write the tensors of a call made by the spec; return the call."""
    args, kwargs = inputs(request["variant"], request["dims"])
    leaves = structure.leaves(called, (args, kwargs))
    tensors = [structure.dense(t.detach()) for t in leaves if isinstance(t, torch.Tensor)]
    request["inputs"] = f"{request['id']}.safetensors"
    saved = {str(i): tensor.cpu().contiguous().clone() for i, tensor in enumerate(tensors)}
    save_file(saved, folder / request["inputs"])
    return args, kwargs


def _replay(
    how: str,
    path: str | os.PathLike[str],
    folder: Path,
    name: object,
    weights: str | os.PathLike[str] | None,
) -> None:
    more = [] if weights is None else [os.fspath(weights)]
    command = own_process.command(f"runtime.{how}", os.fspath(path), str(folder), *more)
    environment = own_process.environment()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if (folder / "error.json").exists():
        raise relayed(json.loads((folder / "error.json").read_text(encoding="utf-8")))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        signal = f" (signal {-done.returncode})" if done.returncode < 0 else ""
        raise VerifyError(
            name,
            found=f"the fresh process that answers calls failed{signal}: {' | '.join(lines[-3:])}",
            expected="answers",
            tip="build with --no-verify, then see the whole output with: tcbuild verify FILE",
        )


def _model_answers(
    module: torch.nn.Module, call: Call, variant: Variant
) -> tuple[dict[str, object], ...]:
    """Return the leaves of two calls in a row of the user's model.

    Raises:
        StructureError: the model returns another structure than the one captured.
    """
    call = call_on(call, module, variant.device)
    mode = CallMode.of(variant)
    if variant.state or mode.training:
        module = copy.deepcopy(module)
    answers = []
    for _ in range(2):
        args, kwargs = copy.deepcopy(call) if variant.written else call
        with mode.on(module):
            made = module(*args, **kwargs)
        leaves = dict(flatten(made, variant.outputs, "output"))
        for path, leaf in leaves.items():
            if isinstance(leaf, torch.Tensor):
                # A parameter that is returned asks for a gradient at any time.
                leaves[path] = (leaf if mode.grad else leaf.detach()).cpu()
        answers.append(leaves)
    return tuple(answers)


def _compare(
    variant: Variant,
    request: Mapping[str, Any],
    model: tuple[dict[str, object], ...],
    folder: Path,
    tolerance: float,
) -> Iterator[Row]:
    made = load_file(folder / f"result-{request['id']}.safetensors")
    record = json.loads((folder / f"result-{request['id']}.json").read_text(encoding="utf-8"))
    sizes = _words(request["dims"])

    def row(path: str, verdict: Verdict) -> Row:
        return Row(variant=variant.id, sizes=sizes, output=path, **asdict(verdict))

    if record["answered_by"] != variant.id:
        yield row("output", Verdict(problem=f"answered by {record['answered_by']}"))
    for key, value in record["values"].items():
        who, number, path = key.split("/", 2)
        call = "1" if who == "strided" else number
        own = model[int(call) - 1] if model else {}
        expected = repr(own[path]) if path in own else record["values"][f"eager/{call}/{path}"]
        if who in ("artifact", "strided") and value != expected:
            said = f"call {number}" if who == "artifact" else _apart(number)
            yield row(path, Verdict(problem=f"{said}: {value}, eager {expected}"))
    for key, answer in made.items():
        who, _, rest = key.partition("/")
        if who in ("artifact", "noise"):
            number, _, path = rest.partition("/")
            call = "" if number == "1" else " (second call)"
            padding = " (noise in the padding)" if who == "noise" else ""
            yield from (
                row(f"{path}{call}{padding}", verdict)
                for verdict in _verdicts(made, answer, rest, model, tolerance)
                if number == "1" or verdict.problem
            )
        elif who == "strided":
            number, _, path = rest.partition("/")
            verdicts = _verdicts(made, answer, f"1/{path}", model, tolerance)
            named = f"{path} ({_apart(number)})"
            yield from (row(named, verdict) for verdict in verdicts if verdict.problem)


def _apart(number: str) -> str:
    return f"the elements of input {number} apart in memory"


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _verdicts(
    made: Mapping[str, torch.Tensor],
    answer: torch.Tensor,
    leaf: str,
    model: tuple[dict[str, object], ...],
    tolerance: float,
) -> Iterator[Verdict]:
    eager, again, exact = (made[f"{who}/{leaf}"] for who in ("eager", "again", "exact"))
    if not equal(eager, again):
        form = judge(answer, eager, eager).problem if not _alike(answer, eager) else ""
        # Random numbers: beyond its form there is nothing to compare.
        yield Verdict(eager=math.inf, allowed=math.inf, problem=form)
        return
    yield judge(answer, eager, exact, tolerance, rounded=made.get(f"rounded/{leaf}"))
    number, _, path = leaf.partition("/")
    own = model[int(number) - 1].get(path) if model else None
    if isinstance(own, torch.Tensor) and own.requires_grad:
        yield Verdict(problem="the model's own answer asks for a gradient, which is lost")
    if isinstance(own, torch.Tensor):
        # Held against the graph's error, not its own: against float64 of another graph its own error
        # is as large as the difference, and would allow it.
        model_itself = judge(own, eager, exact, tolerance)
        if model_itself.problem:
            problem = f"the captured graph is not the model, which has {model_itself.problem}"
            yield replace(model_itself, problem=problem)
