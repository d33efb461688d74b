"""The operators that are needed for a fault: halved from the end, then from the start, then one by one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .process import Reply

MOST_DROPPED: Final = 12  # trials of leaving one out

Try = Callable[[Sequence[int], Sequence[int] | None], Reply]


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The operators that show a fault by themselves; the last of them makes what is wrong.

    Attributes:
        nodes: their indices.
        outputs: of which the results are looked at; None for all that something else uses.
        reply: what came of them.
    """

    nodes: tuple[int, ...]
    outputs: tuple[int, ...] | None
    reply: Reply


def search(uses: Sequence[Sequence[int]], kind: str, attempt: Try) -> Culprit | None:
    """Find a smallest part of a graph that shows a fault.

    Args:
        uses: for each operator the ones that it takes something from.
        kind: of the fault.
        attempt: runs some operators alone.

    Returns:
        The part; None where the whole graph does not show it, either.
    """
    seen: dict[tuple[int, ...], Reply] = {}

    def bad(nodes: Sequence[int]) -> bool:
        key = tuple(nodes)
        if key not in seen:
            seen[key] = attempt(key, None)
        return seen[key].kind == kind

    count = len(uses)
    if not count or not bad(range(count)):
        return None
    low, high = -1, count - 1  # the first end that is bad is in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bad(range(middle + 1)) else (middle, high)
    end = high
    nodes: tuple[int, ...] = (end,)
    if not bad(nodes):
        low, high = 0, end  # the last start that is bad is in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if bad(range(middle, end + 1)) else (low, middle)
        nodes = tuple(range(low, end + 1))
    reply, outputs = seen[nodes], None
    output = reply.record.get("output")
    if output is not None and len(nodes) > 1:
        fewer, only = _needed(nodes, output, uses), (output,)
        alone = attempt(fewer, only)
        if alone.kind == kind:
            nodes, outputs, reply = fewer, only, alone
    for node in [one for one in nodes if one != nodes[-1]][:MOST_DROPPED]:
        fewer = tuple(one for one in nodes if one != node)
        alone = attempt(fewer, outputs)
        if alone.kind == kind:
            nodes, reply = fewer, alone
    return Culprit(nodes=nodes, outputs=outputs, reply=reply)


def _needed(nodes: Sequence[int], output: int, uses: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return those of the operators that one of them is computed from, and itself."""
    needed = {output}
    for node in reversed(nodes):
        if node in needed:
            needed |= set(uses[node])
    return tuple(node for node in nodes if node in needed)
