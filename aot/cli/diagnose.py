"""`tcbuild diagnose`: the first layer between a model and its artifact that is at fault."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from . import exit_codes, options


@click.command()
@click.argument("spec", type=options.EXISTING)
@click.option(
    "--job", metavar="PATTERN", help="The job to look at, by its id; the first if left out."
)
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("diagnosis"),
    show_default=True,
    metavar="FOLDER",
    help="Where report.txt and, after a fault, repro.py are written.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a layer may take before it counts as one that hangs.",
)
@options.as_json
@click.pass_context
def diagnose(
    context: click.Context, spec: Path, job: str | None, out: Path, timeout: float, as_json: bool
) -> None:
    """Find the layer and the operator that make SPEC go wrong.

    SPEC is a tcbuild.toml. Its model is run through one layer after the other, each in a process of its own:
    eager, the captured graph, Dynamo, AOTAutograd, decompositions, Inductor without fusion and with it,
    AOTInductor, the artifact. The first that fails, crashes, hangs or differs is searched for the operators at
    fault, and a small program that shows them is written. The exit code is 30 where there is such a layer.
    """
    from ..diagnose import words
    from ..diagnose.diagnosis import diagnose as climb
    from ..errors import FaultError
    from ..report import json_text
    from ..writing import write_whole, writing

    with options.aside(), _watching() as watch:
        found = climb(spec, job=job, out=out, seconds=timeout, watch=watch)
    text = "\n".join(words.lines(found)) + "\n"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    write_whole(text, out / "report.txt")
    click.echo(json_text(found) if as_json else text, nl=False)
    if found.fault is not None:
        context.exit(exit_codes.exit_code(FaultError(spec, found=found.fault.said, expected="")))


@contextmanager
def _watching() -> Iterator[Callable[[str, str, float, int], None]]:
    """Give a function that shows a rung on stderr: on a terminal while it goes on, else at its end."""
    from ..diagnose.words import of_rung

    live = sys.stderr.isatty()

    def show(rung: str, state: str, seconds: float, peak: int) -> None:
        if live:
            going = "\r" if state == "..." else "\r\033[K"
            click.echo(going + of_rung(rung, state, seconds, peak), nl=False, err=True)
        elif state != "...":
            click.echo(of_rung(rung, state, seconds, peak).strip(), err=True)
        if live and state != "...":
            click.echo("", err=True)

    yield show
    if live:
        click.echo("\r\033[K", nl=False, err=True)
