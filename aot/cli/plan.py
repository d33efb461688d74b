"""`tcbuild plan`: every job, before anything is built."""

from dataclasses import asdict
from pathlib import Path

import click

from . import options


@click.command()
@click.argument("spec", type=options.EXISTING)
@options.as_json
def plan(spec: Path, as_json: bool) -> None:
    """Print the id of every job of SPEC, a tcbuild.toml.

    Nothing is built; the module that SPEC names is imported.
    """
    from ..plan import Plan
    from ..report import json_text
    from ..spec import Spec

    with options.aside():
        planned = Plan.of(Spec.load(spec))
    if as_json:
        jobs = [
            {"id": job.id, "bucket": asdict(job.bucket)["dims"], "target": asdict(job.target)}
            for job in planned.jobs
        ]
        click.echo(json_text({"name": planned.name, "jobs": jobs}), nl=False)
    else:
        click.echo(planned)
