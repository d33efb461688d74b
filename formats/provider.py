"""The Python modules that register an artifact's custom operators."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping


def bring_in(modules: Mapping[str, str]) -> None:
    """Import modules by name where Python finds them, else from their files.

    One that is found nowhere is left out: whatever needs it says so.

    Args:
        modules: the file of each module, or "".
    """
    for name, file in modules.items():
        try:
            importlib.import_module(name)
        except ImportError:
            spec = importlib.util.spec_from_file_location(name, file) if file else None
            if spec is not None and spec.loader is not None:
                sys.modules[name] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(sys.modules[name])
