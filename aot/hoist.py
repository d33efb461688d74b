"""What follows from constants alone is computed once a call, not once for each element that takes it.

Inductor fuses it into the loop of whoever takes it: of a batch norm in eval mode, a root and a quotient for
each element of an image in place of one for each channel.
"""

import math
from typing import Any, Final

import torch

# Less than this many times as many elements: the loop of its own costs more than it spares.
LEAST: Final = 16

_COSTLY: Final = frozenset(
    [
        *("sqrt", "rsqrt", "reciprocal", "div", "pow", "exp", "exp2", "expm1", "log", "log1p"),
        *("sin", "cos", "tan", "tanh", "sigmoid", "softplus", "erf", "gelu"),
    ]
)


def hoist(graph: torch.fx.Graph) -> None:
    """Give results that follow from constants a memory of their own, in place."""
    constant: set[torch.fx.Node] = set()
    costly: set[torch.fx.Node] = set()
    for node in list(graph.nodes):
        if node.op == "get_attr":
            constant.add(node)
        elif node.op == "call_function" and node.all_input_nodes:
            given = node.all_input_nodes
            if constant.issuperset(given) and _is_pure(node):
                constant.add(node)
                if _name(node) in _COSTLY or not costly.isdisjoint(given):
                    costly.add(node)
    for node in costly:
        takers = [user for user in node.users if user not in constant and _is_larger(user, node)]
        if takers:
            _keep(graph, node, takers)


def _keep(graph: torch.fx.Graph, node: torch.fx.Node, takers: list[torch.fx.Node]) -> None:
    from torch._inductor import inductor_prims

    value = node.meta["val"]
    with graph.inserting_after(node):
        kept = graph.call_function(inductor_prims.force_stride_order, (node, value.stride()))
    kept.meta["val"] = value
    for user in takers:
        user.replace_input_with(node, kept)


def _is_pure(node: torch.fx.Node) -> bool:
    """Return whether an operator makes one tensor of fixed size, the same each time."""
    value, target = node.meta.get("val"), node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and isinstance(value, torch.Tensor)
        and all(isinstance(size, int) for size in value.shape)
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def _is_larger(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    made: Any = user.meta.get("val")
    if not isinstance(made, torch.Tensor):
        return False
    fixed = math.prod(size for size in made.shape if isinstance(size, int))
    open_sizes = any(not isinstance(size, int) for size in made.shape)
    return open_sizes or fixed >= LEAST * node.meta["val"].numel()


def _name(node: torch.fx.Node) -> str:
    target: Any = node.target
    return str(target._schema.name.partition("::")[2])
