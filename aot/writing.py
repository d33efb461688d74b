"""What the system says about a write, as an error of ours."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import OutputError


@contextmanager
def writing(path: object, tip: str | None = None) -> Iterator[None]:
    """Turn an OSError of the block into an OutputError.

    Args:
        path: what is written; the error names the file of the OSError instead, where it has one.
        tip: the next step, where it is another than OutputError's own.

    Raises:
        OutputError: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise OutputError(
            error.filename2 or error.filename or path,  # the second one of a rename is its goal
            found=error.strerror or str(error),
            expected="a path with room for it",
            tip=tip,
        ) from error


def need_folder(path: Path) -> None:
    """Refuse, before any work is done for it, a path whose folder is not there.

    Raises:
        OutputError: it is not.
    """
    if not path.parent.is_dir():
        raise OutputError(path, found=f"no folder {path.parent}", expected="an existing folder")


def write_whole(text: str, path: str | os.PathLike[str]) -> None:
    """Write a text as UTF-8, by rename.

    Raises:
        OutputError: it cannot be written; what was under `path` is as it was.
    """
    target = Path(path)
    with writing(path, tip="pass another path"):
        descriptor, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(aside, 0o644)
            os.replace(aside, target)
        except BaseException:
            os.unlink(aside)
            raise
