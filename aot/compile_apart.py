"""Jobs compiled at once, each in a process of its own: a crash or a hang costs that compilation only.

What comes out is in the job cache, under the key that it has in this process, too: a graph that did not
survive the way there gets another key, and is not found.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from . import carried, own_process, processors
from .candidate import Candidate
from .job_cache import JobCache
from .order import Order
from .partition import Partitioned
from .plan import Job

UNCARRIED: Final = "the graph cannot be carried to another process"
_POLL: Final = 0.05  # seconds


@dataclass
class _Running:
    """One process."""

    name: str
    process: "subprocess.Popen[bytes]"
    folder: Path


def compile_apart(
    job: Job,
    partitioned: Partitioned,
    tensors: tuple[torch.Tensor, ...],
    candidates: Sequence[Candidate],
    cache: JobCache,
    *,
    seconds: float,
    workers: int,
    began: Callable[[str], None],
    ended: Callable[[str], None],
) -> dict[str, str]:
    """Compile candidates into the job cache.

    Args:
        job, partitioned, tensors, cache: as for `compile_job`.
        candidates: what to compile, in this order.
        seconds: that all of it may take; what is running then is ended.
        workers: processes at once.
        began, ended: told the name of a candidate whose process begins, and ends well.

    Returns:
        Why a candidate is not there, by its name; UNCARRIED for all where the graph stays here.
    """
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="tcbuild-") as made:
        folder = Path(made)
        try:
            carried.dump(partitioned.graph, tensors, folder / "graph")
        except Exception:  # torch says in many ways that it cannot
            return dict.fromkeys((candidate.name for candidate in candidates), UNCARRIED)
        waiting = list(enumerate(candidates))
        running: list[_Running] = []
        end = time.monotonic() + seconds
        try:
            while waiting or running:
                while waiting and len(running) < workers and time.monotonic() < end:
                    number, candidate = waiting.pop(0)
                    place = folder / str(number)
                    place.mkdir()
                    Order.of(job, partitioned, candidate, cache).write(place / "order")
                    running.append(_start(candidate.name, place, workers))
                    began(candidate.name)
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    own_process.end(one.process)
                    failed.update(_outcome(one))
                    if one.name not in failed:
                        ended(one.name)
                if time.monotonic() >= end:
                    for name in [one.name for one in running] + [c.name for _, c in waiting]:
                        failed[name] = f"not compiled within the {seconds:.0f} s that were left"
                    break
                time.sleep(_POLL)
        finally:
            for one in running:
                own_process.end(one.process)
    return failed


def main(argv: list[str]) -> int:
    """Compile one order; return the exit code."""
    folder = Path(argv[0])
    try:
        Order.read(folder / "order").run(folder.parent / "graph")
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        (folder / "failed").write_text(json.dumps(first), encoding="utf-8")
        return 1
    return 0


def _start(name: str, folder: Path, workers: int) -> _Running:
    threads = max(1, processors.count() // workers)
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), **own_process.environment()}
    command = own_process.command("aot.compile_apart", str(folder))
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            command, env=environment, stdout=said, stderr=said, start_new_session=True
        )
    return _Running(name=name, process=process, folder=folder)


def _outcome(one: _Running) -> dict[str, str]:
    """Return why a process that has ended has failed, if it has."""
    code = one.process.returncode
    if code == 0:
        return {}
    if (one.folder / "failed").exists():
        return {one.name: json.loads((one.folder / "failed").read_text(encoding="utf-8"))}
    said = (one.folder / "said").read_text(encoding="utf-8", errors="replace").strip()
    last = (said.splitlines() or ["no output"])[-1]
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return {one.name: f"the compiler's process ended with {how}: {last[:300]}"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
