"""Which program answers a call, found by evaluating guards one by one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..formats.tree import StructureError
from . import observe, padding
from . import setting as settings
from .binding import Binder
from .miss import Explanation, Refusal
from .padding import Padded
from .program import Program
from .setting import Setting
from .step import StepProgram


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A program that is right for a call.

    Attributes:
        program: it, or a form of it that pads the call up to its bucket.
        tensors: the call's, in order.
        dims: the call's sizes by dimension name.
    """

    program: Program | StepProgram | Padded
    tensors: tuple[torch.Tensor, ...]
    dims: dict[str, int]

    def answer(self) -> Any:
        """Run the program on the call."""
        self.program.hits.add()
        made = self.program.run(list(self.tensors))
        return self.program.result(made, self.tensors, self.dims)


def choose(
    binders: Sequence[Binder],
    programs: Sequence[Program | StepProgram],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
) -> tuple[Choice | None, Explanation]:
    """Return the first program whose guards all hold, else the cheapest that the call is padded up to.

    Args:
        binders: one for each signature, in the manifest's order.
        programs: to choose from, in order.
        args, kwargs: the call.
        setting: how the model is set.
    """
    refusals: dict[str, tuple[Refusal, ...]] = {}
    padded: list[tuple[Program, Choice]] = []
    for index, binder in enumerate(binders):
        mine = [program for program in programs if program.variant.signature == index]
        try:
            leaves = binder.bind(args, kwargs) if mine else {}
        except StructureError as error:
            structure = Refusal("structure", str(error))
            for program in mine:
                unset = settings.refusals(program.setting_guards, setting)
                refusals[program.variant.id] = (structure, *unset)
            continue
        signature = binder.signature
        dims = observe.sizes(signature, leaves)
        for program in mine:
            unset = [*settings.refusals(program.setting_guards, setting), *program.refusals()]
            refused = [*unset, *observe.refusals(program.guards, leaves, dims)]
            if refused and not unset and isinstance(program, Program) and program.variant.pad:
                refused = padding.refusals(program, signature, leaves, dims)
                if not refused:
                    grown = Padded(program, signature, dims)
                    tensors = _tensors(binder, leaves)
                    padded.append((program, Choice(program=grown, tensors=tensors, dims=dims)))
                    continue
            if not refused:
                choice = Choice(program=program, tensors=_tensors(binder, leaves), dims=dims)
                return choice, Explanation(variant=program.variant.id, refusals=refusals)
            refusals[program.variant.id] = tuple(refused)
    if padded:
        program, choice = min(padded, key=lambda pair: _cost(pair[0], padded))
        return choice, Explanation(variant=program.variant.id, refusals=refusals)
    return None, Explanation(variant=None, refusals=refusals)


def _tensors(binder: Binder, leaves: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
    found = (leaves[path] for path, _ in binder.signature.tensors())
    return tuple(leaf for leaf in found if isinstance(leaf, torch.Tensor))


def _cost(program: Program, among: Sequence[tuple[Program, Choice]]) -> float:
    """Return the measured seconds where all candidates have them, else the size of the bucket."""
    if all(candidate.seconds is not None for candidate, _ in among):
        return program.seconds or 0.0
    fixed = program.variant.bucket.fixed()
    return float(math.prod(fixed[name] for name in program.variant.pad))
