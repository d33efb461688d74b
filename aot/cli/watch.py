"""The progress of a build: a live line for each job on a terminal, else a line for each stage."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..progress import Event, Progress

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table


@contextmanager
def watching() -> Iterator[Progress]:
    """Give a function that shows events on stderr, within the block."""
    if not sys.stderr.isatty():
        yield line
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=8) as live:
        board = _Board(live)
        live.update(board)
        yield board
        board.settle()


def line(event: Event) -> None:
    """Write one line for a stage that has ended; stderr is flushed after it."""
    if event.seconds is not None:
        click.echo(f"[{event.index}/{event.total}] {event.job}: {_words(event)}", err=True)


class _Board:
    """One line for each job at work; those of finished jobs stay above it."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._stages: dict[str, list[tuple[Event, float]]] = {}

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if event.seconds is None:
            if event.job not in self._stages:
                self.settle()
            self._stages.setdefault(event.job, []).append((event, time.monotonic()))
        else:
            self._stages[event.job][-1] = (event, 0.0)
        self._live.refresh()  # a stage that is over before the next turn is seen, too

    def settle(self) -> None:
        """Print the lines of jobs that are at no stage, for good."""
        for job, stages in list(self._stages.items()):
            if stages[-1][0].seconds is not None:
                del self._stages[job]
                self._live.console.print(_table({job: stages}))

    def __rich__(self) -> "Table":
        # Called by a thread of rich's own, hence the copy.
        return _table(dict(self._stages))


def _table(jobs: Mapping[str, list[tuple[Event, float]]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    for job, stages in jobs.items():
        words = ", ".join(_words(event, began) for event, began in stages)
        table.add_row(Text(job), Text(words))
    return table


def _words(event: Event, began: float = 0.0) -> str:
    seconds = time.monotonic() - began if event.seconds is None else event.seconds
    going_on = " ..." if event.seconds is None else ""
    detail = f" ({event.detail})" if event.detail else ""
    return f"{event.stage} {seconds:.1f} s{detail}{going_on}"
