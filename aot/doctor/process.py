"""A program in a process of its own: a crash there is a finding, and no crash of ours."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .. import own_process
from .finding import brief

SECONDS: Final = 300  # a compiler that takes longer for ten lines is as good as none


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        failure: empty where it ended well, else in words: `exit code 1: ...`, `signal 11 (SIGSEGV)`.
        output: what it wrote, to stdout and stderr.
        signal: the number of the signal that ended it, or 0.
    """

    failure: str
    output: str
    signal: int = 0


def run(command: Sequence[str | os.PathLike[str]], lines: int = 3) -> Ended:
    """Run a program to its end.

    Args:
        command: the program and its arguments.
        lines: how many of its last lines to quote where it fails.
    """
    environment = own_process.environment()
    try:
        done = subprocess.run(
            [os.fspath(part) for part in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except OSError as error:
        return Ended(failure=error.strerror or str(error), output="")
    except subprocess.TimeoutExpired:
        return Ended(failure=f"no end after {SECONDS} s", output="")
    said = brief(done.stdout, lines)
    ending = _ending(done.returncode)
    failure = f"{ending}: {said}" if ending and said else ending
    return Ended(failure=failure, output=done.stdout, signal=max(0, -done.returncode))


def python(script: str, *arguments: str | os.PathLike[str], lines: int = 3) -> Ended:
    """Run a script in a fresh interpreter that finds the modules this one finds."""
    return run([sys.executable, "-c", script, *arguments], lines)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}" if code else ""
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
