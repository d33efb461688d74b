"""`tcbuild verify`: every variant against eager."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...formats.container import Artifact
from ...formats.variant import STEP
from . import options
from .columns import columns
from .outcome import reported

if TYPE_CHECKING:
    from ..verify import Row

HEAD = ("sizes", "output", "error", "eager", "allowed", "")


@click.command()
@click.argument("file", type=options.EXISTING)
@click.option(
    "--spec",
    type=options.EXISTING,
    metavar="SPEC",
    help="Hold it against the model and the inputs of this tcbuild.toml, instead of the graphs in "
    "FILE and values drawn like the ones it was built with.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="TIMES",
    help="How many times eager's own error is allowed; the spec's, or 2, if left out.",
)
@options.weights
@options.as_json
@options.report
def verify(
    file: Path,
    spec: Path | None,
    tolerance: float | None,
    weights: Path | None,
    as_json: bool,
    report: Path | None,
) -> None:
    """Check every variant of FILE, a .tcb artifact, against eager.

    The artifact is loaded in a fresh process. Errors are the largest difference of an output to a run in
    float64, of the variant and of eager. Training steps are checked with --spec only. The exit code is 24 if
    a row fails.
    """
    from ..report import json_text
    from ..verify import refuse

    with reported("verify", report) as keep:
        with options.aside():
            rows = _check(file, spec, tolerance, weights)
        unchecked = _unchecked(file, rows)
        made = {"artifact": file, "ok": not any(row.problem for row in rows), "rows": rows}
        made["unchecked"] = unchecked
        keep(made)
        if as_json:
            click.echo(json_text(made), nl=False)
        else:
            for line in _text(rows):
                click.echo(line)
            for variant in unchecked:
                click.echo(
                    f"{variant}\n  not checked: a training step needs the model: --spec SPEC"
                )
        refuse(rows, file)


def _check(
    file: Path, spec: Path | None, tolerance: float | None, weights: Path | None
) -> Sequence["Row"]:
    from .. import operators
    from ..build import calls_of, make_module
    from ..plan import Plan
    from ..spec import Spec
    from ..verify import verify as check

    if spec is None:
        return check(file, tolerance=2.0 if tolerance is None else tolerance, weights=weights)
    asked = Spec.load(spec)
    module = make_module(asked)
    return check(
        file,
        module=module,
        inputs=calls_of(asked, Plan.of(asked), module),
        imports=operators.files(),
        tune={name: dim.example() for name, dim in asked.dims.items()},
        tolerance=asked.tolerance if tolerance is None else tolerance,
        weights=weights,
    )


def _unchecked(file: Path, rows: Sequence["Row"]) -> list[str]:
    """Return the training steps that no row is about."""
    checked = {row.variant for row in rows}
    with Artifact(file) as artifact:
        variants = artifact.manifest.variants
    return [v.id for v in variants if v.form == STEP and v.id not in checked]


def _text(rows: Sequence["Row"]) -> Iterator[str]:
    """Yield a line for each row, under a line for each variant; a row that fails is explained."""
    lines = list(columns([HEAD, *map(_cells, rows)], right=(2, 3, 4)))
    yield f"  {lines[0]}"
    numbered = zip(rows, lines[1:], strict=True)
    for variant, group in groupby(numbered, key=lambda pair: pair[0].variant):
        yield variant
        for row, line in group:
            yield f"  {line}"
            if row.problem:
                yield f"    {row.problem}"


def _cells(row: "Row") -> tuple[str, ...]:
    numbers = (_number(number) for number in (row.error, row.eager, row.allowed))
    return (row.sizes or "-", row.output, *numbers, "FAIL" if row.problem else "ok")


def _number(number: float) -> str:
    return f"{number:.2g}" if math.isfinite(number) else "any"
