"""A diagnosis as lines of text."""

import textwrap
from collections.abc import Iterator

from .diagnosis import Climbed, Diagnosis, Fault


def lines(found: Diagnosis) -> Iterator[str]:
    """Yield the lines: the rungs, then the fault."""
    yield f"{found.name}: {found.job}"
    for rung in found.rungs:
        yield of_rung(rung.rung, rung.kind or "ok", rung.seconds, rung.peak)
    yield from details(found)


def of_rung(rung: str, state: str, seconds: float, peak: int) -> str:
    """Return the line of a rung; `peak` in bytes."""
    memory = f"{peak / 1e6:.0f} MB" if peak else ""
    return f"  {rung:<24}{state:<16}{seconds:>7.1f} s  {memory:>8}".rstrip()


def details(found: Diagnosis) -> Iterator[str]:
    """Yield what is said below the rungs."""
    yield ""
    if found.fault is None:
        yield "every rung holds"
    else:
        yield from _fault(found.fault, found.rungs[-1])


def _fault(fault: Fault, rung: Climbed) -> Iterator[str]:
    yield f"{fault.rung}: {fault.kind}"
    yield f"  this rung adds: {rung.adds}"
    yield from textwrap.wrap(fault.said, 100, initial_indent="  ", subsequent_indent="  ")
    if len(fault.operators) > 1:
        yield f"  {len(fault.operators)} operators together:"
    for one in fault.operators:
        yield f"  operator  {one.op}"
        yield from (f"    takes {form}" for form in one.takes)
        yield from (f"    makes {form}" for form in one.makes)
        if one.line:
            yield f"    {one.line}"
            yield f"      {one.code}"
    if not fault.operators:
        yield "  no operator shows it by itself" + (f"; {fault.line}" if fault.line else "")
    if fault.avoid:
        yield "  ways out"
        for way in fault.avoid:
            yield from textwrap.wrap(way, 98, initial_indent="  - ", subsequent_indent="    ")
    if fault.repro is not None:
        how = "shows it" if fault.reproduces else "does not show it: the values are drawn anew"
        yield f"  {fault.repro} {how}"
