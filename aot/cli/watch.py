"""The progress of a build: a live line for each job on a terminal, else a line for each stage.

While a job is tuned, its candidates stand in a live table below its line; else each is a line when it is
decided what becomes of it.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..progress import Event, Progress, Standing

if TYPE_CHECKING:
    from rich.console import Group
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
    """Write one line for a stage that has ended or a candidate that is decided; stderr is flushed after it."""
    words = ""
    if event.standing is not None:
        words = _of_candidate(event.standing) if event.standing.decided else ""
    elif event.seconds is not None:
        words = _words(event)
    if words:
        click.echo(f"[{event.index}/{event.total}] {event.job}: {words}", err=True)


class _Board:
    """One line for each job at work; those of finished jobs stay above it."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._stages: dict[str, list[tuple[Event, float]]] = {}
        self._candidates: dict[str, dict[str, tuple[Standing, float]]] = {}

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if event.standing is not None:
            standings = self._candidates.setdefault(event.job, {})
            standings[event.standing.candidate] = (event.standing, time.monotonic())
        elif event.seconds is None:
            if event.job not in self._stages:
                self.settle()
            self._stages.setdefault(event.job, []).append((event, time.monotonic()))
        else:
            self._stages[event.job][-1] = (event, 0.0)
            self._candidates.pop(event.job, None)
        self._live.refresh()  # a stage that is over before the next turn is seen, too

    def settle(self) -> None:
        """Print the lines of jobs that are at no stage, for good."""
        for job, stages in list(self._stages.items()):
            if stages[-1][0].seconds is not None:
                del self._stages[job]
                self._live.console.print(_table({job: stages}))

    def __rich__(self) -> "Group":
        # Called by a thread of rich's own, hence the copies.
        from rich.console import Group

        candidates = [_candidates(dict(each)) for each in list(self._candidates.values())]
        return Group(_table(dict(self._stages)), *candidates)


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


def _candidates(standings: Mapping[str, tuple[Standing, float]]) -> "Table":
    """Return the table of a search."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2), pad_edge=False)
    table.add_column("  candidate", no_wrap=True)
    table.add_column("state", no_wrap=True, overflow="ellipsis")
    table.add_column("time", no_wrap=True, justify="right")
    table.add_column("of default", no_wrap=True, justify="right")
    for standing, since in standings.values():
        state = f"out: {standing.why}" if standing.why else standing.state
        if standing.state == "compiling":
            state = f"{state} {time.monotonic() - since:.0f} s"
        cells = (f"  {standing.candidate}", state, _time(standing), _ratio(standing))
        style = "bold" if standing.state == "chosen" else "dim" if standing.decided else ""
        table.add_row(*map(Text, cells), style=style)
    return table


def _of_candidate(standing: Standing) -> str:
    state = f"out: {standing.why}" if standing.why else standing.state
    ratio = f"{ratio} of default" if (ratio := _ratio(standing)) else ""
    words = ", ".join(filter(None, (state, _time(standing), ratio)))
    return f"candidate {standing.candidate}: {words}"


def _time(standing: Standing) -> str:
    if not standing.microseconds:
        return ""
    if standing.microseconds < 1e4:
        return f"{standing.microseconds:.1f} us"
    return f"{standing.microseconds / 1e3:.1f} ms"


def _ratio(standing: Standing) -> str:
    return f"{standing.ratio:.2f}x" if standing.ratio else ""
