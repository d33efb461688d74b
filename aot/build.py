"""From a spec to an artifact: plan, build each job (build_job.py), package, verify."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import torch

from ..formats.shards import Shard
from . import culprit, embedded, environment, examples, frozen, operators, origin, tensor_check
from .build_job import BuiltJob, Prepared, prepare, search
from .build_step import build_step
from .candidate import Candidate
from .compile_beside import compile_beside
from .dims import Pad
from .errors import ModelError, TuningError
from .job_cache import JobCache
from .model_digest import model_digest
from .package import aside, package
from .placement import Placement, call_on
from .plan import Plan
from .producer import producer
from .progress import Progress, Watch, silent
from .report import Report
from .spec import EXTERNAL, MAX_AUTOTUNE, ON, Call, Spec
from .tuning import EarlierTuning
from .verify import Inputs, Row, checks, refuse, verify, verify_once
from .weight_table import WeightTable
from .weights_file import Written, beside
from .writing import need_folder, writing

P = ParamSpec("P")
R = TypeVar("R")

_building: Final = threading.RLock()


def in_turn(function: Callable[P, R]) -> Callable[P, R]:
    """Let one thread at a time run it: torch.export and Inductor keep state that is the process's."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _building:
            return function(*args, **kwargs)

    return run


@in_turn
def build(
    spec: Spec,
    out: str | os.PathLike[str],
    *,
    only: Sequence[str] = (),
    shard: tuple[int, int] | None = None,
    progress: Progress = silent,
    cache: JobCache | None = None,
    tuning_from: str | os.PathLike[str] | None = None,
) -> Report:
    """Build an artifact, or one part of it.

    A build that is stopped, by whatever, leaves nothing under `out` that was not there before; what it
    has compiled is kept in the job cache, and the next build goes on from there. Builds in several threads
    take turns.

    Args:
        spec: what to build.
        out: path of the `.tcb` file; replaced as a whole when the new one is complete. Where the spec
            wants the weights in a file of their own, it is written beside this one.
        only: patterns of the ids of the jobs to build, as in `Plan.only`; all jobs where left out.
        shard: which part of these to build, and of how many, from 1: for `merge`, not to be served.
        progress: called with an Event when a stage of a job begins and ends.
        cache: of finished jobs; the user's own where left out.
        tuning_from: an artifact that was built with `mode = "max-autotune"`: what was chosen for its
            variants is chosen again without a search; jobs that it has no variant for are searched.

    Raises:
        TcbuildError: one of the classes of errors.py, by stage.
    """
    began = time.perf_counter()
    path, cache = Path(out), cache or JobCache()
    need_folder(path)
    whole = Plan.of(spec).only(only)
    plan = whole if shard is None else whole.part(*shard)
    described = environment.describe(*dict.fromkeys(job.target for job in plan.jobs))
    module = make_module(spec)  # after it: a missing compiler is said before anything is traced
    placement = Placement(module)
    weights = WeightTable()
    minutes = spec.tune.minutes * len(plan.jobs) / len(whole.jobs)
    earlier = _earlier(spec, plan, tuning_from)
    built = _build_jobs(spec, plan, placement, weights, cache, progress, minutes * 60, earlier)
    parts, notes = [job.part for job in built], []
    watch = Watch(progress, spec.name, 1, 1)
    if spec.embed_graph:
        with watch.stage("embed"):
            for device, entry in _embedded(plan, whole):
                seen = placement.on(device, entry)
                graph, note = embedded.embed(spec.of(entry), seen, weights, device, entry)
                parts.extend(graph)
                notes.extend(note)
    weights.tie(placement.on(plan.jobs[0].target.device))
    write = partial(
        package,
        name=spec.name,
        parts=parts,
        weights=weights,
        source=spec.source,
        producer=producer(),
        environment=described,
        frozen=frozen.find(module, spec.entries),
    )
    rows: tuple[Row, ...] = ()
    record = None
    if shard is not None:
        record = Shard(
            index=shard[0],
            count=shard[1],
            jobs=tuple(job.id for job in whole.jobs),
            origin=origin.digests(spec, module),
            renamed=weights.renamed(),
            tied=weights.tied(placement.on(plan.jobs[0].target.device)),
            external=spec.weights == EXTERNAL,
        )
    external = spec.weights == EXTERNAL and shard is None  # a part is one file
    with aside(path) as new, beside(path, weights, external=external) as kept:
        if kept is not None:
            write = partial(write, external=kept.record)
        with watch.stage("package"):
            check, note = tensor_check.compiled(cache)
            notes.extend(note)
            write = partial(write, tensor_check=check)
            with writing(path):
                write(new)
        if spec.verify:
            candidates = {job.part.id: job.candidate for job in built}
            rows = _verify(spec, plan, whole, placement, candidates, new, kept, path, cache, watch)
        if rows or record is not None:
            with writing(path):
                write(new, checks=checks(rows), shard=record)
        size = new.stat().st_size
    if cache.shared is not None:
        notes.extend(cache.shared.notes)
    return Report(
        artifact=path,
        bytes=size,
        weight_bytes=weights.bytes(),
        weights_file=None if kept is None else kept.final,
        jobs=tuple(job.report for job in built),
        tuning_from=None if earlier is None else earlier.source(job.report for job in built),
        seconds=time.perf_counter() - began,
        verification=rows,
        notes=tuple(notes),
    )


def _embedded(plan: Plan, whole: Plan) -> Iterator[tuple[str, str]]:
    """Yield the devices and methods to embed graphs for; of several parts, the one with its first job does."""
    for device in dict.fromkeys(job.target.device for job in whole.jobs):
        for entry in dict.fromkeys(job.entry for job in whole.jobs):
            of = [j.id for j in whole.jobs if (j.target.device, j.entry) == (device, entry)]
            if of and of[0] in {job.id for job in plan.jobs}:
                yield device, entry


def make_module(spec: Spec) -> torch.nn.Module:
    """Make the spec's model.

    Raises:
        ModelError: that fails, or gives no module in eval mode, or one whose weights ask for gradients
            where the spec has calls that record them.
    """
    where = spec.source or spec.name
    try:
        module = spec.model()
    except Exception as error:
        raise ModelError(
            where, found=f"{type(error).__name__}: {error}", expected="a torch.nn.Module"
        ) from error
    if not isinstance(module, torch.nn.Module):
        found = f"a {type(module).__name__}"
        raise ModelError(where, found=found, expected="a torch.nn.Module")
    some = module.modules() if spec.trains() else [module]
    if any(part.training for part in some):
        tip = "call .eval() on it: dropout and batch norm are other programs in training mode"
        raise ModelError(where, found="a module in training mode", expected="eval mode", tip=tip)
    trainable = [name for name, tensor in _tensors(module) if tensor.requires_grad]
    if ON in spec.grad and trainable:
        raise ModelError(
            where,
            found=f"{trainable[0]!r} ({len(trainable)} in all), which asks for a gradient",
            expected=f"none that does, to answer calls under model.grad = {ON!r}",
            tip="call .requires_grad_(False) on it where it is made, or leave model.grad out",
        )
    return module


def _tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a model holds: parameters, buffers and plain attributes."""
    yield from module.named_parameters()
    yield from module.named_buffers()
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}" if path else name, value


def calls_of(spec: Spec, plan: Plan, module: torch.nn.Module) -> Inputs:
    """Return a function that makes example calls for the variants of a plan."""
    jobs = {job.id: job for job in plan.jobs}

    def make(variant: str, dims: Mapping[str, int]) -> Call:
        job = jobs[variant]
        called = getattr(module, job.entry or "forward")
        return examples.chosen(called, spec.of(job.entry).inputs(dims), job.choices)

    return make


def _earlier(spec: Spec, plan: Plan, path: str | os.PathLike[str] | None) -> EarlierTuning | None:
    """Read an earlier tuning, where one is given."""
    if path is None:
        return None
    if spec.mode != MAX_AUTOTUNE:
        expected = f"mode = {MAX_AUTOTUNE!r}, whose choices it has"
        raise TuningError(path, found=f"a build with mode = {spec.mode!r}", expected=expected)
    return EarlierTuning.read(path, plan.jobs)


def _build_jobs(
    spec: Spec,
    plan: Plan,
    placement: Placement,
    weights: WeightTable,
    cache: JobCache,
    progress: Progress,
    left: float,
    earlier: EarlierTuning | None,
) -> list[BuiltJob]:
    """Build the jobs of a plan; `left` seconds are there to search in: each job gets its part of them."""

    watches = {
        job.id: Watch(progress, job.id, i + 1, len(plan.jobs)) for i, job in enumerate(plan.jobs)
    }
    inference = [job for job in plan.jobs if not job.mode.step]
    built: dict[str, BuiltJob] = {}

    def prepared() -> Iterator[Prepared]:
        for job in inference:
            module = placement.on(job.target.device, job.entry)
            yield prepare(spec.of(job.entry), module, job, watches[job.id])

    if spec.mode != MAX_AUTOTUNE and inference:
        beside = compile_beside(spec, prepared(), inference, weights, cache)
        built |= {one.part.id: one for one in beside}
    for i, one in enumerate(prepared() if spec.mode == MAX_AUTOTUNE else ()):
        entry, device = one.job.entry, one.job.target.device
        inputs = calls_of(spec, plan, placement.on(device))
        asked, module = spec.of(entry), placement.on(device, entry)
        seconds = left / (len(inference) - i)
        built[one.job.id] = search(asked, module, one, inputs, weights, cache, seconds, earlier)
        left -= one.watch.seconds.get("tune", 0.0)
    for job in plan.jobs:
        if job.mode.step:
            module = placement.on(job.target.device)
            built[job.id] = build_step(spec, module, job, weights, cache, watches[job.id])
    return [built[job.id] for job in plan.jobs]


def _verify(
    spec: Spec,
    plan: Plan,
    whole: Plan,
    placement: Placement,
    candidates: Mapping[str, Candidate],
    new: Path,
    kept: Written | None,
    path: Path,
    cache: JobCache,
    watch: Watch,
) -> tuple[Row, ...]:
    tune = {name: dim.example() for name, dim in spec.dims.items()}
    padded = {
        name: sorted({job.bucket.fixed()[name] for job in whole.jobs if name in job.bucket.dims})
        for name, dim in spec.dims.items()
        if isinstance(dim, Pad)
    }
    module = placement.on(plan.jobs[0].target.device)
    calls = calls_of(spec, plan, module)

    def check() -> tuple[Row, ...]:
        return verify(
            new,
            module=module,
            inputs=calls,
            tune=tune,
            padded=padded,
            tolerance=spec.tolerance,
            imports=operators.files(),
            name=path,
            weights=None if kept is None else kept.path,
        )

    with watch.stage("verify") as said:
        made = (
            (
                job.entry,
                job.mode,
                call_on(
                    calls(job.id, spec.example_sizes(job.bucket)),
                    placement.on(job.target.device, job.entry),
                    job.target.device,
                ),
            )
            for job in plan.jobs
            if job.target.device == plan.jobs[0].target.device
        )
        rule = f"{spec.tolerance} {padded or ''}{model_digest(module, made)}"
        rows, known = verify_once(new, cache.path, rule, check)
        said.append("cached" if known else f"{len(rows)} outputs")
        jobs = {job.id: job for job in plan.jobs}

        def explain(row: Row) -> str:
            job = jobs[row.variant]
            if job.mode.step:
                return ""
            seen = placement.on(job.target.device, job.entry)
            candidate = candidates[job.id]
            return culprit.find(spec.of(job.entry), seen, job, candidate, row, calls, cache)

        refuse(rows, path, explain)
    return rows
