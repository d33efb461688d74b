"""Operators that do not come with torch: which a graph calls, and what provides them."""

import inspect
import sys
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._library.custom_ops import OPDEFS

# The namespaces that are there once torch is imported.
_TORCH: Final = frozenset(
    [
        "aten",
        "prim",
        "prims",
        "higher_order",
        "inductor",
        "quantized",
        "mkldnn",
        "mkl",
        "onednn",
        "rngprims",
        "profiler",
        "sym",
        "_c10d_functional",
        "c10d_functional",
        "c10d",
        "_quantized",
        "export",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Where an operator comes from.

    Attributes:
        module: the Python module that registers it; "" where no module is known to.
        file: of the module.
        is_triton: it is made of Triton kernels (`torch.library.triton_op`), which are compiled in.
    """

    module: str
    file: str = ""
    is_triton: bool = False


def find(graph: torch.fx.GraphModule) -> dict[str, Provider]:
    """Return the custom operators of a graph and its subgraphs, by qualified name."""
    found: dict[str, Provider] = {}
    for node in graph.graph.nodes:
        is_operator = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
        if is_operator and node.target.namespace not in _TORCH:
            name = node.target._schema.name
            found[name] = _provider(name)
    for child in graph.children():
        if isinstance(child, torch.fx.GraphModule):
            found.update(find(child))
    return dict(sorted(found.items()))


def is_custom(node: torch.fx.Node) -> bool:
    """Return whether a node calls an operator that does not come with torch."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.namespace not in _TORCH


def files() -> dict[str, str]:
    """Return the file of each module that has registered a custom operator in this process."""
    providers = [_provider(name) for name in OPDEFS]
    return {provider.module: provider.file for provider in providers}


def _provider(name: str) -> Provider:
    definition: Any = OPDEFS.get(name)
    if definition is None:
        return Provider(module="")
    function = definition._init_fn
    is_triton = function.__module__ == "torch._library.triton"
    if is_triton:  # torch's own wrapper around the user's function
        function = inspect.getclosurevars(function).nonlocals.get("fn", function)
    module = str(function.__module__)
    try:
        file = inspect.getfile(function)
    except TypeError:
        file = getattr(sys.modules.get(module), "__file__", "") or ""
    return Provider(module=module, file=file, is_triton=is_triton)
