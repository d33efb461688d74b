"""A captured graph as Python source that needs nothing but torch to run."""

import types
from collections.abc import Iterator
from typing import Any

import torch

from .errors import CaptureError

_HEAD = '''\
"""A captured graph. `bind` takes its constants by slot and returns its forward function."""

import types

'''

_BIND = """

def bind(constants):
    self = types.SimpleNamespace(**constants)
{attach}    return lambda *tensors: {name}(self, *tensors)
"""


def write(graph: torch.fx.GraphModule, where: str) -> str:
    """Return the source of a graph of tensors to tensors, its subgraphs included.

    Raises:
        CaptureError: the graph calls something that has no import path.
    """
    imports: dict[str, None] = {}
    functions: list[str] = []
    attach = "".join(
        f"    {line}\n" for line in _functions(graph, "forward", "self", imports, functions, where)
    )
    body = "\n\n".join(functions)
    return f"{_HEAD}{''.join(imports)}\n\n{body}{_BIND.format(attach=attach, name='_forward')}"


def _functions(
    graph: torch.fx.GraphModule,
    name: str,
    holder: str,
    imports: dict[str, None],
    functions: list[str],
    where: str,
) -> Iterator[str]:
    """Write the graph's function and its subgraphs'; yield the lines that attach the subgraphs."""
    code = graph.graph.python_code("self")
    for symbol, value in code.globals.items():
        imports[line_of(symbol, value, where)] = None
    source = code.src.strip()
    functions.append(source.replace("def forward(", f"def _{name}(", 1))
    for child_name, child in graph.named_children():
        if isinstance(child, torch.fx.GraphModule):
            inner = f"{name}_{child_name}"
            yield f"{inner} = types.SimpleNamespace()"
            yield f"{holder}.{child_name} = lambda *args, self={inner}: _{inner}(self, *args)"
            yield from _functions(child, inner, inner, imports, functions, where)


def line_of(symbol: str, value: Any, where: str) -> str:
    """Return the line that makes a global of the generated code available."""
    if isinstance(value, types.ModuleType):
        return (
            f"import {value.__name__} as {symbol}\n"
            if symbol != value.__name__
            else f"import {symbol}\n"
        )
    if isinstance(value, float):
        return f"{symbol} = float({str(value)!r})\n"
    if value is type(None):
        return f"{symbol} = type(None)\n"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or "<" in name:
        found = f"a call of {value!r} in the graph"
        raise CaptureError(where, found=found, expected="something that can be imported")
    first, _, rest = name.partition(".")
    if rest:
        return f"from {module} import {first}\n{symbol} = {name}\n"
    return (
        f"from {module} import {name} as {symbol}\n"
        if name != symbol
        else f"from {module} import {name}\n"
    )
