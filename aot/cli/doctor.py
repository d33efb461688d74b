"""`tcbuild doctor`: is all here that a build needs?"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .outcome import reported

if TYPE_CHECKING:
    from ..doctor import Finding


@click.command()
@click.option(
    "--target",
    type=click.Choice(["cpu", "cuda"]),
    help="What is to be built for; cuda checks the GPU, too. Left out: cuda where torch finds a GPU.",
)
@click.option(
    "--json",
    "--report",
    "report",
    type=options.NEW,
    metavar="FILE",
    help="Write what was found to FILE too, as JSON.",
)
def doctor(target: str | None, report: Path | None) -> None:
    """Check the build environment: compiler, torch, folders, GPU.

    Prints a line for each check, with what to type where something is missing. The exit code is 26 if
    a check finds a problem; a note is something that a build can do without.
    """
    from ..doctor import PROBLEM, examine
    from ..errors import ToolError

    with reported("doctor", report) as keep:
        findings: list[tuple[str, Finding]] = []
        for name, finding in examine(target):
            findings.append((name, finding))
            for line in _lines(name, finding):
                click.echo(line)
        problems = [name for name, finding in findings if finding.status == PROBLEM]
        rows = [{"check": name, **asdict(finding)} for name, finding in findings]
        keep({"ok": not problems, "checks": rows})
        if problems:
            raise ToolError(
                "doctor",
                found=f"a problem with {', '.join(problems)}",
                expected="none",
                tip="do what is printed under each, in this order; then run tcbuild doctor again",
            )


def _lines(name: str, finding: "Finding") -> Iterator[str]:
    expected = f"; expected {finding.expected}" if finding.expected else ""
    yield f"{finding.status:<8} {name}: {finding.found}{expected}"
    if finding.cure:
        yield f"{'':<8} cure: {finding.cure}"
