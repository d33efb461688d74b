"""Everything there is to compile, in order, before anything is compiled."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

from ..formats.bucket import Bucket
from ..formats.target import Target
from . import targets
from .call_mode import CallMode
from .errors import NoJobError
from .spec import ON, Spec

EVAL: Final = CallMode()


def calls(bucket: Bucket, choices: Mapping[str, object], mode: CallMode = EVAL) -> str:
    """Return in words which calls a job is for: `batch=8,seq=2..512,enabled=True,train,grad`."""
    chosen = (f"{name}={value!r}" for name, value in choices.items())
    return ",".join(filter(None, [str(bucket), *chosen, str(mode)])) or "static"


def buckets_of(spec: Spec) -> list[Bucket]:
    """Return every combination of the pieces of the dimensions, those with fewer ranges first."""
    pieces = [[(name, size) for size in dim.pieces()] for name, dim in spec.dims.items()]
    buckets = [Bucket(dims=dict(choice)) for choice in itertools.product(*pieces)]
    return sorted(buckets, key=lambda bucket: len(bucket.ranges()))


def choices_of(spec: Spec) -> tuple[dict[str, object], ...]:
    """Return every combination of the listed values, and of optional parameters there and left out."""
    listed = [[(name, value) for value in values] for name, values in spec.values.items()]
    optional: list[list[tuple[str, object] | None]] = [
        [None, (name, None)] for name in spec.optional
    ]
    return tuple(
        dict(choice for choice in chosen if choice is not None)
        for chosen in itertools.product(*listed, *optional)
    )


def modes_of(spec: Spec) -> tuple[CallMode, ...]:
    """Return every combination of the listed modes, and that of training steps where they are built."""
    pairs = itertools.product(spec.training, spec.grad)
    modes = [CallMode(training=training, grad=grad == ON) for training, grad in pairs]
    if spec.step is None:
        return tuple(modes)
    return (*(modes if spec.step.inference else ()), CallMode(training=True, grad=True, step=True))


@dataclass(frozen=True, kw_only=True)
class Job:
    """One bucket for one target: what becomes one variant.

    Attributes:
        entry: the method of the model that it is for; "" for the model's own call.
        choices: the Python value that each listed parameter has, and None for an optional one that is
            left out.
        mode: of the calls.
    """

    bucket: Bucket
    target: Target
    choices: Mapping[str, object] = field(default_factory=dict)
    mode: CallMode = EVAL
    entry: str = ""

    @property
    def id(self) -> str:
        """The identifier of the job and of its variant: `prefill:batch=8,seq=2..512@cpu-x86-64-v4`."""
        method = f"{self.entry}:" if self.entry else ""
        return f"{method}{calls(self.bucket, self.choices, self.mode)}@{self.target}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All jobs of a spec. Buckets with fewer ranges come first: they are tried first at run time."""

    name: str
    jobs: tuple[Job, ...]

    @classmethod
    def of(cls, spec: Spec) -> "Plan":
        """Expand the dimension policies of a spec, for each of its methods."""
        return cls(
            name=spec.name,
            jobs=tuple(
                Job(entry=entry, bucket=bucket, target=target, choices=choice, mode=mode)
                for target in map(targets.resolve, spec.targets)
                for entry in spec.entries
                for mode in modes_of(spec)
                for choice in choices_of(spec.of(entry))
                for bucket in buckets_of(spec.of(entry))
            ),
        )

    def only(self, patterns: Sequence[str]) -> "Plan":
        """Return the plan with only the jobs whose id one of the patterns matches; all for none.

        Args:
            patterns: with `*` and `?`, as in file names: `batch=8,*`.

        Raises:
            NoJobError: a pattern matches no job.
        """
        ids = [job.id for job in self.jobs]
        for pattern in patterns:
            if not any(fnmatchcase(id, pattern) for id in ids):
                expected = f"one that matches some of: {'; '.join(ids)}"
                raise NoJobError(self.name, found=f"the pattern {pattern!r}", expected=expected)
        chosen = (
            job for job in self.jobs if any(fnmatchcase(job.id, pattern) for pattern in patterns)
        )
        return replace(self, jobs=tuple(chosen)) if patterns else self

    def part(self, index: int, count: int) -> "Plan":
        """Return one of `count` parts of the plan: every count-th job, from the index-th on.

        Neighbours are of like sizes, so that all parts have like work.

        Args:
            index: from 1.
            count: of parts.

        Raises:
            NoJobError: there are fewer jobs than parts.
            ValueError: there is no such part.
        """
        if not 1 <= index <= count:
            message = f"part {index} of {count}: expected 1 to {count}"
            raise ValueError(message)
        if count > len(self.jobs):
            expected = f"at most {len(self.jobs)}, one for each job"
            raise NoJobError(
                self.name,
                found=f"{count} parts",
                expected=expected,
                tip="ask for fewer shards; tcbuild plan SPEC prints the id of every job",
            )
        return replace(self, jobs=self.jobs[index - 1 :: count])

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.jobs)} job{'s' if len(self.jobs) != 1 else ''}"]
        return "\n".join([*lines, *(f"  {job.id}" for job in self.jobs)])
