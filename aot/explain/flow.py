"""One call of the model under torch.compile: graph after graph, and what crosses from each to the next."""

from dataclasses import dataclass

import torch

from ..source_line import Line
from . import cost
from .breaks import Found, Piece
from .cost import Crossing


@dataclass(frozen=True, kw_only=True)
class Step:
    """A call of a graph, and the cut behind it.

    Attributes:
        graph: its number, from 1, in the order of the first calls.
        operators: in it.
        given, made: tensors, weights left out.
        crossings: the tensors that have to be in memory between it and the next one, the largest first;
            empty behind the last.
        breaks: the lines at which it ends; None for one that is not the user's.
    """

    graph: int
    operators: int
    given: tuple[Crossing, ...]
    made: tuple[Crossing, ...]
    crossings: tuple[Crossing, ...]
    breaks: tuple[Line | None, ...]


def of(found: Found) -> tuple[Step, ...]:
    """Return the steps of the call that Dynamo was run with."""
    graphs = numbers(found)
    steps = []
    for i, run in enumerate(found.runs):
        behind = found.runs[i + 1] if i + 1 < len(found.runs) else None
        ends = [
            one.line
            for one in found.breaks
            if any(before is run and after is behind for before, after in one.cuts)
        ]
        crossings = cost.of([(run, behind)]).crossings if behind else ()
        steps.append(
            Step(
                graph=graphs[run.piece],
                operators=len(operators(run.piece)),
                given=tuple(cost.tensors(run.given)),
                made=tuple(cost.tensors(run.made)),
                crossings=crossings,
                breaks=tuple(ends),
            )
        )
    return tuple(steps)


def numbers(found: Found) -> dict[Piece, int]:
    """Return the number of each piece of graph, from 1."""
    pieces = dict.fromkeys(run.piece for run in found.runs)
    return {piece: number for number, piece in enumerate(pieces, start=1)}


def operators(piece: Piece) -> list[torch.fx.Node]:
    """Return the operators of a piece; what only takes a result apart is none."""
    nodes = piece.graph.nodes if piece.graph is not None else ()
    return [node for node in nodes if isinstance(node.target, torch._ops.OpOverload)]
