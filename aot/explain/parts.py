"""The model and its submodules: which are whole in a graph, and in which one the graph is cut."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .. import source_line
from ..source_line import Line
from . import flow
from .breaks import Found

_Operator = tuple[int, str]  # the number of the graph, and the name of the node


@dataclass(frozen=True, kw_only=True)
class Part:
    """A module of the model, and those in it.

    Attributes:
        name: as its parent has it; empty for the model itself.
        kind: the name of its class.
        weights: bytes of the parameters and buffers in it.
        operators: that its code, or that of a part of it, has put into graphs.
        graphs: their numbers, from 1.
        breaks: the lines of its own class that break a graph.
        parts: of it.
    """

    name: str
    kind: str
    weights: int
    operators: int
    graphs: tuple[int, ...]
    breaks: tuple[Line, ...]
    parts: "tuple[Part, ...]"

    @property
    def cut(self) -> bool:
        """Whether a graph breaks in it or in a part of it."""
        return bool(self.breaks) or any(part.cut for part in self.parts)

    def walk(self) -> "Iterator[Part]":
        """Yield it and all in it, depth first."""
        yield self
        for part in self.parts:
            yield from part.walk()


def of(module: torch.nn.Module, found: Found) -> Part:
    """Return the tree of a model.

    Args:
        module: the object that was run.
        found: what its run has shown.
    """
    modules = {str(id(part)): part for part in module.modules()}
    spans = {id(part): tuple(_spans(type(part))) for part in modules.values()}
    operators: dict[int, set[_Operator]] = {id(part): set() for part in modules.values()}
    for piece, number in flow.numbers(found).items():
        for node in flow.operators(piece):
            operators[id(module)].add((number, node.name))
            for owner in _owners(node, modules, spans):
                operators[owner].add((number, node.name))
    lines = [one.line for one in found.breaks if one.line is not None]

    def part(name: str, one: torch.nn.Module) -> tuple[Part, set[_Operator]]:
        made = [part(key, child) for key, child in one.named_children()]
        own = operators[id(one)].union(*(inside for _, inside in made))
        tensors = {id(t): t.nbytes for t in (*one.parameters(), *one.buffers())}
        return (
            Part(
                name=name,
                kind=type(one).__name__,
                weights=sum(tensors.values()),
                operators=len(own),
                graphs=tuple(sorted({number for number, _ in own})),
                breaks=tuple(line for line in lines if _holds(spans[id(one)], line)),
                parts=tuple(child for child, _ in made),
            ),
            own,
        )

    return part("", module)[0]


def _owners(
    node: torch.fx.Node,
    modules: dict[str, torch.nn.Module],
    spans: dict[int, tuple[tuple[str, int, int], ...]],
) -> list[int]:
    """Return the modules whose code calls an operator: by what Dynamo notes, else by the line."""
    for key in reversed(node.meta.get("nn_module_stack") or {}):
        if key in modules:
            return [id(modules[key])]
    line = source_line.of_node(node)
    return [one for one, span in spans.items() if line is not None and _holds(span, line)]


def _spans(kind: type) -> Iterator[tuple[str, int, int]]:
    """Yield the file, the first and the last line of a class and of what it inherits from the user's."""
    for one in kind.__mro__:
        try:
            file = inspect.getfile(one)
            if source_line.is_users(file):
                code, first = inspect.getsourcelines(one)
                yield file, first, first + len(code) - 1
        except (OSError, TypeError):
            continue  # builtins, and classes whose source is not there


def _holds(spans: tuple[tuple[str, int, int], ...], line: Line) -> bool:
    return any(file == line.file and first <= line.number <= last for file, first, last in spans)
