"""An artifact that is written to try something, and not kept."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..formats.target import Target
from . import environment
from .package import Part, package
from .producer import producer
from .spec import Spec
from .weight_table import WeightTable


def write(
    path: Path, spec: Spec, parts: Sequence[Part], weights: WeightTable, target: Target
) -> None:
    """Write the parts for one target to `path`, as those of a model that is called itself."""
    package(
        path,
        spec.name,
        [replace(part, entry="") for part in parts],
        weights,
        source=spec.source,
        producer=producer(),
        environment=environment.describe(target),
        frozen={},
    )
