"""How a weight is packed: put into the order in which a library's kernels read it, when it is loaded."""

from dataclasses import dataclass
from typing import Final

from .errors import ManifestError
from .strict_json import show

FEATURE: Final = (
    "packed_weights"  # in the manifest's `requires`: as it is, a weight is read wrongly
)
LINEAR: Final = "linear"
CONVOLUTION: Final = "convolution"
BLOCKS: Final = "blocks"
KINDS: Final = (LINEAR, CONVOLUTION, BLOCKS)
FLOAT32: Final = "float32"
BFLOAT16: Final = "bfloat16"
MAX_BLOCK: Final = 1 << 10  # outputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """How a weight is packed for an operator: by oneDNN, which is told this, or in blocks.

    Attributes:
        kind: "linear": a weight of 2 axes, [out, in]; "convolution": of 4 or 5, [out, in / groups,
            kernel...]; "blocks": the weight of a linear as [out / block, in, block].
        transposed: whether the weight of a linear or in blocks is [in, out].
        rows: of the input of a linear: 1, or 0 for any other number.
        padding, stride, dilation: of a convolution, for each axis of the kernel.
        groups: of a convolution.
        block: how many outputs are beside each other; the last block is filled up with 0.
        input: the sizes of a convolution's input: [batch, channels, ...].
        dtype: of the packed copy: "float32", or "bfloat16" for a linear or a convolution that takes its
            weight rounded.
    """

    kind: str
    transposed: bool = False
    rows: int = 0
    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    block: int = 0
    input: tuple[int, ...] = ()
    dtype: str = FLOAT32


def check(packing: Packing, shape: tuple[int, ...], dtype: str, where: str) -> None:
    """Refuse a packing that no weight of a form can have.

    Args:
        packing: the record.
        shape, dtype: of the weight.
        where: for messages.

    Raises:
        ManifestError: naming what does not fit.
    """
    expected = f"one of {', '.join(KINDS)}"
    if packing.kind not in KINDS:
        raise ManifestError(where, found=f"kind {show(packing.kind)}", expected=expected)
    if dtype != FLOAT32:
        raise ManifestError(where, found=f"a weight of {dtype}", expected=f"one of {FLOAT32}")
    dtypes = (FLOAT32,) if packing.kind == BLOCKS else (FLOAT32, BFLOAT16)
    if packing.dtype not in dtypes:
        found = f"{packing.kind} packed as {show(packing.dtype)}"
        raise ManifestError(where, found=found, expected=" or ".join(dtypes))
    if packing.kind == BLOCKS:
        if len(shape) != 2 or not 0 < packing.block <= MAX_BLOCK:
            found = f"a weight of shape {show(list(shape))} in blocks of {packing.block}"
            raise ManifestError(
                where, found=found, expected=f"2 axes, in blocks of 1 to {MAX_BLOCK}"
            )
        return
    if packing.kind == LINEAR:
        if len(shape) != 2 or packing.rows not in (0, 1):
            found = f"a weight of shape {show(list(shape))} for {packing.rows} rows"
            raise ManifestError(where, found=found, expected="2 axes, for 0 or 1 rows")
        return
    axes = len(shape) - 2
    steps = (packing.padding, packing.stride, packing.dilation)
    whole = axes in (2, 3) and all(len(step) == axes for step in steps)
    positive = all(step > 0 for step in (*packing.stride, *packing.dilation, *packing.input))
    if not whole or not positive or min(packing.padding, default=0) < 0:
        found = f"padding, stride and dilation {show([list(step) for step in steps])}"
        raise ManifestError(where, found=found, expected=f"for each of {axes} axes, of 2 or 3")
    fits = len(packing.input) == axes + 2 and packing.groups > 0
    if not fits or shape[1] * packing.groups != packing.input[1] or shape[0] % packing.groups:
        found = f"input {show(list(packing.input))} in {packing.groups} groups"
        raise ManifestError(where, found=found, expected=f"for a weight {show(list(shape))}")
