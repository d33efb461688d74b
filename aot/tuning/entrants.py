"""The compiled candidates of a job, in artifacts that are not kept: to be timed, and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from .. import operators, trial_artifact
from ..candidate import Candidate
from ..capture import Captured
from ..compile import Compiled
from ..library_part import library_part
from ..padding import Padding
from ..partition import Partitioned
from ..plan import Job
from ..spec import Spec
from ..verify import Inputs, verify
from ..weight_table import WeightTable
from . import contest, trials
from .contest import Entry, Result
from .standings import Standings


class Entrants:
    """Those that compile."""

    def __init__(
        self,
        spec: Spec,
        job: Job,
        captured: Captured,
        partitioned: Partitioned,
        padded: Padding | None,
        made: Mapping[str, Compiled],
        folder: Path,
    ) -> None:
        """Take in what was compiled.

        Args:
            spec, job, captured, partitioned, padded: as for `library_part`.
            made: by the names of the candidates.
            folder: for the artifacts.
        """
        self._spec = spec
        self._job = job
        self._captured = captured
        self._partitioned = partitioned
        self._padded = padded
        self._made = made
        self._folder = folder

    def contest(self, offered: Sequence[Candidate], seconds: float, standings: Standings) -> Result:
        """Time all of them, on CUDA with and without CUDA graphs."""
        target = self._job.target
        there = [one for one in offered if one.name in self._made]
        path = self._folder / "all.tcb"
        on_cuda = target.device == "cuda"
        self._write(path, [replace(one, cuda_graph=on_cuda) for one in there], apart=True)
        entries = [
            Entry(
                name=trials.name_of(one.name, graph), variant=self._id(one.name), cuda_graph=graph
            )
            for one in there
            for graph in trials.ways(target)
        ]
        tensors = self._captured.tensors
        found = contest.run(path, tensors, entries, target, seconds, standings)
        path.unlink()
        return found

    def problem(self, candidate: Candidate, module: torch.nn.Module, inputs: Inputs) -> str:
        """Return what is wrong with the answers of a candidate, or nothing."""
        path = self._folder / "one.tcb"
        self._write(path, [candidate], apart=False)
        rows = verify(
            path,
            module=module,
            inputs=inputs,
            tolerance=self._spec.tolerance,
            imports=operators.files(),
            at=self._spec.example_sizes(self._job.bucket),
        )
        path.unlink()
        return next((f"{row.output}: {row.problem}" for row in rows if row.problem), "")

    def _write(self, path: Path, chosen: Sequence[Candidate], *, apart: bool) -> None:
        weights = WeightTable()
        parts = [
            library_part(
                self._spec,
                self._job,
                self._captured,
                self._partitioned,
                self._made[candidate.name],
                candidate,
                weights,
                self._padded,
            )
            for candidate in chosen
        ]
        if apart:
            parts = [
                replace(part, id=self._id(candidate.name))
                for part, candidate in zip(parts, chosen, strict=True)
            ]
        trial_artifact.write(path, self._spec, parts, weights, self._job.target)

    def _id(self, candidate: str) -> str:
        return f"{self._job.id} {candidate}"
