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
from .by_size import BySize
from .miss import Explanation, Refusal
from .observe import Observed
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


def find(
    binders: Sequence[Binder],
    programs: BySize,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
) -> Choice | None:
    """Return the first program that is for the sizes of a call and whose guards all hold.

    None says nothing: `survey` or `choose` look further, and say why.
    """
    for index, binder in enumerate(binders):
        try:
            leaves = binder.bind(args, kwargs)
        except StructureError:
            continue
        dims = observe.sizes(binder.signature, leaves)
        observed = Observed(leaves, dims, binder.device)
        for program in programs.near(index, dims):
            unset = [*settings.refusals(program.setting_guards, setting), *program.refusals()]
            if not unset and not observed.refusals(program.guards):
                return Choice(program=program, tensors=_tensors(binder, leaves), dims=dims)
    return None


def survey(
    binders: Sequence[Binder],
    programs: BySize,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
) -> tuple[Choice | None, Explanation]:
    """Do what `choose` does, where nothing is padded; say the reasons of the nearest program alone.

    What thousands of variants have in common is looked at once.
    """
    nearest: tuple[int, int, str, tuple[Refusal, ...]] | None = None
    count = 0
    for index, binder in enumerate(binders):
        try:
            leaves = binder.bind(args, kwargs)
            structure: tuple[Refusal, ...] = ()
        except StructureError as error:
            leaves, structure = {}, (Refusal("structure", str(error)),)
        dims = observe.sizes(binder.signature, leaves)
        observed = Observed(leaves, dims, binder.device)
        for group in programs.groups(index):
            count += len(group.programs)
            sizes = tuple(observe.size(leaves.get(path), axis) for path, axis in group.axes)
            _, place, program = group.nearest(sizes)
            unset = [*settings.refusals(program.setting_guards, setting), *program.refusals()]
            if structure:
                refused = (*structure, *unset)
            else:
                refused = (*unset, *observed.refusals(program.guards))
            if not refused:
                choice = Choice(program=program, tensors=_tensors(binder, leaves), dims=dims)
                return choice, Explanation(variant=program.variant.id, refusals={})
            if nearest is None or (len(refused), -place) <= nearest[:2]:
                nearest = len(refused), -place, program.variant.id, refused
    told = {} if nearest is None else {nearest[2]: nearest[3]}
    return None, Explanation(variant=None, refusals=told, others=count - len(told))


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
    unsets = _Unset(setting)
    for index, binder in enumerate(binders):
        mine = [program for program in programs if program.variant.signature == index]
        try:
            leaves = binder.bind(args, kwargs) if mine else {}
        except StructureError as error:
            structure = Refusal("structure", str(error))
            for program in mine:
                refusals[program.variant.id] = (structure, *unsets.of(program))
            continue
        signature = binder.signature
        dims = observe.sizes(signature, leaves)
        observed = Observed(leaves, dims, binder.device)
        for program in mine:
            unset = [*unsets.of(program), *program.refusals()]
            refused = [*unset, *observed.refusals(program.guards)]
            if refused and not unset and isinstance(program, Program) and program.variant.pad:
                refused = padding.refusals(program, signature, observed)
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


class _Unset:
    """Why programs refuse how the model is set; the few guards that there are, once each."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._found: dict[tuple[int, ...], list[Refusal]] = {}

    def of(self, program: Program | StepProgram) -> list[Refusal]:
        """Return the refusals of one program."""
        key = tuple(map(id, program.setting_guards))
        if key not in self._found:
            self._found[key] = settings.refusals(program.setting_guards, self._setting)
        return self._found[key]


def _tensors(binder: Binder, leaves: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
    found = (leaves[path] for path, _ in binder.signature.tensors())
    return tuple(leaf for leaf in found if isinstance(leaf, torch.Tensor))


def _cost(program: Program, among: Sequence[tuple[Program, Choice]]) -> float:
    """Return the measured seconds where all candidates have them, else the size of the bucket."""
    if program.seconds is not None and all(other.seconds is not None for other, _ in among):
        return program.seconds or 0.0
    fixed = program.variant.bucket.fixed()
    return float(math.prod(fixed[name] for name in program.variant.pad))
