"""The containers that models.Net takes and returns; a process that serves it needs no more of the tests."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor


@dataclass
class Out:
    """What Net returns."""

    logits: Tensor
    extras: dict[str, Any]
    ids: Tensor
    left_out: Tensor | None = None


class Pair(NamedTuple):
    """A container with names."""

    left: Tensor
    right: Tensor
