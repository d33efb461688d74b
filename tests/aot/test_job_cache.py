"""Finished jobs: never half-written, and redone where they are damaged."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tcbuild.aot.inductor import LibraryFiles
from tcbuild.aot.job_cache import STALE, FinishedJob, JobCache

from ..conftest import ROOT

JOB = FinishedJob(
    library=LibraryFiles(files={"model.so": b"code", "model.json": b"{}"}, constants=("c0",)),
    relations=("n % 4 == 0",),
)


def test_what_is_put_is_found(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    assert cache.get("key") is None
    cache.put("key", JOB)
    assert cache.get("key") == JOB
    assert cache.get("another") is None
    assert os.listdir(tmp_path / "jobs") == ["key"]


def test_what_a_killed_build_left_is_removed_once_nobody_can_be_writing_it(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    now = time.time()
    for name, age in ((".new-old", STALE + 600), (".new-young", STALE - 600), ("old", 2 * STALE)):
        (jobs / name).mkdir(parents=True)
        (jobs / name / "model.so").touch()
        os.utime(jobs / name, (now - age, now - age))
    JobCache(tmp_path).put("key", JOB)
    assert sorted(os.listdir(jobs)) == [".new-young", "key", "old"]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda job: (job / "model.so").write_bytes(b"C0de"),
    "cut short": lambda job: (job / "model.so").write_bytes(b""),
    "a file missing": lambda job: (job / "model.json").unlink(),
    "no record": lambda job: (job / "job.json").unlink(),
    "an empty record": lambda job: (job / "job.json").write_bytes(b""),
    "a record that is no JSON": lambda job: (job / "job.json").write_bytes(b"\xff{"),
    "a record of something else": lambda job: (job / "job.json").write_text("[]"),
    "a record without a field": lambda job: (job / "job.json").write_text('{"files": {}}'),
    "a record of another type": lambda job: (job / "job.json").write_text(
        '{"files": ["model.so"]}'
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_job_is_removed_and_can_be_put_again(tmp_path: Path, damage: str) -> None:
    cache = JobCache(tmp_path)
    cache.put("key", JOB)
    DAMAGE[damage](tmp_path / "jobs" / "key")
    assert cache.get("key") is None
    assert not (tmp_path / "jobs" / "key").exists()
    cache.put("key", JOB)
    assert cache.get("key") == JOB


def test_a_file_in_the_place_of_a_job(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "key").touch()
    assert cache.get("key") is None
    cache.put("key", JOB)
    assert cache.get("key") == JOB


def test_the_first_of_two_is_kept(tmp_path: Path) -> None:
    JobCache(tmp_path).put("key", JOB)
    JobCache(tmp_path).put("key", JOB)
    assert JobCache(tmp_path).get("key") == JOB
    assert os.listdir(tmp_path / "jobs") == ["key"]


RACE = """
import sys
from pathlib import Path
from tcbuild.aot.inductor import LibraryFiles
from tcbuild.aot.job_cache import STALE, FinishedJob, JobCache

files = {"model.so": b"code" * 10_000}
job = FinishedJob(library=LibraryFiles(files=files, constants=()), relations=())
cache = JobCache(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for i in range(50):
    cache.put(str(i), job)
    assert cache.get(str(i)) == job
"""


def test_processes_that_put_the_same_jobs_at_once(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert sorted(os.listdir(tmp_path / "jobs")) == sorted(map(str, range(50)))
