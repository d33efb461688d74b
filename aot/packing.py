"""Which weights a library takes packed: operators that read one again and again get oneDNN's, which do.

Inductor's freezing packs as well, but into the library: each has a copy of its own, and weights that are
replaced later are ignored. Here the graph is rewritten in the same way, and the packing is left to whoever
loads the library.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from ..formats.packing import BFLOAT16, BLOCKS, CONVOLUTION, FLOAT32, LINEAR, Packing
from ..formats.precision import BF16
from ..formats.target import Target
from . import rounding
from .errors import CompileError
from .rounding import Rounding
from .spec import Spec

OPTION: Final = "pack_weights"  # of a candidate; absent: nothing is packed
ALL: Final = "all"
LARGE: Final = "large"  # the weights of convolutions, and matrices where it is likely to pay
# A call of oneDNN costs some 15 us more than one of the plain product, whose own packing costs less
# than that for a smaller matrix, and next to nothing for few rows.
LEAST: Final = 1 << 18  # elements
FEWEST: Final = 8  # rows
ROUNDED: Final = 1 << 21  # products of two numbers: in bfloat16 less is saved than the call costs

_aten: Final = torch.ops.aten
_PRODUCTS: Final = {
    _aten.mm.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.bmm.default: (0, 1),
}


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A constant of a library that is packed.

    Attributes:
        slot: of the weight that it is made of.
        packing: how.
    """

    slot: str
    packing: Packing


class Packer:
    """Rewrites a graph, once Inductor has decomposed it.

    Attributes:
        packed: the constants that it has put in, by their name.
    """

    def __init__(self, which: str, *, rounded: bool = False) -> None:
        """Pack ALL weights, or only LARGE ones.

        Args:
            which: of them.
            rounded: make these products in bfloat16, and those of no weight.
        """
        self._all = which == ALL
        self._dtype = BFLOAT16 if rounded else FLOAT32
        self._slots: set[str] = set()
        self._matrices: list[tuple[Packed, torch.Tensor]] = []
        self.packed: dict[str, Packed] = {}

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Rewrite a graph in place; those inside it stay as they are."""
        self._slots |= {str(node.target) for node in graph.find_nodes(op="get_attr")}
        self._rounding = Rounding(graph) if self._dtype == BFLOAT16 else None
        for node in list(graph.nodes):
            if node.op != "call_function":
                continue
            if node.target in _PRODUCTS:
                self._product(graph, node)
            elif node.target is _aten.convolution.default:
                self._convolution(graph, node)
        if self._rounding is not None:
            self._rounding.activations()

    def taken(self, constants: Mapping[str, torch.Tensor], where: str) -> dict[str, Packed]:
        """Return the packed constants that a library has come to need, by its name for each.

        Inductor's own matrix products take a weight in blocks, under a name of their own: which weight
        that is follows from the values.

        Args:
            constants: the values that the library was compiled with, by name.
            where: the job's identifier, for messages.

        Raises:
            CompileError: one of them is none of the weights.
        """
        found = {}
        for name, value in constants.items():
            if name in self.packed:
                found[name] = self.packed[name]
            elif name not in self._slots:
                found[name] = self._in_blocks(name, value, where)
        return found

    def _in_blocks(self, name: str, value: torch.Tensor, where: str) -> Packed:
        for one, matrix in self._matrices:
            if _is_in_blocks(value, matrix):
                transposed = one.packing.transposed
                packing = Packing(kind=BLOCKS, transposed=transposed, block=value.shape[2])
                return Packed(slot=one.slot, packing=packing)
        expected = "one of the weights, as it is or packed"
        raise CompileError(where, found=f"a constant {name} {list(value.shape)}", expected=expected)

    def _product(self, graph: torch.fx.Graph, node: Any) -> None:
        rows, matrix = (node.args[i] for i in _PRODUCTS[node.target])
        bias = node.args[0] if node.target is _aten.addmm.default else None
        expanded = matrix
        if node.target is _aten.bmm.default:  # a linear of rows that are not one behind the other
            matrix = _unexpanded(matrix)
        found = None if matrix is None else _matrix(matrix)
        if found is None or node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1:
            return
        weight, transposed = found
        value = _weight(graph, weight)
        if value is None or value.dim() != 2 or not _is_float(rows):
            return
        count = math.prod(rows.meta["val"].shape[:-1])
        few = isinstance(count, int) and count < FEWEST and self._rounding is None
        work = count * value.numel() if isinstance(count, int) and self._rounding else 0
        large = value.numel() >= LEAST or work >= ROUNDED
        if not self._all and (few or not large):
            return
        out = value.shape[1] if transposed else value.shape[0]
        if bias is not None and not (_is_float(bias) and tuple(bias.meta["val"].shape) == (out,)):
            return
        single = isinstance(count, int) and count == 1
        packing = Packing(kind=LINEAR, transposed=transposed, rows=int(single), dtype=self._dtype)
        shape = tuple(reversed(value.shape)) if transposed else tuple(value.shape)
        self._replace(
            graph,
            node,
            weight,
            packing,
            shape,
            torch.ops.mkldnn._linear_pointwise.default,
            rows,
            bias,
            ("none", [], ""),
        )
        _drop(graph, expanded)
        if matrix is not expanded:
            _drop(graph, matrix)

    def _convolution(self, graph: torch.fx.Graph, node: Any) -> None:
        given, weight, bias, stride, padding, dilation, turned, _, groups = node.args
        value = _weight(graph, weight)
        if value is None or value.dim() not in (4, 5) or turned or not _is_float(given):
            return
        sizes = given.meta["val"].shape
        if len(sizes) != value.dim() or not all(isinstance(size, int) for size in sizes):
            return  # which layout a convolution of open sizes returns follows from the sizes
        if bias is not None and not _is_float(bias):
            return
        axes = value.dim() - 2
        steps = [_each(step, axes) for step in (padding, stride, dilation)]
        packing = Packing(
            kind=CONVOLUTION,
            padding=steps[0],
            stride=steps[1],
            dilation=steps[2],
            groups=groups,
            input=tuple(sizes),
            dtype=self._dtype,
        )
        self._replace(
            graph,
            node,
            weight,
            packing,
            tuple(value.shape),
            torch.ops.mkldnn._convolution_pointwise.default,
            given,
            bias,
            (*map(list, steps), groups, "none", [], ""),
        )

    def _replace(
        self,
        graph: torch.fx.Graph,
        node: torch.fx.Node,
        weight: torch.fx.Node,
        packing: Packing,
        shape: tuple[int, ...],
        operator: Any,
        given: torch.fx.Node,
        bias: torch.fx.Node | None,
        rest: tuple[Any, ...],
    ) -> None:
        """Put an operator in the place of a node: it takes what is given, a packed weight, a bias, the rest."""
        slot = str(weight.target)
        wanted = Packed(slot=slot, packing=packing)
        name = next((name for name, one in self.packed.items() if one == wanted), None)
        owner = graph.owning_module
        assert owner is not None
        if name is None:
            name = f"{slot}_packed{sum(one.slot == slot for one in self.packed.values())}"
            self.packed[name] = wanted
            owner.register_buffer(name, self._stand_in(wanted, shape))
        with graph.inserting_before(node):
            packed = graph.get_attr(name)
            packed.meta["val"] = weight.meta["val"].new_empty(shape)
            if self._rounding is not None:
                packed.meta["val"] = packed.meta["val"].to(torch.bfloat16)
                arguments = (self._rounding.narrow(given, node), packed, None, *rest)
                return self._rounding.replace(node, operator, arguments, bias, len(shape) - 2)
            new = graph.call_function(operator, (given, packed, bias, *rest))
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)

    def _stand_in(self, wanted: Packed, shape: tuple[int, ...]) -> torch.Tensor:
        """Return a tensor of the form of a weight that is packed, which is compiled in its place.

        It has memory of its own, as Inductor takes two constants of one memory for one; and a matrix has
        values of its own, which are found again where Inductor makes another constant of it.
        """
        if wanted.packing.kind == CONVOLUTION or wanted.packing.dtype == BFLOAT16:
            return torch.empty(shape, dtype=getattr(torch, wanted.packing.dtype))
        made = torch.rand(shape, generator=torch.Generator().manual_seed(len(self._matrices)))
        self._matrices.append((wanted, made))
        return made


def _is_in_blocks(value: torch.Tensor, matrix: torch.Tensor) -> bool:
    """Return whether a value is a matrix [out, in] as [out / block, in, block], filled up with 0."""
    if value.dim() != 3 or value.shape[1] != matrix.shape[1]:
        return False
    out, flat = matrix.shape[0], value.permute(0, 2, 1).reshape(-1, matrix.shape[1])
    whole = len(flat) == out + -out % value.shape[2]
    return whole and torch.equal(flat[:out], matrix) and not bool(flat[out:].any())


def _drop(graph: torch.fx.Graph, matrix: torch.fx.Node) -> None:
    """Remove a view of a weight that nobody takes any more: else the library asks for the weight."""
    if not matrix.users and matrix.op == "call_function":
        graph.erase_node(matrix)


def _unexpanded(node: Any) -> Any:
    """Return the matrix that a batch of matrices is the same one of; None where they are several."""
    if node.target is _aten.expand.default and node.args[0].meta["val"].dim() == 2:
        return node.args[0]
    return None


def _matrix(node: Any) -> tuple[Any, bool] | None:
    """Return the constant that is the second factor, and whether it is [in, out]."""
    if node.op == "get_attr":
        return node, True
    turned = node.target is _aten.permute.default and list(node.args[1]) in ([1, 0], [-1, -2])
    if (turned or node.target is _aten.t.default) and node.args[0].op == "get_attr":
        return node.args[0], False
    return None


def _weight(graph: torch.fx.Graph, node: Any) -> torch.Tensor | None:
    """Return the value of a constant that can be packed: contiguous, float32, on the CPU."""
    if node.op != "get_attr":
        return None
    value = getattr(graph.owning_module, str(node.target), None)
    good = isinstance(value, torch.Tensor) and value.is_contiguous() and value.numel() > 0
    return value if good and _is_float(node) else None


def _is_float(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return (
        isinstance(value, torch.Tensor)
        and value.dtype == torch.float32
        and value.device.type == "cpu"
        and all(size != 0 for size in value.shape if isinstance(size, int))
    )


def _each(step: Any, axes: int) -> tuple[int, ...]:
    return tuple(step) if len(step) == axes else tuple(step) * axes


def allowed(spec: Spec, target: Target) -> bool:
    """Return whether variants of a spec for a target may take packed weights."""
    usual = spec.pack_weights and not spec.trains()
    return usual and target.device == "cpu" and torch._C._has_mkldnn


def usual(spec: Spec, target: Target) -> dict[str, object]:
    """Return the option that is right for most models, where packing is allowed."""
    if not allowed(spec, target):
        return {}
    rounded = spec.fp32_precision == BF16 and rounding.available()
    return {OPTION: LARGE, **({rounding.OPTION: BF16} if rounded else {})}


def packer(options: Mapping[str, object]) -> Packer | None:
    """Return what packs as the options ask for; None where they do not."""
    which = options.get(OPTION)
    return Packer(which, rounded=rounding.asked(options)) if isinstance(which, str) else None


def without(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that are Inductor's."""
    return {name: value for name, value in options.items() if name not in (OPTION, rounding.OPTION)}
