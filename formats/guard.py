"""One checkable fact about a call, a process or a host, as data.

A guard says which fact of which subject must have which value. Whoever holds the subject observes the
fact (the runtime, in observe.py and host.py); whether the observed value will do is decided here, so
that building, serving and inspecting agree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .bucket import Range
from .errors import ManifestError, UnknownFeatureError
from .expression import evaluate
from .layout import is_dense, layout_of

PROCESS: Final = "process"
HOST: Final = "host"
DIMS: Final = "dims"


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """One fact, and the value it must have.

    Attributes:
        subject: the path of an input leaf (`ids`, `inputs['feats'][1]`), or "dims" (the sizes of the
            call by name), "process" (settings of the calling thread or process) or "host".
        fact: a key of FACTS.
        expected: what the fact must be; FACTS says what form it has.
        axis: of the input, where the fact is "size".
    """

    subject: str
    fact: str
    expected: Any
    axis: int | None = None

    def accepts(self, actual: object, dims: Mapping[str, int]) -> bool:
        """Return whether the observed value will do, for a call with these sizes."""
        return FACTS[self.fact].accepts(self.expected, actual, dims)

    def __str__(self) -> str:
        return f"{self.name}: {FACTS[self.fact].words(self.expected)}"

    @property
    def name(self) -> str:
        """What the guard is about: `ids.size(1)`, `ids.dtype`, `host.torch`."""
        if self.axis is not None:
            return f"{self.subject}.{self.fact}({self.axis})"
        return f"{self.subject}.{self.fact}"

    def refusal(self, actual: object, dims: Mapping[str, int]) -> str:
        """Say in one line that the guard refuses the observed value, with both values."""
        expected = FACTS[self.fact].words(self.expected)
        if self.fact == "size" and isinstance(self.expected, str):
            try:
                expected = f"{expected} = {evaluate(self.expected, dims)}"
            except ManifestError:  # a size that the expression needs could not be read
                pass
        if self.fact == "relation":
            actual = f"false for {', '.join(f'{name}={size}' for name, size in dims.items())}"
        return f"{self.name}: expected {expected}, found {FACTS[self.fact].show(actual)}"


@dataclass(frozen=True, slots=True)
class Fact:
    """How the expected value of one kind of fact is held against the observed one."""

    accepts: Callable[[Any, Any, Mapping[str, int]], bool]
    words: Callable[[Any], str]
    well_formed: Callable[[Any], bool]
    show: Callable[[Any], str] = str


def _same(expected: Any, actual: Any, _: Mapping[str, int]) -> bool:
    return type(expected) is type(actual) and bool(expected == actual)


def _size(expected: Any, actual: int, dims: Mapping[str, int]) -> bool:
    if isinstance(expected, int):
        return actual == expected
    if isinstance(expected, str):
        return actual == evaluate(expected, dims)
    return actual in Range(**expected)


def _layout(expected: str, actual: tuple[Any, Any], _: Mapping[str, int]) -> bool:
    return is_dense(expected, *actual)


def _layout_words(actual: tuple[Any, Any]) -> str:
    return layout_of(*actual) or f"strides {tuple(actual[1])} for shape {tuple(actual[0])}"


def _relation(expected: str, _: object, dims: Mapping[str, int]) -> bool:
    return evaluate(expected, dims) is True


def _contains(expected: list[str], actual: Any, _: Mapping[str, int]) -> bool:
    return set(expected) <= set(actual)


def _at_least(expected: str, actual: str, _: Mapping[str, int]) -> bool:
    return _version(actual) >= _version(expected)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _size_words(expected: Any) -> str:
    return str(Range(**expected)) if isinstance(expected, dict) else str(expected)


def _is_size(expected: Any) -> bool:
    if isinstance(expected, dict):
        keys = set(expected) <= {"min", "max"} and "min" in expected
        return keys and all(type(size) is int for size in expected.values() if size is not None)
    return type(expected) in (int, str)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda expected: type(expected) in kinds


def _is_list(expected: Any) -> bool:
    return isinstance(expected, list | tuple) and all(isinstance(item, str) for item in expected)


def _list_words(expected: Any) -> str:
    return " ".join(expected)


_TEXT = Fact(_same, str, _is(str))
_FLAG = Fact(_same, str, _is(bool))
_NUMBER = Fact(_same, str, _is(int))

FACTS: Final[Mapping[str, Fact]] = {
    # of an input that is a tensor
    "type": _TEXT,  # the class, "Tensor" or "Parameter" for plain ones
    "dtype": _TEXT,
    "device": _TEXT,  # the device type
    "rank": _NUMBER,
    "size": Fact(_size, _size_words, _is_size),  # a number, an expression, or {"min", "max"}
    # "contiguous", or the order of the axes; observed as shape and strides (see layout.py)
    "layout": Fact(_layout, str, _is(str), _layout_words),
    "neg": _FLAG,
    "conj": _FLAG,
    "requires_grad": _FLAG,
    "shared": _FLAG,  # whether it overlaps in memory with another input
    # of an input that is a Python value: its type and repr
    "value": _TEXT,
    # of "dims"
    "relation": Fact(_relation, str, _is(str)),
    # of "process"
    "grad_mode": _FLAG,
    "autocast": _FLAG,
    "default_dtype": _TEXT,
    "deterministic": _FLAG,
    "modes": _NUMBER,  # how many torch dispatch and function modes are active
    # of "host"
    "torch": _TEXT,
    "os": _TEXT,
    "arch": _TEXT,
    "isa": Fact(_contains, _list_words, _is_list),
    "glibc": Fact(_at_least, lambda expected: f"at least {expected}", _is(str)),
}


def check(guard: Guard, where: str) -> None:
    """Refuse a guard that this version cannot evaluate.

    Raises:
        UnknownFeatureError: the fact is not one of FACTS.
        ManifestError: the expected value has not the form that the fact needs.
    """
    fact = FACTS.get(guard.fact)
    if fact is None:
        raise UnknownFeatureError(
            where, found=f"a guard on {guard.fact!r}", expected=f"one of {', '.join(FACTS)}"
        )
    if not fact.well_formed(guard.expected):
        raise ManifestError(
            where, found=f"{guard.expected!r}", expected=f"a value for a guard on {guard.fact!r}"
        )
    if (guard.fact == "size") != (guard.axis is not None):
        raise ManifestError(
            where, found=f"axis {guard.axis} for {guard.fact!r}", expected="an axis with a size"
        )
