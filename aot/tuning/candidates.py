"""The ways to compile that are worth a measurement, by what a graph does and where it runs."""

from collections.abc import Iterator, Mapping
from typing import Final

import torch

from ...formats.target import Target
from .. import inductor, packing, rounding
from ..candidate import Candidate
from ..spec import Spec

PRODUCTS: Final = frozenset(
    ["mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "einsum", "mv", "addmv", "dot"]
)
CONVOLUTIONS: Final = frozenset(
    ["convolution", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"]
)
REDUCTIONS: Final = frozenset(
    [
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "var",
        "var_mean",
        "std",
        "norm",
        "linalg_vector_norm",
        "argmax",
        "logsumexp",
        "cumsum",
        "softmax",
        "_softmax",
        "log_softmax",
        "layer_norm",
        "native_layer_norm",
        "group_norm",
        "native_group_norm",
        "rms_norm",
        "_fused_rms_norm",
    ]
)

_DESCENT: Final[Mapping[str, object]] = {
    "max_autotune_pointwise": True,
    "coordinate_descent_tuning": True,
}
_OWN_PRODUCTS: Final[Mapping[str, object]] = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "CPP",  # no other choice: nothing is measured while compiling
}
_SEARCH: Final[Mapping[str, object]] = {"max_autotune": True, "coordinate_descent_tuning": True}


def candidates(spec: Spec, target: Target, graph: torch.fx.GraphModule) -> tuple[Candidate, ...]:
    """Return what to try, the likeliest first; what torch does not know an option of is left out.

    Args:
        spec: for the options that hold for all, and how many to return at most.
        target: where the library is to run.
        graph: what it is made of.
    """
    offered = _cuda(graph) if target.device == "cuda" else _cpu(graph, packing.usual(spec, target))
    common = spec.compiler_options()
    found = [
        Candidate(name=name, options={**common, **options})
        for name, options in offered
        if inductor.known(packing.without(options))
    ]
    return tuple(found[: spec.tune.candidates])


def _cuda(graph: torch.fx.GraphModule) -> Iterator[tuple[str, Mapping[str, object]]]:
    does = operators(graph)
    yield "default", {}
    if does & (PRODUCTS | CONVOLUTIONS):
        yield "products and descent", _SEARCH
    yield "descent", _DESCENT
    if does & REDUCTIONS:
        # A reduction that keeps its row in registers, or reads it twice: the compiler guesses.
        yield "looped reductions", {**_DESCENT, "triton.persistent_reductions": False}
        yield "both reductions", {**_DESCENT, "triton.multi_kernel": 1}
    if does & CONVOLUTIONS:
        yield "channels last", {**_SEARCH, "force_layout_optimization": True}
        yield "layout as it is", {**_SEARCH, "layout_optimization": False}
    if does & PRODUCTS:
        yield "products", {"max_autotune": True, "coordinate_descent_tuning": False}
    yield "combined kernels", {"combo_kernels": True}


def _cpu(
    graph: torch.fx.GraphModule, usual: Mapping[str, object]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    # Half the vector width, other limits for parallel loops and contracted products lose or gain nothing
    # on all models of docs/performance.md; concatenated products take frozen weights.
    does = operators(graph)
    packs = packing.OPTION in usual
    found = [("default", usual)]
    if rounding.asked(usual) and does & (PRODUCTS | CONVOLUTIONS):
        found.append(("products in float32", {packing.OPTION: packing.LARGE}))
    if packs and does & (PRODUCTS | CONVOLUTIONS):
        found.append(("weights as they are", {}))
    if packs and does & PRODUCTS:
        found.append(("all weights packed", {packing.OPTION: packing.ALL}))
        # Inductor's own products, on weights in blocks: for few rows.
        found.append(("own products", {packing.OPTION: packing.ALL, **_OWN_PRODUCTS}))
    if does & CONVOLUTIONS:
        found.append(("layout as it is", {"layout_optimization": False}))
        found.append(("channels last", {"force_layout_optimization": True}))
    for name, options in found:
        yield name, options
        if _takes_tanh(graph):
            plain = "" if name == "default" else f"{name}, "
            yield f"{plain}tanh by exponentials", {**options, "cpp.use_decompose_tanh": True}


def _takes_tanh(graph: torch.fx.GraphModule) -> bool:
    """Return whether there is a hyperbolic tangent in it, by itself or in the approximation of GELU."""
    named = any(name.rstrip("_") == "tanh" for name in operators(graph))
    return named or any(node.kwargs.get("approximate") == "tanh" for node in graph.graph.nodes)


def operators(graph: torch.fx.GraphModule) -> frozenset[str]:
    """Return the names of the operators of a graph, without namespace and overload."""
    targets = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return frozenset(
        target._schema.name.partition("::")[2]
        for target in targets
        if isinstance(target, torch._ops.OpOverload)
    )
