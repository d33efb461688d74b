"""Operators that do not come with torch, looked for before anything that calls them is loaded."""

from collections.abc import Iterable

import torch

from ..formats.variant import Variant
from .errors import OperatorError

_LOAD_LIBRARY = "load it with torch.ops.load_library before runtime.load"


def check(variants: Iterable[Variant], where: str) -> None:
    """Refuse to load variants whose operators are not registered in this process.

    Raises:
        OperatorError: naming the operator and what registers it.
    """
    for variant in variants:
        for name, module in variant.operators.items():
            if not _is_registered(name):
                raise OperatorError(
                    where,
                    found=f"no operator {name!r}",
                    expected=f"the module {module}" if module else "the library that registers it",
                    tip=f"import {module} before runtime.load" if module else _LOAD_LIBRARY,
                )


def _is_registered(name: str) -> bool:
    namespace, _, operator = name.partition("::")
    return hasattr(getattr(torch.ops, namespace), operator)
