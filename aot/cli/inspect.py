"""`tcbuild inspect`: what is in an artifact. Reads it without torch."""

from pathlib import Path

import click

from ...formats.container import Artifact
from ...formats.record import encode
from . import contents, options


@click.command()
@click.argument("file", type=options.EXISTING)
@options.as_json
@click.option("--guards", is_flag=True, help="Print what each variant requires, in words.")
@click.option("--trials", is_flag=True, help="Print what the search for fast code measured.")
@click.option("--check", is_flag=True, help="Read all of FILE and check every digest in it.")
@options.weights
def inspect(
    file: Path, as_json: bool, guards: bool, trials: bool, check: bool, weights: Path | None
) -> None:
    """Print what FILE, a .tcb artifact, takes, returns and holds.

    Nothing of it is run.
    """
    from ..report import json_text

    with Artifact(file) as artifact:
        if check:
            artifact.check(weights)
        manifest = artifact.manifest
    size = file.stat().st_size
    if as_json:
        record = {"path": file, "bytes": size, "checked": check, "manifest": encode(manifest)}
        if guards:
            words = {variant.id: list(map(str, variant.guards)) for variant in manifest.variants}
            record["guards"] = words
        click.echo(json_text(record), nl=False)
        return
    for line in contents.lines(manifest, file, size, guards=guards, trials=trials):
        click.echo(line)
    if check:
        click.echo(f"\nall {len(manifest.sections)} sections have the digest that was recorded")
        external = manifest.weights.external if manifest.weights is not None else None
        if external is not None:
            many, name = len(external.tensors), external.file if weights is None else weights
            click.echo(f"all {many} tensors of {name} have the digest that was recorded")
