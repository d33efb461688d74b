"""The order of the checks."""

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...formats.errors import TcbuildError
from . import compiler, cuda, folders, library, packages
from .finding import PROBLEM, Check, Finding, brief, note, problem


def examine(target: str | None = None) -> Iterator[tuple[str, Finding]]:
    """Check the build environment; yield each check's name with what it found, as it ends.

    Args:
        target: "cpu", or "cuda" for the GPU, too; where left out, the GPU's if torch can use one.
    """
    with contextlib.ExitStack() as stack:
        try:
            made = tempfile.TemporaryDirectory(prefix="tcbuild-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
        except OSError:  # a check of its own says so, and those that need the folder are left out
            folder = Path("/nonexistent")
        yield from perform(_checks(target, folder))


def perform(checks: Iterable[Check]) -> Iterator[tuple[str, Finding]]:
    """Run checks in order; yield each one's name with what it found.

    One that needs another that did not end well is left out, with a note.
    """
    failed: set[str] = set()
    for check in checks:
        missing = [name for name in check.needs if name in failed]
        found = _left_out(missing) if missing else _found(check)
        if missing or found.status == PROBLEM:
            failed.add(check.name)
        yield check.name, found


def _checks(target: str | None, folder: Path) -> Iterator[Check]:
    """Yield the checks; torch is asked for a GPU only after its own check has ended."""
    yield from packages.checks()
    yield from folders.checks()
    yield from compiler.checks(folder)
    yield from folders.loading_checks(folder)
    yield from library.checks("cpu", folder, needs=())
    if target == "cuda" or (target is None and cuda.available()):
        yield from cuda.checks(folder)
        yield from library.checks("cuda", folder, needs=cuda.NEEDED_TO_COMPILE)


def _found(check: Check) -> Finding:
    """Run a check; what it prints goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check.run()
    except TcbuildError as error:
        found = brief(f"{error.where}: {error.found}")
        return problem(found, expected=error.expected, cure=error.tip)
    except (Exception, SystemExit) as error:
        return problem(
            f"{type(error).__name__}: {brief(str(error)) or 'no message'}",
            expected="a check that ends",
            cure="solve the problems above first; if there are none, report this line as a bug",
        )


def _left_out(missing: list[str]) -> Finding:
    names = ", ".join(missing)
    return note("not checked", expected=f"{names} in order", cure=f"first solve: {names}")
