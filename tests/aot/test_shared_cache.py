"""Entries at a URL: whole or not there, whoever writes at the same time; what is torn is told, never used."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tcbuild import aot
from tcbuild.aot.errors import ToolError
from tcbuild.aot.inductor import LibraryFiles
from tcbuild.aot.job_cache import FinishedJob, JobCache
from tcbuild.aot.shared_cache import MAGIC, SharedCache, pack, unpack

from .. import models
from ..conftest import ROOT

pytest.importorskip("fsspec")

JOB = FinishedJob(
    library=LibraryFiles(files={"model.so": b"code", "model.json": b"{}"}, constants=("c0",)),
    relations=("n % 4 == 0",),
)


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a store with nothing in it."""
    return f"{request.param}://{tmp_path}/shared"


def test_what_one_machine_puts_another_finds(url: str, tmp_path: Path) -> None:
    one, two = (JobCache(tmp_path / name, SharedCache(url)) for name in "ab")
    assert two.get("key") is None
    one.put("key", JOB)
    assert two.get("key") == JOB
    assert two.get("another") is None
    assert JobCache(tmp_path / "b").get("key") == JOB  # from now on without the store
    assert [cache.shared.notes for cache in (one, two) if cache.shared] == [[], []]


def torn(data: bytes) -> bytes:
    """Return the half of an entry."""
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    """Return an entry with another last byte."""
    return data[:-1] + bytes([data[-1] ^ 1])


def no_job(_: bytes) -> bytes:
    """Return a whole entry with something else in it."""
    body = b"\0" * 40
    return MAGIC + hashlib.sha256(body).digest() + body


def another(_: bytes) -> bytes:
    """Return the entry of another job."""
    body = pack({"key": ["other"], "constants": [], "relations": []}, {"model.so": b"other"})
    return MAGIC + hashlib.sha256(body).digest() + body


def outside(_: bytes) -> bytes:
    """Return an entry with a file that would lie elsewhere."""
    body = pack({"key": ["key"], "constants": [], "relations": []}, {"../model.so": b"other"})
    return MAGIC + hashlib.sha256(body).digest() + body


@pytest.mark.parametrize("damage", [torn, flipped, no_job, another, outside, lambda _: b"hello"])
def test_what_is_torn_or_foreign_is_told_and_not_used(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    url = f"file://{tmp_path}/shared"
    JobCache(tmp_path / "a", SharedCache(url)).put("key", JOB)
    entry = tmp_path / "shared" / "jobs" / "key"
    entry.write_bytes(damage(entry.read_bytes()))
    cache = JobCache(tmp_path / "b", SharedCache(url))
    assert cache.get("key") is None
    assert cache.shared is not None
    assert [note.partition(": not used: ")[0] for note in cache.shared.notes] == [f"{url}/jobs/key"]
    cache.put("key", JOB)
    assert JobCache(tmp_path / "c", SharedCache(url)).get("key") == JOB


def test_a_store_that_does_not_answer_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file where a folder should be")
    cache = JobCache(tmp_path / "a", SharedCache(f"file://{tmp_path}/shared"))
    for key in ("one", "two"):
        cache.put(key, JOB)
        assert cache.get(key) == JOB
    assert cache.shared is not None
    assert len(cache.shared.notes) == 1
    assert "is not used" in cache.shared.notes[0]


def test_a_url_that_nothing_knows() -> None:
    with pytest.raises(ToolError, match=r"nowhere://there.*\n?.*"):
        SharedCache("nowhere://there")


def test_bodies() -> None:
    files = {"b": b"two", "a": b""}
    assert unpack(pack({"key": [1]}, files)) == ({"key": [1]}, files)
    with pytest.raises(ValueError, match="expected"):
        unpack(pack({}, files) + b"more")


RACE = """
import sys
from pathlib import Path
from tcbuild.aot.inductor import LibraryFiles
from tcbuild.aot.job_cache import FinishedJob, JobCache
from tcbuild.aot.shared_cache import SharedCache

files = {"model.so": b"code" * 100_000}
job = FinishedJob(library=LibraryFiles(files=files, constants=()), relations=())
shared = SharedCache(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(30):
    JobCache(Path(sys.argv[2]) / f"w{i}", shared).put(str(i), job)
    assert JobCache(Path(sys.argv[2]) / f"r{i}", shared).get(str(i)) == job
assert not shared.notes, shared.notes
"""


def test_processes_that_put_the_same_entries_at_once(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, f"file://{tmp_path}/shared", tmp_path / str(number)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(4)
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
    assert sorted(os.listdir(tmp_path / "shared/jobs")) == sorted(map(str, range(30)))


def test_a_build_finds_what_another_has_compiled(tmp_path: Path) -> None:
    caches = []
    for name in ("a", "b"):
        cache = JobCache(shared=SharedCache(f"file://{tmp_path}/shared"))
        cache.jobs = tmp_path / name  # the compiler's driver and headers stay
        caches.append(cache)
    first = aot.build(models.CONV, tmp_path / "a.tcb", cache=caches[0])
    second = aot.build(models.CONV, tmp_path / "b.tcb", cache=caches[1])
    assert (first.compiled, second.compiled) == (1, 0)
    assert (tmp_path / "a.tcb").read_bytes() == (tmp_path / "b.tcb").read_bytes()
