"""Floating point in double precision: what a graph would answer if nothing were rounded to less."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_LOW: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})


class DoublePrecision(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, an operator that asks for a floating-point dtype gets float64.

    So does one that makes fractions of integers, which takes torch's default dtype: that is float64
    meanwhile, in the whole process.
    """

    def __enter__(self) -> Any:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *raised: Any) -> None:
        torch.set_default_dtype(self._default)
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = {name: _widen(value) for name, value in (kwargs or {}).items()}
        return func(*map(_widen, args), **named)


def double(tensor: torch.Tensor) -> torch.Tensor:
    """Return a floating-point tensor in float64, any other as it is."""
    return tensor.double() if tensor.dtype in _LOW else tensor


def _widen(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _LOW else value
