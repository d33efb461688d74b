"""What a build is made of, as digests: the parts of one build must all be made of the same."""

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import torch
import xxhash

from . import structure
from .method import Method
from .source_line import is_users
from .spec import Spec
from .weight_table import tensor_bytes

# Attributes of a Spec that are code: their files count, and what they make. Methods are said one by one.
_CODE: Final = ("model", "inputs", "methods")
_DEPTH: Final = 4  # of functions within functions, which wrappers hold


def digests(spec: Spec, module: torch.nn.Module) -> dict[str, str]:
    """Return the digests by name: `spec`, `weights`, and `source NAME` for each of the user's files.

    Args:
        spec: all that it says but for the code of the model.
        module: what it makes.
    """
    said = _said(spec)
    for entry, method in spec.methods.items():
        said |= {f"methods.{entry}.{name}": text for name, text in _said(method).items()}
    found = {"spec": _sha256(repr(sorted(said.items())).encode()), "weights": _weights(module)}
    sources: dict[str, set[str]] = {}
    for file in sorted(_files(spec, module)):
        if is_users(file) and Path(file).is_file():
            sources.setdefault(Path(file).name, set()).add(_sha256(Path(file).read_bytes()))
    for name, ones in sources.items():
        found[f"source {name}"] = (
            ones.pop() if len(ones) == 1 else _sha256(repr(sorted(ones)).encode())
        )
    return found


def _said(asked: Spec | Method) -> dict[str, str]:
    return {f.name: repr(getattr(asked, f.name)) for f in fields(asked) if f.name not in _CODE}


def _files(spec: Spec, module: torch.nn.Module) -> set[str]:
    """Return the files that the classes of the model and the functions of the spec stand in."""
    files: set[str] = set()
    for part in module.modules():
        for kind in type(part).__mro__:
            files.update(code.co_filename for code in _codes(vars(kind).get("forward"), 0))
    inputs = (method.inputs for method in spec.methods.values())
    methods = (getattr(type(module), name, None) for name in spec.methods)
    for function in (spec.model, spec.inputs, *inputs, *methods):
        files.update(code.co_filename for code in _codes(function, 0))
    return files


def _codes(value: Any, depth: int) -> Iterator[CodeType]:
    """Yield the code of a function, and of those that it holds."""
    if depth > _DEPTH:
        return
    if isinstance(value, functools.partial):
        yield from _codes(value.func, depth + 1)
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        yield function.__code__
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # nothing yet
                continue
            if isinstance(held, Callable):  # type: ignore[arg-type]
                yield from _codes(held, depth + 1)


def _weights(module: torch.nn.Module) -> str:
    digest = xxhash.xxh3_128()
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, tensor in sorted(named.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.layout is torch.strided:
            digest.update(tensor_bytes(structure.dense(tensor.detach()).contiguous().cpu()))
    return f"xxh3_128:{digest.hexdigest()}"


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
