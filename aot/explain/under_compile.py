"""What torch.compile makes of a model, or of one of its methods: its graphs, and the breaks between them."""

import copy
from dataclasses import dataclass

import torch

from ..placement import example_call
from ..plan import Job
from ..spec import Spec
from . import breaks, flow, parts
from .breaks import Break
from .flow import Step
from .parts import Part


@dataclass(frozen=True, kw_only=True)
class UnderCompile:
    """One call under torch.compile.

    Attributes:
        entry: the name of the method; empty for the model itself.
        breaks: in the order in which they are first come to.
        pieces: of graph that torch.compile makes; 0 where it did not come through.
        steps: the calls of these pieces that make up the call.
        parts: the model and its submodules, with the pieces that each is in.
        problem: what Dynamo itself failed with; empty where it did not.
    """

    entry: str
    breaks: tuple[Break, ...]
    pieces: int
    steps: tuple[Step, ...]
    parts: Part
    problem: str


def look(spec: Spec, module: torch.nn.Module, job: Job) -> UnderCompile:
    """Run a copy of a module through Dynamo, with the example call of a job.

    Args:
        spec: of the job's entry.
        module: the model or its method, on the job's device.
        job: the first one of its entry.
    """
    copied = copy.deepcopy(module)  # the model's own code may write to its buffers
    found = breaks.find(copied, example_call(spec, module, job), job.mode)
    return UnderCompile(
        entry=job.entry,
        breaks=found.breaks,
        pieces=len({run.piece for run in found.runs}),
        steps=flow.of(found),
        parts=parts.of(copied, found),
        problem=found.problem,
    )
