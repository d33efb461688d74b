"""`tcbuild diff`: what two artifacts have that is not the same. Reads them without torch."""

from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from ...formats.container import Artifact
from ...formats.difference import between
from . import exit_codes, options


@click.command()
@click.argument("first", type=options.EXISTING)
@click.argument("second", type=options.EXISTING)
@options.as_json
@click.pass_context
def diff(context: click.Context, first: Path, second: Path, as_json: bool) -> None:
    """Say what is not the same in two .tcb artifacts.

    Guards, variants, kernels, options, tuning, environment, weights. Nothing of either is run. The exit
    code is 3 where something is different.
    """
    from ..report import json_text

    with Artifact(first) as one, Artifact(second) as two:
        found = between(one, two)
    if as_json:
        record = {"first": first, "second": second, "differences": [asdict(d) for d in found]}
        click.echo(json_text(record), nl=False)
    elif not found:
        click.echo("the same")
    for part, some in groupby(() if as_json else found, key=lambda difference: difference.part):
        click.echo(part)
        for difference in some:
            click.echo(f"  {difference}")
    if found:
        context.exit(exit_codes.DIFFERENT)
