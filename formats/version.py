"""The format version and its log.

Reading rules:

- A reader accepts every version from OLDEST to CURRENT, and refuses the others by name.
- A new optional field needs no new version: readers ignore fields they do not know.
- A field that a reader must understand to be right is listed by name in the manifest's `requires`;
  a reader refuses a name it does not know (FEATURES). This needs no new version either.
- A guard fact, a form of a variant or a form of a container that a reader does not know is refused
  by name, so a new one needs no new version.
- Anything else (the header, the section table, the meaning of a field) needs a new version, a line
  in this log, and a stored artifact of the old version under tests/formats/stored/.

Log:

- 1 (2026-11-29): first version.
"""

from typing import Final

CURRENT: Final = 1
OLDEST: Final = 1

# What a manifest may list in `requires`.
FEATURES: Final[frozenset[str]] = frozenset(
    {"external_weights", "methods", "packed_weights", "shard"}
)
