"""What a search has measured of its candidates, as the artifact keeps it, and who is the best of them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from ...formats.target import Target
from ...formats.trial import Trial
from ..candidate import Candidate
from .contest import Result

CLOSE: Final = 1.01  # as good as the fastest: the one that was named earlier is taken


def name_of(candidate: str, cuda_graph: bool) -> str:
    """Return what a candidate is called where it is measured."""
    return f"{candidate} + CUDA graph" if cuda_graph else candidate


def ways(target: Target) -> tuple[bool, ...]:
    """Return whether calls are replayed as CUDA graphs, of all ways to measure a candidate."""
    return (False, True) if target.device == "cuda" else (False,)


def of(
    offered: Sequence[Candidate],
    target: Target,
    common: Mapping[str, object],
    failed: Mapping[str, str],
    found: Result,
) -> list[Trial]:
    """Return the trials of all candidates, none chosen.

    Args:
        offered: in the order in which ties are decided.
        target: that they were compiled for.
        common: options of all of them, which no trial has.
        failed: why a candidate was not compiled.
        found: by the contest of the others.
    """
    trials = []
    for one in offered:
        for graph in ways(target):
            name = name_of(one.name, graph)
            seconds = found.seconds.get(name, ())
            if one.name in failed and graph:
                continue
            trials.append(
                Trial(
                    candidate=one.name,
                    cuda_graph=graph,
                    microseconds=_rounded(statistics.median(seconds) * 1e6) if seconds else 0.0,
                    calls=len(seconds),
                    problem=failed.get(one.name) or found.problems.get(name, ""),
                    options=one.own(common),
                )
            )
    return trials


def ranking(trials: Sequence[Trial]) -> list[int]:
    """Return the indices of the trials that were timed, the best first."""
    timed = [i for i, trial in enumerate(trials) if trial.microseconds and not trial.problem]
    ranked: list[int] = []
    while timed:
        fastest = min(trials[i].microseconds for i in timed)
        best = next(i for i in timed if trials[i].microseconds <= CLOSE * fastest)
        ranked.append(best)
        timed.remove(best)
    return ranked


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
