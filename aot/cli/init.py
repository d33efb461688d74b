"""`tcbuild init`: a spec and a model to start from."""

from pathlib import Path

import click

from ..errors import OutputError
from ..writing import writing
from .templates import FILES


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where to; made if it is not there. The current folder if left out.",
)
def init(out: Path) -> None:
    """Write a tcbuild.toml and a tiny model.py that build as they are."""
    for name in FILES:
        if (out / name).exists():
            tip = "nothing was changed; pass another folder with --out"
            raise OutputError(out / name, found="a file of that name", expected="none", tip=tip)
    with writing(out, tip="pass another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            with (out / name).open("x", encoding="utf-8") as file:
                file.write(text)
    for name in FILES:
        click.echo(f"wrote {out / name}")
    click.echo(f"next: tcbuild build {out / 'tcbuild.toml'} -o {out / 'model.tcb'}")
