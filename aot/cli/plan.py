"""`tcbuild plan`: every job, before anything is built."""

from dataclasses import asdict
from pathlib import Path

import click

from . import options


@click.command()
@click.argument("spec", type=options.EXISTING)
@click.option(
    "--shards",
    type=click.IntRange(min=1),
    metavar="N",
    help="Say which jobs go to which of N parts: see tcbuild build --shard.",
)
@options.as_json
def plan(spec: Path, shards: int | None, as_json: bool) -> None:
    """Print the id of every job of SPEC, a tcbuild.toml.

    Nothing is built; the module that SPEC names is imported.
    """
    from ..plan import Plan
    from ..report import json_text
    from ..spec import Spec

    with options.aside():
        planned = Plan.of(Spec.load(spec))
        parts = [planned.part(i + 1, shards) for i in range(shards)] if shards else []
    shard = {job.id: i for i, part in enumerate(parts, start=1) for job in part.jobs}
    if as_json:
        jobs = [
            {
                "id": job.id,
                "bucket": asdict(job.bucket)["dims"],
                "target": asdict(job.target),
                **({"shard": f"{shard[job.id]}/{shards}"} if shards else {}),
            }
            for job in planned.jobs
        ]
        click.echo(json_text({"name": planned.name, "jobs": jobs}), nl=False)
    elif shards:
        click.echo(f"{planned.name}: {len(planned.jobs)} jobs in {shards} parts")
        for i, part in enumerate(parts, start=1):
            click.echo(f"{i}/{shards}")
            for job in part.jobs:
                click.echo(f"  {job.id}")
    else:
        click.echo(planned)
