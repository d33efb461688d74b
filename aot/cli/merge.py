"""`tcbuild merge`: the parts of a build, joined."""

from pathlib import Path

import click

from . import options
from .outcome import reported


@click.command()
@click.argument("parts", type=options.EXISTING, nargs=-1, required=True, metavar="PART...")
@click.option(
    "-o", "--out", type=options.NEW, required=True, metavar="FILE", help="The artifact to write."
)
@options.report
def merge(parts: tuple[Path, ...], out: Path, report: Path | None) -> None:
    """Join the PARTs of a build, all of them, into one artifact.

    They are what `tcbuild build --shard i/N` has written.

    The artifact has the bytes that a build in one piece would have. Parts that are missing, there twice,
    or made from other specs, sources, weights or environments are refused by name.
    """
    from ..merge import merge as join

    with reported("merge", report) as keep:
        made = join(parts, out)
        keep(made)
    click.echo(made)
