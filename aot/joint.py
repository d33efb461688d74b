"""The private surface of torch that traces gradients: a captured graph to forward and backward.

AOTAutograd traces the gradients of what was captured into one joint graph, and a partitioner cuts it: it
decides which values the forward hands over and which the backward computes anew.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .capture import Captured
from .errors import CaptureError
from .partition import copy_of
from .training import MIN_CUT, Training
from .writes import storage_of

Partition = Callable[..., tuple[GraphModule, GraphModule]]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What a partitioner has made of a joint graph.

    Attributes:
        saved: bytes that the forward saves for the backward, without the inputs, at the example sizes.
        recomputed: how many of the forward's operators the backward computes again.
    """

    saved: int
    recomputed: int

    def __str__(self) -> str:
        return f"saves {self.saved / 1e6:.3g} MB, computes {self.recomputed} operators anew"


@dataclass(frozen=True, kw_only=True)
class Joint:
    """Forward and backward, as torch has made them.

    Attributes:
        forward, backward: the graphs; their inputs and outputs are described by `desc` in the metadata.
        metadata: of AOTAutograd.
        cuts: what each partitioner would have made of it, by name.
    """

    forward: GraphModule
    backward: GraphModule
    metadata: Any
    cuts: Mapping[str, Cut]


def trace(captured: Captured, training: Training, where: str) -> Joint:
    """Trace the gradients of a captured graph.

    Raises:
        CaptureError: torch cannot, or there is nothing to compute a gradient of.
    """
    from torch._functorch import config
    from torch._functorch.aot_autograd import (
        aot_compile_joint_with_descriptors,
        aot_export_joint_with_descriptors,
        boxed_nop_preserve_node_meta,
    )
    from torch._inductor.decomposition import select_decomp_table

    graphs: dict[str, GraphModule] = {}

    def keep(which: str) -> Callable[..., Any]:
        def compiler(graph: GraphModule, inputs: Any) -> Any:
            graphs[which] = graph
            return boxed_nop_preserve_node_meta(graph, inputs)

        return compiler

    cuts: dict[str, Cut] = {}
    model: Any = captured.program.module(check_guards=False)
    try:
        with (
            contextlib.ExitStack() as stack,
            torch.enable_grad(),
            config.patch(activation_memory_budget=training.activation_memory_budget),
        ):
            joint: Any = aot_export_joint_with_descriptors(
                stack, model, _arguments(captured), {}, decompositions=select_decomp_table()
            )
            aot_compile_joint_with_descriptors(
                joint,
                partition_fn=_partition(training.partition, cuts),
                fw_compiler=keep("forward"),
                bw_compiler=keep("backward"),
            )
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "no message")
        raise CaptureError(
            where,
            found=f"{type(error).__name__}: {reason}",
            expected="a model whose gradients can be traced",
            tip="leave [training] out to build it for inference only",
        ) from error
    if "backward" not in graphs:
        raise CaptureError(
            where,
            found="no output that a gradient flows back from",
            expected="a model with a weight or an input that asks for one",
            tip="call .requires_grad_() on what is trained, or leave [training] out",
        )
    return Joint(
        forward=graphs["forward"],
        backward=graphs["backward"],
        metadata=joint._aot_state.fw_metadata,
        cuts=cuts,
    )


def _arguments(captured: Captured) -> tuple[torch.Tensor, ...]:
    """Return the fake tensors of the captured graph, asking for gradients where the example's do."""
    names = captured.program.graph_signature.user_inputs
    values = {
        node.name: node.meta["val"]
        for node in captured.program.graph.nodes
        if node.op == "placeholder"
    }
    made = []
    for name, tensor in zip(names, captured.tensors, strict=True):
        value = values[name]
        made.append(value.detach().requires_grad_() if tensor.requires_grad else value)
    return tuple(made)


def _partition(chosen: str, cuts: dict[str, Cut]) -> Partition:
    from torch._functorch.partitioners import (
        default_partition,
        min_cut_rematerialization_partition,
    )

    known: Mapping[str, Partition] = {
        MIN_CUT: min_cut_rematerialization_partition,
        "default": default_partition,
    }

    def partition(
        joint: GraphModule, inputs: Any, **options: Any
    ) -> tuple[GraphModule, GraphModule]:
        made: dict[str, tuple[GraphModule, GraphModule]] = {}
        for name, by in known.items():
            made[name] = by(GraphModule(joint, copy_of(joint.graph)), inputs, **options)
            cuts[name] = _cut(*made[name])
        return made[chosen]

    return partition


def _cut(forward: GraphModule, backward: GraphModule) -> Cut:
    computed = {node.name: node for node in forward.graph.nodes if node.op == "call_function"}
    again = sum(
        node.op == "call_function" and node.name in computed for node in backward.graph.nodes
    )
    given = {storage_of(node) for node in forward.graph.find_nodes(op="placeholder")}
    taken = backward.graph.find_nodes(op="placeholder")
    saved = {storage_of(computed[n.name]): n for n in taken if n.name in computed}
    return Cut(saved=sum(_bytes(n) for at, n in saved.items() if at not in given), recomputed=again)


def _bytes(node: Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    count = 1
    for size in value.shape:
        count *= size.node.hint if isinstance(size, torch.SymInt) else size
    return count * value.dtype.itemsize
