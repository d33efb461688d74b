"""`module:callable`, imported from beside the spec file."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..formats.code_values import CALLED
from .errors import ModelError


def load_callable(source: str, folder: Path, key: str) -> Callable[..., Any]:
    """Import what `source` names; its module is looked for in `folder`, then as Python does.

    Args:
        source: "module:callable", such as "model:build".
        folder: of the spec file.
        key: of the spec, for messages: "model.source".

    Raises:
        ModelError: the text, the module or the callable is not there, or importing it fails.
    """
    module_name, colon, name = source.partition(":")
    if not colon or not module_name or not name:
        raise ModelError(
            key, found=repr(source), expected="module:callable", tip="e.g. model:build"
        )
    module = _import(module_name, folder, key)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        names = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise ModelError(
            f"{key} = {source!r}",
            found="no such callable" if found is None else f"a {type(found).__name__}",
            expected=f"one of {', '.join(names) or 'no callables there'}",
            tip=f"see {getattr(module, '__file__', module_name)}",
        )
    made: Callable[..., Any] = found
    return made


def _import(name: str, folder: Path, key: str) -> Any:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    sys.path.insert(0, str(folder))
    try:
        if not path.exists():
            return importlib.import_module(name)
        # By file, under a name of its own: two specs may each have a model.py.
        unique = f"_tcbuild_model_{abs(hash(str(path.resolve())))}_{name.replace('.', '_')}"
        if unique in sys.modules:
            return sys.modules[unique]
        spec = importlib.util.spec_from_file_location(unique, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        setattr(module, CALLED, name)
        sys.modules[unique] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[unique]
            raise
        return module
    except Exception as error:
        raise ModelError(
            f"{key}: importing {name!r}",
            found=f"{type(error).__name__}: {error}",
            expected=f"a module that imports (looked in {folder}, then on sys.path)",
            tip="run the import by itself: python -c 'import ...' in that folder",
        ) from error
    finally:
        sys.path.remove(str(folder))
