"""The kinds of value that several commands take."""

import contextlib
import sys
from pathlib import Path
from typing import Final

import click

EXISTING: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW: Final = click.Path(dir_okay=False, path_type=Path)

as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
weights: Final = click.option(
    "--weights",
    type=EXISTING,
    metavar="PATH",
    help="The file with the weights, where they are in one of their own that is not beside FILE.",
)
report: Final = click.option(
    "--report", type=NEW, metavar="FILE", help="Write JSON to FILE too, also after an error."
)


def aside() -> contextlib.AbstractContextManager[object]:
    """Send what the user's own code prints to stderr, within the block: stdout is for the answer."""
    return contextlib.redirect_stdout(sys.stderr)
