"""What stands between a model and its artifact: captured only, nothing is compiled."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...formats.errors import TcbuildError
from .. import capture, frozen
from ..build import in_turn, make_module
from ..errors import CaptureError, VerifyError
from ..placement import Placement, example_call
from ..plan import Plan
from ..source_line import Line
from ..spec import Spec
from . import captures, cost, hazards, reasons
from .breaks import Break
from .captures import Outcome
from .cost import Cost
from .hazard import Hazard
from .reasons import CHANGING, NO, Reason
from .under_compile import UnderCompile, look


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A line that stops a build, costs a graph under torch.compile, or is not what it seems once built.

    Attributes:
        line: of the user's; None where it is none of theirs.
        reason: what is wrong, and the ways out.
        stops: whether it stops the build: True where a capture has stopped there, False where all have
            gone on; None where none has come so far.
        said: in torch's words.
        cost: of the break, under torch.compile; None where Dynamo makes none there.
    """

    line: Line | None
    reason: Reason
    stops: bool | None
    said: str
    cost: Cost | None = None

    @property
    def hides(self) -> bool:
        """Whether Dynamo gives up the whole function there, so that it shows no break behind the line."""
        return self.cost is not None and "falling back to eager" in self.said


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All that was found.

    Attributes:
        name: of the spec.
        findings: those that stop a build first.
        jobs: what becomes of each.
        frozen: Python values that the model's code reads, as text: constants of the artifact.
        hazards: what is as the example call has it, and may be another in service.
        compiled: what torch.compile makes of the model, or of each of its methods.
    """

    name: str
    findings: tuple[Finding, ...]
    jobs: tuple[Outcome, ...]
    frozen: dict[str, str]
    hazards: tuple[Hazard, ...]
    compiled: tuple[UnderCompile, ...]

    @property
    def error(self) -> TcbuildError | None:
        """What a build would stop with; None where nothing is known that would stop it."""
        for job in self.jobs:
            if job.error is not None:
                return job.error
        for job in self.jobs:
            for change in job.changing:
                return VerifyError(
                    f"{job.job}: {change.line or 'a number of the graph'}",
                    found=" at one capture and ".join(change.values) + " at the next",
                    expected="the same number at each run of the model's code",
                )
        return None


@in_turn
def explain(spec: Spec, *, only: Sequence[str] = ()) -> Explanation:
    """Capture every job of a spec, and look at what Dynamo leaves out of its graphs.

    Args:
        spec: to explain.
        only: patterns of the ids of the jobs, as in `Plan.only`; all jobs where left out.

    Raises:
        TcbuildError: the spec is not valid, or there is no model to look at.
    """
    plan = Plan.of(spec).only(only)
    module = make_module(spec)
    placement = Placement(module)
    firsts = {job.entry: job for job in reversed(plan.jobs)}
    views = {
        entry: placement.on(firsts[entry].target.device, entry)
        for entry in spec.entries
        if entry in firsts
    }
    compiled = tuple(look(spec.of(entry), view, firsts[entry]) for entry, view in views.items())
    # A capture that fails has called the model: what it holds is looked at before.
    constants = frozen.find(module, spec.entries)
    risks: dict[Hazard, None] = {}
    for entry, view in views.items():
        job, own = firsts[entry], spec.of(entry)
        call = example_call(own, view, job)
        risks |= dict.fromkeys(hazards.find(own, copy.deepcopy(view), job, call, constants))
    jobs = tuple(
        captures.of(spec.of(job.entry), placement.on(job.target.device, job.entry), job)
        for job in plan.jobs
    )
    findings = sorted(
        _findings(_breaks(compiled), jobs),
        key=lambda one: (one.stops is not True, one.stops is False),
    )
    return Explanation(
        name=spec.name,
        findings=tuple(findings),
        jobs=jobs,
        frozen=constants,
        hazards=tuple(risks),
        compiled=compiled,
    )


def _breaks(compiled: Sequence[UnderCompile]) -> list[Break]:
    """Return the breaks of all methods; a line that several come to is told of once."""
    found: list[Break] = []
    for one in compiled:
        known = {_place(before.line) for before in found if before.line}
        found += [new for new in one.breaks if _place(new.line) not in known]
    return found


def _findings(found: Sequence[Break], jobs: Sequence[Outcome]) -> Iterator[Finding]:
    """Put what Dynamo says and what stops a build into one: a line is named once."""
    stopping = {_place(one.line): one for one in _stopped(jobs)}
    captured = all(job.error is None for job in jobs)
    told = set()
    for one in found:
        place = _place(one.line)
        told.add(place)
        stops = None
        if place in stopping:
            stops = True
        elif captured or one.reason.stops == NO:
            stops = False
        yield Finding(
            line=one.line, reason=one.reason, stops=stops, said=one.said, cost=cost.of(one.cuts)
        )
    yield from (one for place, one in stopping.items() if place not in told)


def _stopped(jobs: Sequence[Outcome]) -> Iterator[Finding]:
    """Yield what torch.export has stopped at, by job, and what the check of a variant would refuse."""
    for job in jobs:
        for change in job.changing:
            said = " at one capture and ".join(change.values) + " at the next"
            yield Finding(line=change.line, reason=CHANGING, stops=True, said=said)
        cause = job.error.__cause__ if isinstance(job.error, CaptureError) else None
        if cause is None or isinstance(cause, TcbuildError):
            continue
        line = capture.line_of(cause)
        text = str(cause)
        summary = next((part.strip() for part in text.splitlines() if part.strip()), "no message")
        code = line.code if line else ""
        reason = reasons.find(f"{text}\n{code}", summary, ())
        yield Finding(line=line, reason=reason, stops=True, said=summary)


def _place(line: Line | None) -> tuple[str, int] | None:
    return (line.file, line.number) if line else None
