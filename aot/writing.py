"""What the system says about a write, as an error of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

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
