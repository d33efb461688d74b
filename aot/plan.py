"""Everything there is to compile, in order, before anything is compiled."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ..formats.bucket import Bucket
from ..formats.target import Target
from . import targets
from .errors import NoJobError
from .spec import Spec


@dataclass(frozen=True, kw_only=True)
class Job:
    """One bucket for one target: what becomes one variant."""

    bucket: Bucket
    target: Target

    @property
    def id(self) -> str:
        """The identifier of the job and of its variant: `batch=8,seq=2..512@cpu-x86-64-v4`."""
        return f"{self.bucket if self.bucket.dims else 'static'}@{self.target}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All jobs of a spec. Buckets with fewer ranges come first: they are tried first at run time."""

    name: str
    jobs: tuple[Job, ...]

    @classmethod
    def of(cls, spec: Spec) -> "Plan":
        """Expand the dimension policies of a spec."""
        pieces = [[(name, size) for size in dim.pieces()] for name, dim in spec.dims.items()]
        buckets = [Bucket(dims=dict(choice)) for choice in itertools.product(*pieces)]
        buckets.sort(key=lambda bucket: len(bucket.ranges()))
        return cls(
            name=spec.name,
            jobs=tuple(
                Job(bucket=bucket, target=targets.resolve(target))
                for target in spec.targets
                for bucket in buckets
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

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.jobs)} job{'s' if len(self.jobs) != 1 else ''}"]
        return "\n".join([*lines, *(f"  {job.id}" for job in self.jobs)])
