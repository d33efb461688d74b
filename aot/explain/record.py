"""An explanation as data, for `--json`."""

from dataclasses import asdict
from typing import Any

from ..errors import record_of
from .captures import Outcome
from .explanation import Explanation, Finding


def of(explanation: Explanation) -> dict[str, Any]:
    """Return it as plain values: sizes in bytes, lines as file, number, function and code."""
    return {
        "name": explanation.name,
        "findings": [_finding(one) for one in explanation.findings],
        "jobs": [_job(one) for one in explanation.jobs],
        "frozen": explanation.frozen,
        "hazards": [asdict(one) for one in explanation.hazards],
        "compiled": [
            {"entry": one.entry, "pieces": one.pieces, "problem": one.problem}
            for one in explanation.compiled
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "line": asdict(finding.line) if finding.line else None,
        "kind": finding.reason.kind,
        "words": finding.reason.words,
        "ways_out": list(finding.reason.ways_out),
        "stops": finding.stops,
        "said": finding.said,
        "hides": finding.hides,
        "cost": asdict(finding.cost) if finding.cost else None,
    }


def _job(job: Outcome) -> dict[str, Any]:
    return {
        "id": job.job,
        "operators": job.operators,
        "guards": [str(guard) for guard in job.guards],
        "relations": [asdict(one) for one in job.relations],
        "fixed": [asdict(one) for one in job.fixed],
        "changing": [asdict(one) for one in job.changing],
        "error": None if job.error is None else record_of(job.error),
    }
