"""The first part of a model that a compiled variant gets wrong, for the error that says that it does.

The variant's graph is cut behind one of the model's parts, compiled with the same options, and everything
that is still needed at the cut is held against eager by the same rule; halving finds the part.
"""

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from pathlib import Path
from typing import Final

import torch

from ..formats.signature import Branch, Node
from . import operators, sizes, source_line, trial_artifact
from .candidate import Candidate
from .capture import capture
from .compile import compile_job
from .job_cache import JobCache
from .library_part import library_part
from .partition import Partitioned, partition, tensor_leaf
from .plan import Job
from .sizes import Names
from .spec import Spec
from .verify import Inputs, Row, verify
from .weight_table import WeightTable
from .writes import storage_of

MAX_CUTS: Final = 6  # compilations; each halves what is left


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Operators in a row that belong to one part of the model.

    Attributes:
        path: of the submodule; empty for the model itself.
        nodes: of the graph.
    """

    path: str
    nodes: tuple[torch.fx.Node, ...]


def find(
    spec: Spec,
    module: torch.nn.Module,
    job: Job,
    candidate: Candidate,
    row: Row,
    inputs: Inputs,
    cache: JobCache,
) -> str:
    """Say in words which part of the model is the first that differs; never raises.

    Args:
        spec, module, job, candidate: what the variant was built from.
        row: the check that failed; nothing is said where it is not the compiled code's own error.
        inputs: makes the call that it failed on.
        cache: of finished jobs.
    """
    if "against float64" not in row.problem or "captured graph" in row.problem:
        return ""
    if "padding" in row.output or "in memory" in row.output:
        return ""
    dims = _dims(row)
    if any(dims.get(name, size) != size for name, size in job.bucket.fixed().items()):
        return ""  # a smaller call, padded up: what leaks is the padding
    try:
        return _find(spec, module, job, candidate, dims, inputs, cache)
    except Exception as error:
        line = next(iter(str(error).splitlines()), "")
        return f"the layer that differs could not be looked for ({type(error).__name__}: {line})"


def first(count: int, differs: Callable[[int], bool]) -> tuple[range, bool]:
    """Halve what is known to differ at its end, until one is left or MAX_CUTS are made.

    Args:
        count: of stretches, at least 1; the whole is known to differ.
        differs: whether a graph that ends behind that stretch does.

    Returns:
        Among which stretches the first one is that differs, and whether one that ends earlier than the
        whole did.
    """
    low, high = -1, count - 1
    for _ in range(MAX_CUTS):
        if high - low < 2:
            break
        middle = (low + high) // 2
        if differs(middle):
            high = middle
        else:
            low = middle
    return range(low + 1, high + 1), high < count - 1


def stretches(graph: torch.fx.Graph) -> tuple[Stretch, ...]:
    """Return the operators of a graph by the part of the model that they stand in, in their order."""
    nodes = (node for node in graph.nodes if node.op.startswith("call_"))
    return tuple(Stretch(path=path, nodes=tuple(group)) for path, group in groupby(nodes, _path))


def _find(
    spec: Spec,
    module: torch.nn.Module,
    job: Job,
    candidate: Candidate,
    dims: Mapping[str, int],
    inputs: Inputs,
    cache: JobCache,
) -> str:
    captured = capture(spec, module, job.bucket, job.id, job.choices, job.target.device, job.mode)
    names = Names.of(captured, job.id)
    sizes.relations(captured.program.graph, job.bucket, names, job.id)
    whole = partition(captured, names, job.id)
    parts = stretches(whole.graph.graph)

    def differs(index: int) -> bool:
        part = cut(whole, parts[index].nodes[-1], names)
        tensors = (*captured.tensors, *part.state_tensors())

        compiled = compile_job(job, part, tensors, cache, candidate.options)
        weights = WeightTable()
        made = library_part(spec, job, captured, part, compiled, candidate, weights)
        with tempfile.TemporaryDirectory(prefix="tcbuild-") as folder:
            path = Path(folder) / "cut.tcb"
            trial_artifact.write(path, spec, [made], weights, job.target)
            rows = verify(
                path,
                module=module,
                inputs=inputs,
                tolerance=spec.tolerance,
                imports=operators.files(),
                at=dims,
            )
        return any(row.problem for row in rows)

    left, seen = first(len(parts), differs)
    place = _place([parts[i] for i in left])
    if seen or len(parts) == 1:
        return f"the first layer that differs: {place}"
    return (
        f"the layer that differs was not found: every graph that ends earlier passes, so it is {place}, "
        "or how the compiler puts several layers together"
    )


def cut(whole: Partitioned, last: torch.fx.Node, names: Names) -> Partitioned:
    """Return the graph up to a node, with every tensor as an output that is used behind it."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    given: set[object] = set()
    for node in whole.graph.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "placeholder":
            given.add(storage_of(node))
        if node is last:
            break
    returned: list[torch.fx.Node] = []
    leaves: list[Node] = []
    for node, copy in copies.items():
        made = node.meta.get("val")
        needed = any(user not in copies for user in node.users)
        if not node.op.startswith("call_") or not needed or not isinstance(made, torch.Tensor):
            continue
        if storage_of(node) in given:  # it may be written to behind this
            copy = graph.call_function(torch.ops.aten.clone.default, (copy,))
            copy.meta = dict(node.meta)
        leaves.append(tensor_leaf(made, len(returned), names))
        returned.append(copy)
    graph.output(tuple(returned))
    module = torch.fx.GraphModule(whole.graph, graph)
    used = {node.target for node in graph.find_nodes(op="get_attr")}
    return replace(
        whole,
        graph=module,
        constants={slot: name for slot, name in whole.constants.items() if slot in used},
        outputs=Branch(type="tuple", form="tuple", children=tuple(leaves)),
    )


def _path(node: torch.fx.Node) -> str:
    """Return the innermost submodule that an operator stands in, without the wrapper around the model."""
    stack: Mapping[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    path = re.sub(r"@\d+", "", next((path for path, _ in reversed(list(stack.values()))), ""))
    return path.removeprefix("model").removeprefix(".")


def _place(parts: Sequence[Stretch]) -> str:
    """Name what several stretches have in common, and the line of the first operator."""
    steps = [part.path.split(".") for part in parts]
    common = takewhile(lambda names: len(set(names)) == 1, zip(*steps, strict=False))
    name = ".".join(names[0] for names in common) or "the model's own forward"
    line = source_line.of_node(parts[0].nodes[0])
    return f"{name} ({line.brief})" if line else name


def _dims(row: Row) -> dict[str, int]:
    """Return the sizes of a check by dimension: a row has them in words."""
    pairs = (words.partition("=") for words in row.sizes.split(", ") if words)
    return {name: int(size) for name, _, size in pairs}
