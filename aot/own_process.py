"""Modules of ours that run in processes of their own."""

import contextlib
import os
import signal
import subprocess
import sys


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of the package: `runtime.replay`."""
    return [sys.executable, "-m", f"tcbuild.{module}", *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment, with what it imports from as the other's, too."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process that leads a session of its own, with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
