"""Every error of tcbuild says three things: what was found, what was expected, what to do next."""

from typing import ClassVar, TypeVar

Error = TypeVar("Error", bound="TcbuildError")


class TcbuildError(Exception):
    """Base of every error tcbuild raises on purpose.

    Args:
        where: the file, input, key or stage the error is about.
        found: what is there.
        expected: what should be there.
        tip: the next step; the class has one of its own where this is None.

    `exit_code` is what the command line exits with; it is part of the interface.
    """

    exit_code: ClassVar[int] = 1
    problem: ClassVar[str] = "failed"
    default_tip: ClassVar[str] = ""

    def __init__(
        self, where: object, *, found: object, expected: object, tip: str | None = None
    ) -> None:
        self.where = str(where)
        self.found = str(found)
        self.expected = str(expected)
        self.tip = self.default_tip if tip is None else tip
        super().__init__(self.where, self.found, self.expected)

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}: found {self.found}, expected {self.expected}"
        return f"{text}\nTIP: {self.tip}" if self.tip else text

    def at(self: Error, place: object) -> Error:
        """Return the same error about something that lies in `place`: a field of a file, say."""
        where = f"{place}: {self.where}"
        return type(self)(where, found=self.found, expected=self.expected, tip=self.tip)


class FormatError(TcbuildError):
    """The bytes are not a `.tcb` file this version can read. The subclasses are a closed set."""

    exit_code = 10
    problem = "the artifact is not valid"
    default_tip = "copy the file again, or rebuild it with: tcbuild build SPEC -o FILE"


class NotAnArtifactError(FormatError):
    problem = "this is not a .tcb artifact"
    default_tip = "check the path; artifacts are written by: tcbuild build SPEC -o FILE"


class TruncatedError(FormatError):
    problem = "the length of the file is not the one its header states"


class VersionError(FormatError):
    problem = "the format version is not one this tcbuild reads"
    default_tip = "see the version log in formats/SPEC.md; upgrade tcbuild, or rebuild the artifact"


class UnknownFeatureError(FormatError):
    problem = "the artifact needs a feature this tcbuild does not have"
    default_tip = "upgrade tcbuild to the version that built it, or rebuild with this one"


class ManifestError(FormatError):
    problem = "the manifest is malformed"


class SectionError(FormatError):
    problem = "a section is malformed"


class DigestError(FormatError):
    problem = "the bytes do not have the digest that was recorded for them"


class TooLargeError(FormatError):
    problem = "a size is over the limit"


class WeightsError(FormatError):
    problem = "the weights are malformed"


class MissingWeightsError(FormatError):
    problem = "the file with the weights cannot be opened"
    default_tip = "put it beside the artifact under that name, or say where it is: weights=PATH"
