"""What a build did, for people and for pipelines."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from ..formats.trial import Trial
from .writing import write_whole

# Where the choice of a search comes from: measured now, measured before on a machine like this, or taken
# from another artifact.
MEASURED, CACHED, REUSED = "measured", "cached", "reused"


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """One job: where its time went and what came out.

    Attributes:
        id: of the job and its variant.
        compiled: whether it was compiled now; False where the job cache had it.
        seconds: by stage.
        library_bytes: of its files, unpacked.
        relations: what its sizes must satisfy beyond their ranges.
        trials: what the search for the fastest code measured; empty where nothing was searched.
        tuning: where the choice comes from: "measured" now, "cached" from a search on a machine like this,
            or "reused" from the artifact of `--tuning-from`; empty where nothing was searched.
        cuts: of a training step, what each way to cut forward from backward saves and computes anew, at
            the example sizes; the spec's choice is the one that was taken.
    """

    id: str
    compiled: bool
    seconds: Mapping[str, float]
    library_bytes: int
    relations: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    tuning: str = ""
    cuts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TuningSource:
    """The artifact whose choices a build has made again.

    Attributes:
        artifact: its path.
        sha256: of the file, in hexadecimal.
        reused: the jobs whose choice is its.
        new: those that it has no variant for, which were searched.
    """

    artifact: Path
    sha256: str
    reused: tuple[str, ...]
    new: tuple[str, ...]

    def __str__(self) -> str:
        new = f", {len(self.new)} new: {', '.join(self.new)}" if self.new else ""
        return f"tuning from {self.artifact} (sha256 {self.sha256}): {len(self.reused)} reused{new}"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A finished build.

    Attributes:
        artifact: its path.
        bytes: the size of the artifact.
        weight_bytes: of the weights, in the artifact or in a file of their own.
        weights_file: that file; None where the weights are in the artifact.
        jobs: one entry each.
        seconds: of the whole build.
        verification: one row for each variant and size, empty where it was switched off.
        tuning_from: whose choices were made again; None where the build was given none.
        notes: what the user should know, such as why there is no embedded graph.
    """

    artifact: Path
    bytes: int
    weight_bytes: int
    weights_file: Path | None = None
    jobs: tuple[JobReport, ...]
    seconds: float
    verification: tuple[Any, ...] = ()
    tuning_from: TuningSource | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def compiled(self) -> int:
        """How many jobs were compiled now."""
        return sum(job.compiled for job in self.jobs)

    def __str__(self) -> str:
        weights = f"{self.weight_bytes / 1e6:.1f} MB of weights"
        where = f", {self.weights_file}: {weights}" if self.weights_file else f" ({weights})"
        lines = [
            f"wrote {self.artifact}: {self.bytes / 1e6:.1f} MB"
            f"{where}, {len(self.jobs)} variants, "
            f"{self.compiled} compiled, {self.seconds:.1f} s"
        ]
        if self.tuning_from is not None:
            lines.append(str(self.tuning_from))
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def json_text(value: object) -> str:
    """Return records as JSON; numbers that JSON does not have (inf, nan) become null."""
    return json.dumps(_plain(value), indent=2, sort_keys=True, allow_nan=False) + "\n"


def write_json(value: object, path: str | os.PathLike[str]) -> None:
    """Write a report as JSON, by rename.

    Raises:
        OutputError: it cannot be written; nothing is left under `path`.
    """
    write_whole(json_text(value), path)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
