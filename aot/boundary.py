"""Symbolic sizes at the boundary of a library, which takes and returns tensors alone.

A size that a graph takes is read off a tensor that it takes, too. Where no tensor of the backward's has
it, the forward hands over an empty one that has: a carrier, of no bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .errors import CaptureError


@dataclass(frozen=True, kw_only=True)
class Carried:
    """Where a size is read: that axis of that tensor."""

    node: Node
    axis: int
    size: torch.SymInt


def take_sizes_from_tensors(graph: Graph) -> None:
    """Let a graph take no sizes: each is read off one of its tensors.

    The tensors have all of them; see `carry`.
    """
    inputs = list(graph.find_nodes(op="placeholder"))
    read = _read(inputs)
    last = inputs[-1]
    for node in inputs:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            continue
        place = read[value.node.expr]
        with graph.inserting_after(last):
            size = graph.call_function(torch.ops.aten.sym_size.int, (place.node, place.axis))
        size.meta["val"] = value
        node.replace_all_uses_with(size)
        graph.erase_node(node)


def carry(forward: GraphModule, backward: GraphModule, where: str) -> tuple[tuple[Node, Node], ...]:
    """Hand over what sizes the backward needs and none of its tensors has.

    Returns:
        For each, the carrier as the forward makes it and as the backward takes it, behind the rest.

    Raises:
        CaptureError: a size is neither the forward's input nor follows from one.
    """
    inputs = list(backward.graph.find_nodes(op="placeholder"))
    there = _read(inputs)
    needed: dict[object, torch.SymInt | None] = {}
    symbols: dict[object, None] = {}
    for node in inputs:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            if value.node.expr not in there:
                needed[value.node.expr] = value
            symbols.update(dict.fromkeys(_sorted(value.node.expr.free_symbols)))
        else:
            for axis in (*value.shape, *value.stride()):
                if isinstance(axis, torch.SymInt):
                    symbols.update(dict.fromkeys(_sorted(axis.node.expr.free_symbols)))
    for symbol in symbols:
        if symbol not in there:
            needed.setdefault(symbol, None)
    given = _read(forward.graph.find_nodes(op="placeholder"))
    outputs: Any = forward.graph.output_node().args[0]
    handed: dict[object, Node] = {
        node.meta["val"].node.expr: node
        for node in outputs
        if isinstance(node, Node) and isinstance(node.meta.get("val"), torch.SymInt)
    }
    made: list[tuple[Node, Node]] = []
    for expression, value in needed.items():
        size = handed.get(expression)
        if size is None:
            if expression not in given:
                raise CaptureError(
                    where,
                    found=f"the size {expression}, which is no axis of an input",
                    expected="sizes that follow from the inputs'",
                )
            place = given[expression]
            with forward.graph.inserting_before(forward.graph.output_node()):
                size = forward.graph.call_function(
                    torch.ops.aten.sym_size.int, (place.node, place.axis)
                )
            size.meta["val"] = value if value is not None else place.size
        made.append(_carrier(forward.graph, backward.graph, size, f"carrier_{len(made)}"))
    return tuple(made)


def _carrier(forward: Graph, backward: Graph, size: Node, name: str) -> tuple[Node, Node]:
    fake: Any = next(
        node.meta["val"]
        for node in forward.find_nodes(op="placeholder")
        if isinstance(node.meta["val"], torch.Tensor)
    )
    with fake.fake_mode:
        value = torch.empty((size.meta["val"], 0), dtype=torch.uint8, device=fake.device)
    with forward.inserting_before(forward.output_node()):
        made = forward.call_function(
            torch.ops.aten.empty.memory_format,
            ([size, 0],),
            {"dtype": torch.uint8, "device": fake.device, "pin_memory": False},
        )
    last = list(backward.find_nodes(op="placeholder"))[-1]
    with backward.inserting_after(last):
        taken = backward.placeholder(name)
    made.meta["val"], taken.meta["val"] = value, value
    return made, taken


def _read(nodes: Iterable[Node]) -> Mapping[object, Carried]:
    """Return where the tensors among some nodes have each symbolic size."""
    found: dict[object, Carried] = {}
    for node in nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    found.setdefault(size.node.expr, Carried(node=node, axis=axis, size=size))
    return found


def _sorted(symbols: Iterable[object]) -> list[object]:
    return sorted(symbols, key=str)
