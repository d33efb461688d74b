"""What can go wrong between a valid artifact and an answer."""

from ..formats.errors import TcbuildError


class HostError(TcbuildError):
    """No variant of the artifact is for this machine and environment."""

    exit_code = 11
    problem = "the artifact is not for this host"
    default_tip = "rebuild it here, or for this target: tcbuild build SPEC -o FILE"


class MissError(TcbuildError):
    """No variant accepts a call, and nothing was there to fall back to."""

    exit_code = 12
    problem = "no variant accepts this call"
    default_tip = (
        "call it as one of the variants expects, add the missing sizes to the spec, "
        "or pass fallback=<module> to runtime.load"
    )


class LibraryError(TcbuildError):
    """A compiled library does not load, or is not the one the manifest describes."""

    exit_code = 13
    problem = "a compiled library does not load"


class OperatorError(TcbuildError):
    """A custom operator that the model calls is not registered in this process."""

    exit_code = 16
    problem = "an operator that the model calls is missing"


class StateError(TcbuildError):
    """Weights do not fit the artifact."""

    exit_code = 14
    problem = "the weights do not fit the artifact"
    default_tip = "pass a state with the names, shapes and dtypes that tcbuild inspect prints"
