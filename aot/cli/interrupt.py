"""Ctrl-C that is not lost: libraries underneath may swallow the exception that Python makes of it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..progress import Event, Progress


@contextmanager
def heeded(progress: Progress) -> Iterator[Progress]:
    """Give a progress that raises KeyboardInterrupt at the next stage after a Ctrl-C, within the block.

    The exception is raised at once, too; the stages are for where it was caught by somebody else.
    """
    seen: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    def watched(event: Event) -> None:
        if seen:
            raise KeyboardInterrupt
        progress(event)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield watched
    finally:
        signal.signal(signal.SIGINT, before)
