"""Operators that do not come with torch, looked for before anything that calls them is loaded."""

import logging
from collections.abc import Iterable

import torch

from ..formats.variant import COMPILED, Variant
from .errors import OperatorError

logger = logging.getLogger("tcbuild.runtime")

_LOAD_LIBRARY = "load it with torch.ops.load_library before runtime.load"


def known(variants: Iterable[Variant], where: str) -> list[Variant]:
    """Return the variants whose operators are registered in this process.

    An embedded graph may be left out: it may call, as an operator, what the libraries have compiled in.

    Raises:
        OperatorError: a library's are not; naming the operator and what registers it.
    """
    found = []
    for variant in variants:
        missing = [name for name in variant.operators if not _is_registered(name)]
        if missing and variant.form in COMPILED:
            module = variant.operators[missing[0]]
            raise OperatorError(
                where,
                found=f"no operator {missing[0]!r}",
                expected=f"the module {module}" if module else "the library that registers it",
                tip=f"import {module} before runtime.load" if module else _LOAD_LIBRARY,
            )
        if missing:
            logger.warning(
                "%s: %s is left out: no operator %r; a call that no variant accepts raises",
                where,
                variant.id,
                missing[0],
            )
        else:
            found.append(variant)
    return found


def _is_registered(name: str) -> bool:
    namespace, _, operator = name.partition("::")
    return hasattr(getattr(torch.ops, namespace), operator)
