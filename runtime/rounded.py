"""Products as a variant with `fp32_precision` "bf16" makes them: what the same costs eager in accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Which arguments of an operator are multiplied.
_FACTORS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(["mm", "bmm", "matmul", "linear", "mv", "dot"], (0, 1)),
    **dict.fromkeys(["addmm", "baddbmm", "addmv"], (1, 2)),
    **dict.fromkeys(["convolution", "conv1d", "conv2d", "conv3d"], (0, 1)),
    **dict.fromkeys(
        ["scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"], (0, 1, 2)
    ),
}


class RoundedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, float32 factors of products, and what these return, have the values of bfloat16.

    Dtypes stay as they are.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        factors = _FACTORS.get(func._schema.name.partition("::")[2], ())
        given = [_rounded(arg) if i in factors else arg for i, arg in enumerate(args)]
        made = func(*given, **(kwargs or {}))
        if not factors:
            return made
        return (_rounded(made[0]), *made[1:]) if isinstance(made, tuple) else _rounded(made)


def _rounded(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return value.bfloat16().float()
    return value
