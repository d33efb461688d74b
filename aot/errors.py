"""What can go wrong on the way from a spec to an artifact. One exit code for each class."""

from collections.abc import Mapping
from typing import Any

from ..formats.errors import TcbuildError


class SpecError(TcbuildError):
    exit_code = 20
    problem = "the spec is not valid"
    default_tip = "README.md explains every key of the spec; tcbuild init writes a commented one"


class NoJobError(SpecError):
    problem = "no job of the plan is meant"
    default_tip = "tcbuild plan SPEC prints the id of every job"


class ModelError(TcbuildError):
    """The model or its example inputs cannot be had, or do not run eagerly."""

    exit_code = 21
    problem = "the model is not usable"


class CaptureError(TcbuildError):
    """The model cannot be captured as one graph that is right for the declared sizes."""

    exit_code = 22
    problem = "the model cannot be captured"


class CompileError(TcbuildError):
    exit_code = 23
    problem = "compilation failed"
    default_tip = (
        "the compiler's own output is above; tcbuild doctor checks the compiler itself; "
        "build one bucket alone with --only to narrow it"
    )


class VerifyError(TcbuildError):
    """A variant does not answer as the model does."""

    exit_code = 24
    problem = "a variant is not right"


class OutputError(TcbuildError):
    """The artifact or a report cannot be written; nothing is left under its name."""

    exit_code = 25
    problem = "cannot be written"
    default_tip = (
        "free some space or pass another path; what was compiled is kept and not done again"
    )


class ToolError(TcbuildError):
    """The build machine lacks something."""

    exit_code = 26
    problem = "the build environment is incomplete"
    default_tip = "tcbuild doctor checks all of it, and says what to type"


class MergeError(TcbuildError):
    """The parts of a build do not fit together."""

    exit_code = 27
    problem = "the parts do not make one artifact"
    default_tip = "build each part of the same plan: tcbuild build SPEC --shard i/N -o PART"


class TuningError(TcbuildError):
    """What was tuned before does not fit the build."""

    exit_code = 29
    problem = "the earlier tuning is for something else"
    default_tip = "leave out --tuning-from to search anew"


class ClusterError(TcbuildError):
    """A cluster has lost a part of a build too often, or cannot do it."""

    exit_code = 28
    problem = "the cluster did not build a part"
    default_tip = (
        "see the cluster's own log; tcbuild build SPEC --executor local builds on this machine"
    )


class FaultError(TcbuildError):
    """A layer between the model and its artifact is at fault."""

    exit_code = 30
    problem = "a layer is at fault"


def record_of(error: Exception) -> dict[str, str]:
    """Return an error as another process may read it."""
    record = {"class": type(error).__name__, "where": "", "expected": ""}
    record["found"] = f"{type(error).__name__}: {error}"
    if isinstance(error, TcbuildError):
        record |= {"where": error.where, "found": error.found}
        record |= {"expected": error.expected, "tip": error.tip}
    return record


def recorded(record: Mapping[str, str], where: str) -> TcbuildError:
    """Return an error of the builder's own as another process recorded it.

    Args:
        record: what `record_of` gave.
        where: what it is about, where it was no error of ours.
    """
    kind = globals().get(record["class"])
    if isinstance(kind, type) and issubclass(kind, TcbuildError) and "tip" in record:
        error: TcbuildError = kind(
            record["where"], found=record["found"], expected=record["expected"], tip=record["tip"]
        )
        return error
    return CompileError(where, found=record["found"], expected="a library")


def relayed(record: Mapping[str, Any]) -> TcbuildError:
    """Return an error of the process that answers calls, as it recorded it.

    Its class has the name, the words and the exit code of the runtime's, which the builder does not
    import.
    """
    names = {"exit_code": record["exit_code"], "problem": record["problem"]}
    kind = type(record["class"], (TcbuildError,), names)
    error: TcbuildError = kind(
        record["where"], found=record["found"], expected=record["expected"], tip=record["tip"]
    )
    return error
