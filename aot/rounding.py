"""Products of float32 in bfloat16, where a spec allows it: factors are rounded, results float32 again.

Sums are float32 inside of a product, and so is all that is between products.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch

from ..formats.precision import BF16

OPTION: Final = "fp32_precision"  # of a candidate; absent: nothing is rounded
# Fewer rows than this are bound by memory: to round what is no weight costs what it saves.
FEWEST: Final = 8

_aten: Final = torch.ops.aten
_ATTENTION: Final = _aten._scaled_dot_product_flash_attention_for_cpu.default


class Rounding:
    """The rounded tensors of one graph, each made once."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._made: dict[torch.fx.Node, torch.fx.Node] = {}

    def narrow(self, node: torch.fx.Node, user: torch.fx.Node) -> torch.fx.Node:
        """Return a node in bfloat16, ahead of whoever uses it."""
        if node not in self._made:
            with self._graph.inserting_before(user):
                self._made[node] = _cast(self._graph, node, torch.bfloat16)
        return self._made[node]

    def replace(
        self,
        node: torch.fx.Node,
        operator: Any,
        arguments: tuple[Any, ...],
        bias: torch.fx.Node | None = None,
        axes: int = 0,
    ) -> None:
        """Put an operator that returns bfloat16 in the place of a node of float32.

        Args:
            node: to replace.
            operator, arguments: what to call.
            bias: is added in float32.
            axes: of the result, behind that of the bias.
        """
        with self._graph.inserting_before(node):
            new = self._graph.call_function(operator, arguments)
            new.meta["val"] = node.meta["val"].to(torch.bfloat16)
            whole = _cast(self._graph, new, torch.float32)
            if bias is not None:
                whole = self._plus(whole, bias, axes)
        whole.meta.update(node.meta)
        node.replace_all_uses_with(whole)
        self._graph.erase_node(node)

    def _plus(self, whole: torch.fx.Node, bias: torch.fx.Node, axes: int) -> torch.fx.Node:
        if axes:
            value = bias.meta["val"]
            shape = [value.shape[0], *[1] * axes]
            bias = self._graph.call_function(_aten.reshape.default, (bias, shape))
            bias.meta["val"] = value.reshape(shape)
        return self._graph.call_function(_aten.add.Tensor, (whole, bias))

    def activations(self) -> None:
        """Round the products in the graph of which no factor is a weight."""
        for node in self._graph.find_nodes(op="call_function", target=_aten.bmm.default):
            left, right = node.args
            many = _many(left.meta["val"].shape[1]) and _many(right.meta["val"].shape[2])
            if many and _is_float(left) and _is_float(right):
                factors = tuple(self.narrow(factor, node) for factor in (left, right))
                self.replace(node, node.target, factors)
        for node in self._graph.find_nodes(op="call_function", target=_ATTENTION):
            query = node.args[0]
            if all(map(_is_float, node.args[:3])) and _many(query.meta["val"].shape[2]):
                self._attention(node)

    def _attention(self, node: torch.fx.Node) -> None:
        """Round what attention takes, in place: it returns a pair, whose second stays float32."""
        factors: Any = node.args[:3]
        node.args = (*(self.narrow(one, node) for one in factors), *node.args[3:])
        mask: Any = node.kwargs.get("attn_mask")
        if _is_float(mask):
            node.kwargs = {**node.kwargs, "attn_mask": self.narrow(mask, node)}
        out, *rest = node.meta["val"]
        node.meta["val"] = (out.to(torch.bfloat16), *rest)
        for user in list(node.users):
            if user.args[1] == 0:
                user.meta["val"] = node.meta["val"][0]
                with self._graph.inserting_after(user):
                    whole = _cast(self._graph, user, torch.float32)
                user.replace_all_uses_with(whole)
                whole.args = (user, torch.float32)


def asked(options: Mapping[str, object]) -> bool:
    """Return whether a candidate's options ask for it."""
    return options.get(OPTION) == BF16


def available() -> bool:
    """Return whether this machine multiplies bfloat16 faster than float32."""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16") or found.get("bf16"))


def _cast(graph: torch.fx.Graph, node: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
    made = graph.call_function(torch.ops.prims.convert_element_type.default, (node, dtype))
    made.meta["val"] = node.meta["val"].to(dtype)
    return made


def _many(rows: Any) -> bool:
    return not isinstance(rows, int) or rows >= FEWEST


def _is_float(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32
