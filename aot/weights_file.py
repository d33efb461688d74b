"""The weights in a file of their own: written aside, as the artifact is, and named just before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..formats.external import External, file_beside
from .errors import OutputError
from .package import aside
from .weight_table import WeightTable
from .writing import writing


@dataclass(frozen=True, kw_only=True)
class Written:
    """A file with weights that has not got its name yet.

    Attributes:
        path: where it is now.
        final: where it will be.
        record: what a manifest says of it.
    """

    path: Path
    final: Path
    record: External


@contextmanager
def beside(artifact: Path, weights: WeightTable, *, external: bool) -> Iterator[Written | None]:
    """Write the weights to a file beside an artifact; it gets its name when the block ends well.

    An artifact that is under its name before the new one is there, and has other weights, finds other
    digests in the new file, and is refused.

    Args:
        artifact: where the artifact will be.
        weights: of the model.
        external: whether they are to be in a file of their own; where not, or where there are none,
            nothing is written, and None is given.

    Raises:
        OutputError: the file cannot be written; what was under its name before is still there.
    """
    if not external or not weights.bytes():
        yield None
        return
    if artifact.is_dir():  # else found out once the weights have their name
        raise OutputError(artifact, found="a folder", expected="a path for a file")
    final = file_beside(artifact)
    with aside(final) as new:
        with writing(final):
            tensors = weights.write_file(new)
        yield Written(path=new, final=final, record=External(file=final.name, tensors=tensors))
