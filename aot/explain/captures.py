"""What becomes of each job at its capture: its guards, or why there is none."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ...formats.errors import TcbuildError
from ...formats.guard import Guard
from .. import sizes, source_line
from ..capture import Captured, capture
from ..guards import call_guards
from ..padding import padding
from ..partition import partition
from ..plan import Job
from ..sizes import Fixed
from ..source_line import Line
from ..spec import Spec
from ..step_graphs import step_graphs
from ..training import Training


@dataclass(frozen=True, kw_only=True)
class Relation:
    """What the sizes of a call must satisfy beyond the declaration, and the user's line that asks it."""

    text: str
    line: Line | None


@dataclass(frozen=True, kw_only=True)
class Changing:
    """A number that the model's Python code gave as one value, and at the next capture as another."""

    line: Line | None
    values: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a job comes to.

    Attributes:
        job: its identifier.
        operators: in its graph; 0 where there is none.
        guards: that it would carry on the call and the process; the compiler may add relations.
        relations: of the sizes, which are among the guards, with the lines that ask for them.
        fixed: axes that were declared to vary, and do not.
        changing: numbers of the graph that are others at each capture.
        error: why it would not be built; None where it is captured.
    """

    job: str
    operators: int = 0
    guards: tuple[Guard, ...] = ()
    relations: tuple[Relation, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    changing: tuple[Changing, ...] = ()
    error: TcbuildError | None = None


def of(spec: Spec, module: torch.nn.Module, job: Job) -> Outcome:
    """Capture a job as a build does, and once more.

    Args:
        spec: of the model.
        module: the model, on the job's kind of device.
        job: to capture.
    """
    fixed: tuple[Fixed, ...] = ()
    written: Collection[int] = ()
    trained: Collection[int] | None = None
    try:
        captured = _capture(spec, module, job)
        fixed = tuple(sizes.fixed(captured))
        names = sizes.Names.of(captured, job.id)
        if job.mode.step:
            graphs = step_graphs(captured, names, spec.step or Training(), job.id)
            graph, trained = graphs.forward.graph.graph, graphs.step.trained
        else:
            partitioned = partition(captured, names, job.id)
            padding(spec, module, job, partitioned)
            graph, written = captured.program.graph, partitioned.written
        needed = sizes.relations(graph, job.bucket, names, job.id)
        lines = sizes.lines(graph, names)
        again = _capture(spec, module, job)
    except TcbuildError as error:
        return Outcome(job=job.id, fixed=fixed, error=error)
    guards = call_guards(
        captured.signature,
        job.bucket,
        needed,
        written=written,
        device=job.target.device,
        grad=job.mode.grad or job.mode.step,
        training=captured.training if spec.trains() else None,
        trained=trained,
    )
    return Outcome(
        job=job.id,
        operators=sum(node.op == "call_function" for node in captured.program.graph.nodes),
        guards=guards,
        relations=tuple(Relation(text=text, line=lines.get(text)) for text in needed),
        changing=tuple(_changing(captured, again)),
    )


def _capture(spec: Spec, module: torch.nn.Module, job: Job) -> Captured:
    return capture(spec, module, job.bucket, job.id, job.choices, job.target.device, job.mode)


def _changing(one: Captured, other: Captured) -> Iterator[Changing]:
    """Yield where two graphs of the same code have other numbers, a line once."""
    seen = set()
    for a, b in zip(one.program.graph.nodes, other.program.graph.nodes, strict=False):
        if a.op != b.op or a.target != b.target:
            return  # another graph altogether, which cannot be told apart line by line
        line = source_line.of_node(a)
        for left, right in zip(_numbers(a), _numbers(b), strict=False):
            if left != right and line not in seen:
                seen.add(line)
                yield Changing(line=line, values=(str(left), str(right)))


def _numbers(node: torch.fx.Node) -> list[Any]:
    found: list[Any] = []
    torch.fx.node.map_aggregate(
        (node.args, node.kwargs),
        lambda one: found.append(one) if isinstance(one, (int, float, complex)) else None,
    )
    return [one for one in found if one == one]
