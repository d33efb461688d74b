"""Jobs that are compiled beside each other: the same bytes, and a process that is lost costs no job."""

import os
import pickle
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tcbuild import aot
from tcbuild.aot import crew, processors
from tcbuild.aot.build_job import Prepared, prepare
from tcbuild.aot.candidate import Candidate
from tcbuild.aot.compile import key_of
from tcbuild.aot.crew import TRIES, Crew
from tcbuild.aot.dims import Specialize
from tcbuild.aot.errors import CompileError
from tcbuild.aot.job_cache import JobCache
from tcbuild.aot.order import Order
from tcbuild.aot.plan import Plan
from tcbuild.aot.progress import Event, Watch, silent

from .. import models

SPEC = replace(models.FOURS, dims={"n": Specialize(values=(8, 12))}, verify=False)


def captured() -> Prepared:
    """Return the first job of SPEC, captured."""
    job = Plan.of(SPEC).jobs[0]
    return prepare(SPEC, SPEC.model(), job, Watch(silent, job.id, 1, 1))


def test_bytes_do_not_depend_on_who_compiles(
    no_jobs: JobCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    reports = []
    for name, workers in (("beside", 2), ("alone", 1)):
        monkeypatch.setattr(crew, "size", lambda *_, workers=workers: workers)
        no_jobs.jobs = tmp_path / name
        reports.append(
            aot.build(SPEC, tmp_path / f"{name}.tcb", cache=no_jobs, progress=events.append)
        )
    assert (tmp_path / "beside.tcb").read_bytes() == (tmp_path / "alone.tcb").read_bytes()
    assert [report.compiled for report in reports] == [2, 2]
    compiled = [event for event in events if event.stage == "compile"]
    beside = [event.seconds is None for event in compiled[:4]]
    assert beside != [True, False] * 2  # one began before another had ended
    assert all(job.seconds["compile"] > 0 for report in reports for job in report.jobs)


def test_a_process_that_is_killed_costs_no_job(no_jobs: JobCache) -> None:
    one = captured()
    order = Order.of(one.job, one.partitioned, Candidate(), no_jobs)
    with Crew(1) as hands:
        done = hands.begin(order, one.partitioned.graph, one.tensors)
        assert done is not None
        while not hands._running:
            pass
        (first,) = hands._running
        os.kill(first.pid, signal.SIGKILL)
        assert done.result().error is None
        assert first not in hands._running
        left = set(hands._running)
    assert all(process.poll() is not None for process in left)
    assert no_jobs.get(key_of(one.job, one.partitioned, one.tensors, {})) is not None


class Deadly:
    """Kills the process that reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.abort, ()


def test_a_job_that_kills_every_process_is_given_up(
    no_jobs: JobCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = captured()
    order = Order.of(one.job, one.partitioned, Candidate(), no_jobs)
    monkeypatch.setattr(Order, "write", lambda _, path: path.write_bytes(pickle.dumps(Deadly())))
    with Crew(1) as hands:
        done = hands.begin(order, one.partitioned.graph, one.tensors)
        assert done is not None
        error = done.result().error
    assert isinstance(error, CompileError)
    assert f"ended with signal SIGABRT, {TRIES} times" in str(error)
    assert one.job.id in str(error)


def test_an_error_of_another_process_is_told_as_here(no_jobs: JobCache) -> None:
    one = captured()
    order = Order.of(one.job, one.partitioned, Candidate(options={"no_such_option": 1}), no_jobs)
    with Crew(1) as hands:
        done = hands.begin(order, one.partitioned.graph, one.tensors)
        assert done is not None
        error = done.result().error
    assert isinstance(error, CompileError)
    assert error.where == one.job.id
    assert "no_such_option" in error.found
    assert error.tip == CompileError.default_tip


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "count", lambda: 8)
    monkeypatch.setattr(crew, "_free", lambda: 3.5 * crew.MEMORY)
    assert [crew.size(jobs) for jobs in (1, 2, 100)] == [1, 2, 3]
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (4 * crew.GPU_CONTEXT, 0))
    assert crew.size(100, on_gpu=1) == 1
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (9 * crew.GPU_CONTEXT, 0))
    assert crew.size(100, on_gpu=crew.GPU_CONTEXT) == 2
    monkeypatch.setattr(crew, "_free", lambda: 0.0)
    assert crew.size(5) == 1
