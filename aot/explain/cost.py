"""What a break costs: the tensors that have to be in memory there, and what cannot be fused across it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from .. import source_line
from ..structure import dtype_name
from .breaks import Run

# Operators that are not element by element, and that Inductor still puts into a kernel with such ones.
_REDUCTIONS: Final = frozenset(
    [
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "var",
        "var_mean",
        "_softmax",
        "_log_softmax",
        "native_layer_norm",
        "native_group_norm",
        "_fused_rms_norm",
        "embedding",
        "cat",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A tensor that one piece of graph gives, or the next one takes."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a break costs a call.

    Attributes:
        crossings: the tensors, the largest first.
        lost: pairs of operators that would be one kernel.
        times: how often a call comes to the break.
    """

    crossings: tuple[Crossing, ...]
    lost: tuple[str, ...]
    times: int

    @property
    def bytes(self) -> int:
        """Of all tensors that cross it in a call."""
        return sum(one.bytes for one in self.crossings)


def of(cuts: Sequence[tuple[Run | None, Run | None]]) -> Cost:
    """Return the cost of a break, from the calls of pieces around it."""
    crossings: list[Crossing] = []
    lost: dict[str, None] = {}
    for before, behind in cuts:
        made = before.made if before else ()
        given = behind.given if behind else ()
        crossings += tensors(made, given)
        if before and behind:
            lost |= dict.fromkeys(_lost(before, behind))
    crossings.sort(key=lambda one: one.bytes, reverse=True)
    return Cost(crossings=tuple(crossings), lost=tuple(lost), times=len(cuts))


def tensors(*sides: Sequence[tuple[int, torch.Tensor]]) -> list[Crossing]:
    """Return the different tensors that pieces of graph are given or give."""
    return list(
        map(_crossing, {id(tensor): tensor for side in sides for _, tensor in side}.values())
    )


def _crossing(tensor: torch.Tensor) -> Crossing:
    shape = tuple(map(int, tensor.shape))
    size = math.prod(shape) * tensor.element_size()
    return Crossing(dtype=dtype_name(tensor.dtype), shape=shape, bytes=size)


def _lost(before: Run, behind: Run) -> Iterator[str]:
    """Yield in words which operator's result another could have used without a way through memory."""
    if before.piece.graph is None or behind.piece.graph is None:
        return
    (output,) = before.piece.graph.find_nodes(op="output")
    results = list(output.args[0])
    # What a piece writes to comes first among the results of its graph.
    results = results[len(results) - before.count :] if before.count <= len(results) else []
    inputs = behind.piece.graph.find_nodes(op="placeholder")
    taken = {id(tensor): index for index, tensor in behind.given}
    for index, tensor in before.made:
        if id(tensor) not in taken or index >= len(results) or len(inputs) <= taken[id(tensor)]:
            continue
        maker = _through_views(results[index])
        if maker is None or not _fuses(maker):
            continue
        for user in _users(inputs[taken[id(tensor)]]):
            if _fuses(user):
                yield f"{_words(maker)} with {_words(user)}"
                break


def _through_views(node: object) -> torch.fx.Node | None:
    """Return the operator whose result a node is, or is a view of."""
    while isinstance(node, torch.fx.Node) and _is_view(node):
        node = node.args[0]
    return node if isinstance(node, torch.fx.Node) else None


def _users(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yield the operators that read a tensor, or a view of it."""
    for user in node.users:
        if _is_view(user):
            yield from _users(user)
        else:
            yield user


def _is_view(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _fuses(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return torch.Tag.pointwise in node.target.tags or _name(node) in _REDUCTIONS


def _words(node: torch.fx.Node) -> str:
    line = source_line.of_node(node)
    return f"{_name(node)} ({line.brief})" if line else _name(node)


def _name(node: torch.fx.Node) -> str:
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.target._schema.name.rpartition("::")[2]
