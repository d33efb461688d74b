"""A build on the machines of a Ray cluster: each part is a task, and the parts are merged here.

A task whose worker is lost is done again elsewhere. What it had compiled is in the shared cache, where there
is one.
"""

import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from ..formats.errors import TcbuildError
from ..formats.external import file_beside
from . import processors
from .errors import ClusterError, ToolError, record_of, recorded
from .job_cache import JobCache
from .merge import merge
from .plan import Plan
from .progress import Progress, Watch, silent
from .report import JobReport, Report
from .shared_cache import SharedCache
from .spec import Spec

RETRIES: Final = 3  # of a part whose worker is lost
PARTS: Final = 4  # for each worker: a lost one costs little, and all end at about the same time

# Ray's names of the GPUs of an architecture, where a cluster says which it has.
ACCELERATORS: Final[Mapping[str, tuple[str, ...]]] = {
    "sm_70": ("V100",),
    "sm_75": ("T4",),
    "sm_80": ("A100", "A100-40G", "A100-80G"),
    "sm_86": ("A10G",),
    "sm_89": ("L4", "L40S"),
    "sm_90": ("H100", "H200", "H20", "GH200"),
    "sm_100": ("B200", "GB200"),
}


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What a worker needs to build a part: the spec, and how it is to be changed.

    Attributes:
        spec: itself; None where it is read from a file.
        file: of the spec: by its name where the cluster has a copy of its folder.
        changes: of attributes of the spec.
        only: as for `build`.
        cache: the URL of the shared cache; None for none.
    """

    spec: Spec | None
    file: str
    changes: Mapping[str, object]
    only: tuple[str, ...]
    cache: str | None

    def load(self) -> Spec:
        """Return the spec, here."""
        return replace(self.spec or Spec.load(self.file), **dict(self.changes))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a task came to: the bytes of a part with its report, or an error."""

    data: bytes = b""
    jobs: tuple[JobReport, ...] = ()
    notes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    error: Mapping[str, str] | None = None


def build(
    source: Spec | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    only: Sequence[str] = (),
    changes: Mapping[str, object] | None = None,
    progress: Progress = silent,
    cache: str | None = None,
) -> Report:
    """Build an artifact on a Ray cluster: the one of $RAY_ADDRESS, else this machine.

    Args:
        source: a spec, or the path of its file; the folder of the file is copied to the workers, but for
            artifacts in it, and the weights beside `out`.
        out, only: as for `build.build`.
        changes: of attributes of the spec, by name.
        progress: called with an Event when a part begins and ends.
        cache: the URL of a shared cache; what $TCBUILD_SHARED_CACHE says where left out.

    Raises:
        ToolError: Ray is not installed.
        ClusterError: a part was lost RETRIES times.
        TcbuildError: what `build.build` raises, on a worker.
    """
    try:
        import ray
    except ImportError as error:
        tip = "pip install 'tcbuild[ray]'"
        raise ToolError("--executor ray", found=str(error), expected="Ray", tip=tip) from error
    began = time.perf_counter()
    own = not ray.is_initialized()
    name = "" if isinstance(source, Spec) else str(Path(source).resolve())
    if own:
        left_out = ["*.tcb", file_beside(Path(out)).name, ".git"]
        folder = {"working_dir": os.path.dirname(name), "excludes": left_out} if name else {}
        ray.init(runtime_env=folder, logging_level=logging.ERROR, log_to_driver=False)
    spec = source if isinstance(source, Spec) else Spec.load(source)
    spec = replace(spec, **dict(changes or {}))  # type: ignore[arg-type]
    errand = Errand(
        spec=source if isinstance(source, Spec) else None,
        file=os.path.basename(name) if own else name,
        changes={"name": spec.name, **(changes or {})},
        only=tuple(only),
        cache=cache or os.environ.get("TCBUILD_SHARED_CACHE"),
    )
    try:
        with tempfile.TemporaryDirectory(prefix="tcbuild-") as made:
            done = _all(ray, spec, errand, Path(made), progress)
            paths = [Path(made) / str(index) for index in range(1, len(done) + 1)]
            with Watch(progress, spec.name, 1, 1).stage("merge"):
                merged = merge(paths, out)
    finally:
        if own:
            ray.shutdown()
    reports = {report.id: report for outcome in done for report in outcome.jobs}
    return replace(
        merged,
        jobs=tuple(reports[report.id] for report in merged.jobs),
        notes=tuple(dict.fromkeys(note for outcome in done for note in outcome.notes)),
        seconds=time.perf_counter() - began,
    )


def _all(ray: Any, spec: Spec, errand: Errand, folder: Path, progress: Progress) -> list[Outcome]:
    """Have all parts built into files of `folder`, named by their numbers; return what else they say."""
    needs = _needs(spec.targets, ray.cluster_resources())
    environment = {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # else Ray says 1
    options = {"max_retries": RETRIES, "runtime_env": {"env_vars": environment}, **needs}
    kept = ray.put(errand)
    planned = _result(ray, ray.remote(plan).options(**options).remote(kept), "the plan")
    workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
    if "num_gpus" in needs:
        workers = max(1, int(ray.cluster_resources().get("GPU", 1)))
    count = min(len(planned.ids), PARTS * workers)
    task = ray.remote(part).options(**options)
    watches = {}
    for index in range(1, count + 1):
        ref = task.remote(kept, index, count)
        watches[ref] = (
            index,
            Watch(progress, f"part {index}/{count}", index, count),
            time.monotonic(),
        )
        watches[ref][1].begin("build")
    outcomes: dict[int, Outcome] = {}
    left = list(watches)
    try:
        while left:
            (ref,), left = ray.wait(left, num_returns=1)
            index, watch, began = watches[ref]
            outcome = _result(ray, ref, f"part {index}/{count}")
            (folder / str(index)).write_bytes(outcome.data)
            outcomes[index] = replace(outcome, data=b"")
            watch.end("build", time.monotonic() - began)
    except BaseException:
        for ref in left:
            ray.cancel(ref, force=True)
        raise
    return [outcomes[index] for index in sorted(outcomes)]


def _result(ray: Any, ref: Any, what: str) -> Outcome:
    """Return what a task came to.

    Raises:
        ClusterError: it was lost too often, or is more than the cluster has.
        TcbuildError: what it raised itself.
    """
    try:
        outcome: Outcome = ray.get(ref)
    except ray.exceptions.RayError as error:
        first = (str(error).splitlines() or [""])[0]
        found = f"{type(error).__name__}: {first}"
        expected = f"a worker that lives, of {RETRIES + 1}"
        raise ClusterError(what, found=found, expected=expected) from error
    if outcome.error is not None:
        raise recorded(outcome.error, what)
    return outcome


def _needs(targets: Sequence[str], resources: Mapping[str, float]) -> dict[str, object]:
    """Return what a task asks the cluster for: a GPU of the kind of the spec's CUDA target, if it has one.

    Where the cluster does not say which GPUs it has, the worker itself says that its own is another.
    """
    wanted = [target for target in targets if target.startswith("cuda")]
    if not wanted:
        return {"num_cpus": 1}
    there = {key.partition(":")[2] for key in resources if key.startswith("accelerator_type:")}
    known = ACCELERATORS.get(wanted[0].partition("-")[2], ())
    kind = next((name for name in known if name in there), None)
    if kind is None:
        return {"num_cpus": 1, "num_gpus": 1}
    return {"num_cpus": 1, "num_gpus": 1, "accelerator_type": kind}


def plan(errand: Errand) -> Outcome:
    """Return the ids of the jobs, on a worker: it has the GPU that a target may name."""
    try:
        jobs = Plan.of(errand.load()).only(errand.only).jobs
    except TcbuildError as error:
        return Outcome(error=record_of(error))
    return Outcome(ids=tuple(job.id for job in jobs))


def part(errand: Errand, index: int, count: int) -> Outcome:
    """Build one part, on a worker."""
    from .build import build as build_here

    os.environ[processors.VARIABLE] = "1"  # what the task has asked for
    cache = JobCache(shared=SharedCache(errand.cache) if errand.cache else None)
    with tempfile.TemporaryDirectory(prefix="tcbuild-") as made:
        path = Path(made) / "part"
        try:
            report = build_here(
                errand.load(), path, only=errand.only, shard=(index, count), cache=cache
            )
        except TcbuildError as error:
            return Outcome(error=record_of(error))
        return Outcome(data=path.read_bytes(), jobs=report.jobs, notes=report.notes)
