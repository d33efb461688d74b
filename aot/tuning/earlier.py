"""The choices of an artifact that was tuned before: the same are made again, and nothing is measured."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...formats.container import Artifact
from ...formats.signature import Signature
from ...formats.trial import Trial
from ...formats.variant import Variant
from .. import environment, inductor
from ..candidate import Candidate
from ..errors import TuningError
from ..partition import Partitioned
from ..plan import Job
from ..report import REUSED, JobReport, TuningSource
from ..structure import dtype_name

# What the times that were measured depend on, of what an artifact says of its build.
_DECIDES: Final = ("torch", "triton", "cuda", "gpu", "vector_flags")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a variant was compiled from, as far as an artifact keeps it.

    Attributes:
        graph: as source; None where it is not kept.
        inputs: dtype, sizes and layout of each tensor of a call, by path.
        weights: dtype and sizes of each constant, by slot.
    """

    graph: str | None
    inputs: Mapping[str, str]
    weights: Mapping[str, str]

    @classmethod
    def of(cls, graph: str, signature: Signature, partitioned: Partitioned) -> "Form":
        """Return the form of what is about to be compiled."""
        tensors = {slot: partitioned.weights[n] for slot, n in partitioned.constants.items()}
        weights = {s: f"{dtype_name(t.dtype)} {list(t.shape)}" for s, t in tensors.items()}
        return cls(graph=graph, inputs=_inputs(signature), weights=weights)

    @classmethod
    def stored(cls, artifact: Artifact, variant: Variant) -> "Form":
        """Return the form of a variant of an artifact."""
        manifest = artifact.manifest
        tensors = manifest.weights.tensors if manifest.weights is not None else {}
        weights = {slot: tensors[name] for slot, name in variant.constants.items()}
        return cls(
            graph=None if variant.reference is None else artifact.text(variant.reference),
            inputs=_inputs(manifest.signatures[variant.signature]),
            weights={slot: f"{w.dtype} {list(w.shape)}" for slot, w in weights.items()},
        )

    def difference(self, other: "Form") -> tuple[str, str] | None:
        """Return the first thing that is not as in the other, in the words of both."""
        for what, mine, others in (
            ("", self.inputs, other.inputs),
            ("weight ", self.weights, other.weights),
        ):
            for name in dict.fromkeys((*mine, *others)):
                if mine.get(name) != others.get(name):
                    said = (f"{what}{name}: {side.get(name, 'none')}" for side in (mine, others))
                    first, second = said
                    return first, second
        if self.graph is not None and self.graph != other.graph:
            return "another graph", "the graph that this build compiles"
        return None


def _inputs(signature: Signature) -> dict[str, str]:
    return {
        path: f"{leaf.dtype} {list(leaf.shape)} {leaf.layout}" for path, leaf in signature.tensors()
    }


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """What was chosen for a variant, among what, what it was compiled from, and with which options."""

    trials: tuple[Trial, ...]
    form: Form
    options: Mapping[str, str]


class EarlierTuning:
    """What the searches of an artifact have found, for the jobs of another build."""

    def __init__(self, path: Path, sha256: str, choices: Mapping[str, _Choice]) -> None:
        self._path = path
        self._sha256 = sha256
        self._choices = choices

    @classmethod
    def read(cls, path: str | os.PathLike[str], jobs: Sequence[Job]) -> "EarlierTuning":
        """Read the choices of an artifact.

        Args:
            path: of the artifact.
            jobs: of the build that they are for.

        Raises:
            FormatError: the file is malformed.
            TuningError: nothing in it was tuned, or on another GPU, for other targets, or with another torch.
        """
        with Artifact(path) as artifact:
            manifest = artifact.manifest
            choices = {
                variant.id: _Choice(
                    trials=variant.trials,
                    form=Form.stored(artifact, variant),
                    options=variant.options,
                )
                for variant in manifest.variants
                if any(trial.chosen for trial in variant.trials)
            }
        if not choices:
            expected = "an artifact that was built with mode = 'max-autotune'"
            raise TuningError(path, found="no tuning in it", expected=expected)
        mine = {str(job.target) for job in jobs}
        theirs = {str(v.target) for v in manifest.variants if v.id in choices}
        if mine.isdisjoint(theirs):
            raise TuningError(
                f"{path}: target",
                found=", ".join(sorted(theirs)),
                expected=f"{', '.join(sorted(mine))}, as this build",
            )
        now = environment.describe(*dict.fromkeys(job.target for job in jobs))
        for name in _DECIDES:
            before = manifest.environment.get(name)
            if name in now and before is not None and before != now[name]:
                raise TuningError(
                    f"{path}: {name}", found=before, expected=f"{now[name]}, as in this build"
                )
        return cls(Path(path), _digest(Path(path)), choices)

    def source(self, jobs: Iterable[JobReport]) -> TuningSource:
        """Return what a build of these jobs reports of it."""
        reused: list[str] = []
        new: list[str] = []
        for job in jobs:
            if job.tuning:
                (reused if job.tuning == REUSED else new).append(job.id)
        return TuningSource(
            artifact=self._path, sha256=self._sha256, reused=tuple(reused), new=tuple(new)
        )

    def choice(
        self, job: Job, form: Form, offered: Sequence[Candidate], common: Mapping[str, object]
    ) -> tuple[Candidate, tuple[Trial, ...]] | None:
        """Return what was chosen for a job, and all that was measured; None where it is a new one.

        Args:
            job: the job.
            form: of what it compiles.
            offered: the ways to compile it that there are now.
            common: the options that all of them have.

        Raises:
            TuningError: the job has other sizes or another graph than then, or the way is not there any
                more, or has other options.
        """
        found = self._choices.get(job.id)
        if found is None:
            return None
        where = f"{self._path}: {job.id}"
        difference = found.form.difference(form)
        if difference is not None:
            before, now = difference
            raise TuningError(where, found=before, expected=now)
        chosen = next(trial for trial in found.trials if trial.chosen)
        one = next((one for one in offered if one.name == chosen.candidate), None)
        if one is None:
            names = ", ".join(one.name for one in offered)
            raise TuningError(
                where, found=f"the choice {chosen.candidate!r}", expected=f"one of {names}"
            )
        own = (chosen.options, one.own(common))
        all_of_them = (found.options, inductor.describe_options(job.target, one.options))
        for then, these in (own, all_of_them):
            if then != these:
                raise TuningError(
                    where,
                    found=f"the choice {one.name!r} with {_differing(then, these)}",
                    expected=f"{_differing(these, then)}, as this build compiles it",
                )
        return replace(one, cuda_graph=chosen.cuda_graph), found.trials


def _differing(options: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Return the options that are not as in the others, in words."""
    names = sorted({*options, *others})
    return ", ".join(
        f"{name} = {options[name]}" if name in options else f"no {name}"
        for name in names
        if options.get(name) != others.get(name)
    )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
