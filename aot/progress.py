"""What a build is doing, told to whoever watches it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How one candidate of a search stands.

    Attributes:
        candidate: its name; on CUDA also whether its calls are replayed.
        state: "compiling", "compiled" or "measuring"; at the end "slower", "out" or "chosen".
        microseconds: the median of its calls so far; 0 before the first.
        ratio: how many times that the default took as long; 0 where one of the two is not known.
        why: it is out.
    """

    candidate: str
    state: str
    microseconds: float = 0.0
    ratio: float = 0.0
    why: str = ""

    @property
    def decided(self) -> bool:
        """Whether nothing changes any more."""
        return self.state in ("slower", "out", "chosen")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One stage of one job began or ended, or a candidate of its search stands otherwise than before.

    Attributes:
        stage: "candidate" for that; "capture", "compile" or "tune", "embed", "package" or "verify"; of a cluster "build", of a
            part, and "merge".
        job: the identifier of the job; the model's name where the stage is for all.
        index, total: of the job among the stage's jobs, from 1.
        seconds: how long it took; None where it only began.
        detail: "cached" for a compilation that was done before, else what is worth a word.
        standing: of the candidate.
    """

    stage: str
    job: str
    index: int
    total: int
    seconds: float | None = None
    detail: str = ""
    standing: Standing | None = None


Progress = Callable[[Event], None]


def silent(_: Event) -> None:
    """Watch nothing."""


class Watch:
    """Tells the progress of one job, and keeps its times."""

    def __init__(self, progress: Progress, job: str, index: int, total: int) -> None:
        self._progress = progress
        self._job = (job, index, total)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """Tell that a stage begins and, if the block ends well, that it has ended."""
        self.begin(name)
        said: list[str] = []
        began = time.perf_counter()
        yield said
        self.end(name, time.perf_counter() - began, " ".join(filter(None, said)))

    def begin(self, name: str) -> None:
        """Tell that a stage begins, which goes on beside those of other jobs."""
        job, index, total = self._job
        self._progress(Event(stage=name, job=job, index=index, total=total))

    def end(self, name: str, seconds: float, detail: str = "") -> None:
        """Tell that a stage has ended."""
        self.seconds[name] = seconds
        job, index, total = self._job
        self._progress(
            Event(stage=name, job=job, index=index, total=total, seconds=seconds, detail=detail)
        )

    def stands(self, standing: Standing) -> None:
        """Tell how a candidate of the job's search stands."""
        job, index, total = self._job
        self._progress(
            Event(stage="candidate", job=job, index=index, total=total, standing=standing)
        )
