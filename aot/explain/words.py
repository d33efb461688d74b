"""An explanation as lines of text."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from .captures import Outcome
from .cost import Cost
from .explanation import Explanation, Finding
from .hazard import Hazard

STOPS = {
    True: "stops the build",
    False: "does not stop the build",
    None: "may stop the build: no capture came this far",
}
_MOST = 4  # tensors and fusions of a break that are named


def lines(explanation: Explanation, *, guards: bool) -> Iterator[str]:
    """Yield the lines.

    Args:
        explanation: what was found.
        guards: whether to list all guards of every job.
    """
    bad = sum(job.error is not None for job in explanation.jobs)
    jobs = counted(len(explanation.jobs), "job")
    words = f"{bad} of {jobs} cannot be captured" if bad else f"{jobs}, all captured"
    yield f"{explanation.name}: {words}"
    for number, finding in enumerate(explanation.findings, start=1):
        yield ""
        yield from _finding(number, finding)
    yield ""
    yield "jobs"
    for job in explanation.jobs:
        yield from _indented(_job(job, guards=guards))
    if explanation.frozen:
        yield "constants: Python values that the model's code may read; a model with others is another artifact"
        for name, text in explanation.frozen.items():
            yield f"  {name} = {text}"
    if explanation.hazards:
        yield "hazards: what would make torch.compile compile again, or a call miss the artifact"
        for hazard in explanation.hazards:
            yield from _indented(_hazard(hazard))
    yield from _under_compile(explanation)


def _finding(number: int, finding: Finding) -> Iterator[str]:
    line = finding.line
    yield f"{number}  {line or 'in code of torch'}"
    body = []
    if line and line.code:
        body += [f"  {line.code}"]
    body += textwrap.wrap(f"{finding.reason.kind}: {finding.reason.words}", 100)
    body += [STOPS[finding.stops]]
    if finding.cost is not None:
        body += textwrap.wrap(f"under torch.compile: {_cost(finding.cost)}", 100)
    if finding.hides:
        body += [
            "the whole function runs eagerly from there: breaks behind this line show without it"
        ]
    body += ["ways out"]
    for way in finding.reason.ways_out:
        body += textwrap.wrap(way, 98, initial_indent="- ", subsequent_indent="  ")
    yield from _indented(body)


def _cost(cost: Cost) -> str:
    words = ["a break of the graph"]
    if cost.times > 1:
        words = [f"a break of the graph, come to {cost.times} times a call"]
    if cost.crossings:
        words.append(f"through memory: {tensors(cost)} ({size(cost.bytes)})")
    if cost.lost:
        words.append(f"no longer one kernel: {some(cost.lost)}")
    return "; ".join(words)


def tensors(cost: Cost) -> str:
    """Return the tensors that cross a break, those alike once."""
    named = Counter(map(str, cost.crossings))
    return some([name if times == 1 else f"{times} x {name}" for name, times in named.items()])


def _job(job: Outcome, *, guards: bool) -> Iterator[str]:
    if job.error is not None:
        yield f"{job.job}: cannot be captured"
        for line in str(job.error).splitlines():
            yield from _indented(textwrap.wrap(line, 100))
    else:
        operators = counted(job.operators, "operator")
        yield f"{job.job}: captured, {operators}, {counted(len(job.guards), 'guard')}"
    for one in job.fixed:
        yield f"  {one.path}.size({one.axis}): {one.name} is only {one.size}" + _by(one.line)
    for relation in job.relations:
        yield f"  {relation.text}" + _by(relation.line)
    if guards:
        yield from (f"  {guard}" for guard in job.guards)


def _hazard(hazard: Hazard) -> Iterator[str]:
    yield hazard.place + _by(hazard.line)
    body = textwrap.wrap(f"{hazard.kind}: {hazard.words}", 98)
    for way in hazard.ways_out:
        body += textwrap.wrap(way, 96, initial_indent="- ", subsequent_indent="  ")
    yield from _indented([*body, *_indented(hazard.spec.splitlines())])


def _by(line: object) -> str:
    return f", by {line}" if line else ""


def _under_compile(explanation: Explanation) -> Iterator[str]:
    for one in explanation.compiled:
        what = one.entry or "the model"
        if one.problem:
            yield f"torch.compile stops with {one.problem}; lines behind that one are not looked at"
        elif one.pieces:
            yield f"torch.compile makes {counted(one.pieces, 'graph')} of {what}"


def some(items: "list[str] | tuple[str, ...]") -> str:
    """Return the first few, and how many there are behind."""
    more = len(items) - _MOST
    return ", ".join(items[:_MOST]) + (f" and {more} more" if more > 0 else "")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: int) -> str:
    """Return bytes in the unit that fits."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def _indented(text: "Iterator[str] | list[str]") -> Iterator[str]:
    return (f"  {line}" for line in text)
