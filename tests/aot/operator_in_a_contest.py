"""An operator that misbehaves while a variant is timed whose name says how, or kills its compiler."""

import os
import signal
import sys
import time
from pathlib import Path

import torch

HERE = Path(os.environ.get("HOW_TO_FAIL", "/nowhere"))

if Path(sys.argv[0]).name == "compile_apart.py" and HERE.exists():
    how = HERE.read_text(encoding="utf-8")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)


@torch.library.custom_op("contest_test::identity", mutates_args=())
def identity(x: torch.Tensor) -> torch.Tensor:
    """Return a copy."""
    at = Path(sys.argv[-1]) / "at"
    if at.exists() and HERE.exists():
        match at.read_text(encoding="utf-8"):
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(600)
            case "raise":
                raise RuntimeError("as it was asked to")
    return x.clone()


@identity.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
