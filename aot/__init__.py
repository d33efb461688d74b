"""Builds artifacts. Its names are imported when they are first used: the command line stays quick."""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import build
    from .plan import Plan
    from .report import Report
    from .spec import Spec
    from .verify import verify

__all__ = ["Plan", "Report", "Spec", "build", "verify"]


def _lazy(name: str, home: str) -> property:
    """Return a property that imports the name; the module of the same name does not replace it."""
    return property(
        lambda self: getattr(importlib.import_module(home, __name__), name),
        lambda self, module: None,
    )


class _Package(types.ModuleType):
    Plan = _lazy("Plan", ".plan")
    Report = _lazy("Report", ".report")
    Spec = _lazy("Spec", ".spec")
    build: Any = _lazy("build", ".build")
    verify: Any = _lazy("verify", ".verify")


sys.modules[__name__].__class__ = _Package
