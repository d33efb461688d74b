"""What each exit code means. Part of the interface: a code never comes to mean another thing.

The errors of the runtime are here by name: importing them would import torch.
"""

from typing import Final

from ...formats.errors import TcbuildError

UNEXPECTED: Final = 1
USAGE: Final = 2
DIFFERENT: Final = 3
INTERRUPTED: Final = 130

# (code, the error class that has it, what it says)
EXIT_CODES: Final[tuple[tuple[int, str, str], ...]] = (
    (0, "", "done"),
    (UNEXPECTED, "", "unexpected: a traceback is on stderr"),
    (USAGE, "", "wrong usage"),
    (DIFFERENT, "", "two artifacts are not the same"),
    (10, "FormatError", "the artifact is not valid"),
    (11, "HostError", "the artifact is not for this host"),
    (12, "MissError", "no variant accepts a call"),
    (13, "LibraryError", "a compiled library does not load"),
    (14, "StateError", "the weights do not fit the artifact"),
    (15, "ContainerTypeError", "a class that the model takes or returns is not here"),
    (16, "OperatorError", "a custom operator that the model calls is missing"),
    (20, "SpecError", "the spec is not valid"),
    (21, "ModelError", "the model is not usable"),
    (22, "CaptureError", "the model cannot be captured"),
    (23, "CompileError", "compilation failed"),
    (24, "VerifyError", "a variant is not right"),
    (25, "OutputError", "a file cannot be written"),
    (26, "ToolError", "the build environment is incomplete"),
    (27, "MergeError", "the parts of a build do not fit together"),
    (28, "ClusterError", "a cluster did not build a part"),
    (29, "TuningError", "an earlier tuning is for something else"),
    (30, "FaultError", "a layer between model and artifact is at fault"),
    (INTERRUPTED, "", "interrupted"),
)


def exit_code(error: BaseException) -> int:
    """Return the code that a command exits with when it fails with `error`."""
    if isinstance(error, TcbuildError):
        return error.exit_code
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else UNEXPECTED


def table() -> str:
    """Return the codes as text, one a line."""
    return "\n".join(
        f"{code:>3}  {words}{f' ({name})' if name else ''}" for code, name, words in EXIT_CODES
    )
