"""What a build is doing, told to whoever watches it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Event:
    """One stage of one job began or ended.

    Attributes:
        stage: "capture", "compile", "embed", "package" or "verify".
        job: the identifier of the job; the model's name where the stage is for all.
        index, total: of the job among the stage's jobs, from 1.
        seconds: how long it took; None where it only began.
        detail: "cached" for a compilation that was done before, else what is worth a word.
    """

    stage: str
    job: str
    index: int
    total: int
    seconds: float | None = None
    detail: str = ""


Progress = Callable[[Event], None]


def silent(_: Event) -> None:
    """Watch nothing."""
