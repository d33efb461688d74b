"""`tcbuild build`: from a spec to an artifact."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from . import options
from . import shard as shards
from .interrupt import heeded
from .outcome import reported
from .watch import watching


@click.command()
@click.argument("spec", type=options.EXISTING)
@click.option(
    "-o", "--out", type=options.NEW, required=True, metavar="FILE", help="The artifact to write."
)
@options.report
@click.option("--no-verify", is_flag=True, help="Leave out the check of every variant.")
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Build only the jobs whose id matches, such as 'batch=8,*'; may be repeated.",
)
@click.option(
    "--shard",
    callback=shards.read,
    metavar="i/N",
    help="Build part i of N alone, for tcbuild merge; tcbuild plan --shards N prints the parts.",
)
@click.option(
    "--tuning-from",
    type=options.EXISTING,
    metavar="ARTIFACT",
    help="Choose what its search has chosen, and measure only what it has no variant for.",
)
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where the jobs are built: here, or on the Ray cluster of $RAY_ADDRESS.",
)
@click.option(
    "--cache",
    metavar="URL",
    help="Share finished jobs with other machines at any URL that fsspec knows: s3://, gs://, file://; "
    "$TCBUILD_SHARED_CACHE where left out.",
)
def build(
    spec: Path,
    out: Path,
    report: Path | None,
    no_verify: bool,
    only: tuple[str, ...],
    shard: tuple[int, int] | None,
    tuning_from: Path | None,
    executor: str,
    cache: str | None,
) -> None:
    """Build the artifact that SPEC, a tcbuild.toml, asks for.

    FILE is replaced when the new one is complete and checked, or stays as it is. What was compiled is
    kept: a build that was stopped goes on where it was.
    """
    if executor == "ray" and shard is not None:
        message = "--shard and --executor ray are two ways to build in parts: use one of them"
        raise click.UsageError(message)
    if executor == "ray" and tuning_from is not None:
        message = "--tuning-from is read on this machine: build with --executor local, or in parts"
        raise click.UsageError(message)
    from ..build import build as make
    from ..cluster import build as on_ray
    from ..job_cache import JobCache
    from ..shared_cache import SharedCache
    from ..spec import Spec

    with reported("build", report) as keep:
        with options.aside(), watching() as shown, heeded(shown) as progress:
            changes: dict[str, Any] = {"verify": False} if no_verify else {}
            if executor == "ray":
                made = on_ray(spec, out, only=only, changes=changes, progress=progress, cache=cache)
            else:
                asked = replace(Spec.load(spec), **changes)
                jobs = JobCache(shared=SharedCache(cache) if cache else None)
                made = make(
                    asked,
                    out,
                    only=only,
                    shard=shard,
                    progress=progress,
                    cache=jobs,
                    tuning_from=tuning_from,
                )
        keep(made)
    click.echo(made)
