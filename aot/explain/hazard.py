"""What is one way in the example call, and may be another in service."""

from dataclasses import dataclass

from ..source_line import Line


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """Something that would make torch.compile compile again, or a call miss the artifact.

    Attributes:
        place: an input's path, an axis of one, an attribute of the model, or a global.
        kind: a name for it, such as `value not declared`.
        words: what it is here, and what another would do.
        ways_out: what to do about it, the best first.
        spec: the lines to write in tcbuild.toml; empty where that does not help.
        line: of the user's code; None where it is none of theirs.
    """

    place: str
    kind: str
    words: str
    ways_out: tuple[str, ...]
    spec: str = ""
    line: Line | None = None
