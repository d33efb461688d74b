"""What a text in a manifest may be where it becomes a name: in Python code, a path, a message."""

import keyword
import re
from typing import Final

MAX_LABEL: Final = 1024  # characters

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_identifier(text: str) -> bool:
    """Return whether Python takes the text for a name: of a parameter, a field, a class."""
    return text.isidentifier() and not keyword.iskeyword(text)


def is_dotted(text: str) -> bool:
    """Return whether the text is names with dots between them: a module, a nested class."""
    return all(map(is_identifier, text.split(".")))


def is_dim(text: str) -> bool:
    """Return whether the text can name a dimension in an expression."""
    known = keyword.iskeyword(text) or text in ("min", "max")
    return _DIM.fullmatch(text) is not None and not known


def is_file_name(text: str) -> bool:
    """Return whether a file of that name lies in the folder it is put into, on every system."""
    return _FILE.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Return whether the text can stand in a line of a log."""
    return 0 < len(text) <= MAX_LABEL and text.isprintable()
