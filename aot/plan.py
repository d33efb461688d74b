"""Everything there is to compile, in order, before anything is compiled."""

import itertools
from dataclasses import dataclass

from ..formats.bucket import Bucket
from ..formats.target import Target
from . import targets
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

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.jobs)} job{'s' if len(self.jobs) != 1 else ''}"]
        return "\n".join([*lines, *(f"  {job.id}" for job in self.jobs)])
