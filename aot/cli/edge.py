"""Where errors become text and an exit code."""

import traceback
from collections.abc import Sequence

import click

from ...formats.errors import TcbuildError
from . import EXTRA
from .exit_codes import INTERRUPTED, UNEXPECTED
from .root import root


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return the exit code."""
    try:
        code = root.main(list(arguments), prog_name="tcbuild", standalone_mode=False)
    except TcbuildError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRA:
            raise
        traceback.print_exc()
        return UNEXPECTED
    return code if isinstance(code, int) else 0
