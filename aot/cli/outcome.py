"""`--report`: what a command came to, as JSON, for the pipeline that ran it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ...formats.errors import TcbuildError
from ..errors import OutputError
from ..report import write_json
from ..writing import need_folder
from .exit_codes import exit_code


@contextmanager
def reported(command: str, path: Path | None) -> Iterator[Callable[[object], None]]:
    """Write a report when the block ends, well or not; nothing where `path` is None.

    The block gets a function that takes what the command made: the report's `result`.

    Raises:
        OutputError: the report cannot be written; known before the block begins where its folder is
            not there.
    """
    made: list[object] = [None]
    if path is not None:
        need_folder(path)
    try:
        yield made.append
    except BaseException as error:
        try:
            _write(path, command, made[-1], error)
        except OutputError as second:  # the first error is the one to exit with
            click.echo(f"error: {second}", err=True)
        raise
    _write(path, command, made[-1], None)


def _write(path: Path | None, command: str, made: object, error: BaseException | None) -> None:
    if path is not None:
        record = {
            "command": command,
            "exit_code": 0 if error is None else exit_code(error),
            "error": None if error is None else _describe(error),
            "result": made,
        }
        write_json(record, path)


def _describe(error: BaseException) -> dict[str, str]:
    described = {"class": type(error).__name__, "message": str(error)}
    if isinstance(error, TcbuildError):
        described |= {
            "where": error.where,
            "found": error.found,
            "expected": error.expected,
            "tip": error.tip,
        }
    return described
