"""What `tcbuild build` shows of a search: a table that is drawn anew, or a line for each candidate."""

import io

import pytest
from rich.console import Console
from rich.live import Live

from tcbuild.aot.cli import watch
from tcbuild.aot.progress import Event, Standing, Watch
from tcbuild.aot.tuning.standings import Standings


def search(watched: Watch) -> None:
    """Tell a search among four."""
    standings = Standings(watched.stands)
    for name in ("default", "256 bits", "crash", "wrong"):
        standings.compiling(name)
    standings.compiled("default")
    standings.compiled("256 bits")
    standings.compiled("wrong")
    standings.out("crash", "the compiler's process ended with signal SIGKILL")
    standings.measured({"default": 130.0, "256 bits": 98.0, "wrong": 50.0})
    standings.measured({"default": 131.0, "256 bits": 100.0, "wrong": 50.0}, slower=["default"])
    standings.out("wrong", "out: too far off")
    standings.chosen("256 bits")


def test_a_line_for_each_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watch(watch.line, "batch=8@cpu", 1, 2)
    with watched.stage("tune") as said:
        search(watched)
        said.append("256 bits, 1.31x of default")
    lines = capsys.readouterr().err.splitlines()
    start = "[1/2] batch=8@cpu: "
    assert lines[:-1] == [
        f"{start}candidate crash: out: the compiler's process ended with signal SIGKILL",
        f"{start}candidate default: slower, 131.0 us, 1.00x of default",
        f"{start}candidate wrong: out: out: too far off, 50.0 us, 2.62x of default",
        f"{start}candidate 256 bits: chosen, 100.0 us, 1.31x of default",
    ]
    assert lines[-1].startswith(f"{start}tune 0.0 s (256 bits, 1.31x of default)")


def test_a_table_while_it_goes_on() -> None:
    console = Console(file=io.StringIO(), width=100)
    board = watch._Board(Live(console=console, auto_refresh=False))
    watched = Watch(board, "batch=8@cpu", 1, 2)

    def shown() -> list[list[str]]:
        with console.capture() as captured:
            console.print(board)
        return [line.split() for line in captured.get().splitlines()]

    with watched.stage("tune"):
        standings = Standings(watched.stands)
        standings.compiling("default")
        assert shown()[1:] == [
            ["candidate", "state", "time", "of", "default"],
            ["default", "compiling", "0", "s"],
        ]
        search(watched)
        rows = {row[0]: row[1:] for row in shown()[2:]}
    assert rows["256"] == ["bits", "chosen", "100.0", "us", "1.31x"]
    assert rows["default"] == ["slower", "131.0", "us", "1.00x"]
    assert rows["crash"][:3] == ["out:", "the", "compiler's"]
    assert len(shown()) == 1  # the job's line: what was measured is in the artifact


def test_a_state_is_told_once() -> None:
    told: list[Standing] = []
    standings = Standings(told.append)
    for _ in range(2):
        standings.compiled("default")
        standings.measured({"default": 2e4})
    assert [one.state for one in told] == ["compiled", "measuring", "compiled", "measuring"]
    assert watch._of_candidate(told[1]) == "candidate default: measuring, 20.0 ms, 1.00x of default"
    assert not Event(stage="tune", job="j", index=1, total=1).standing
