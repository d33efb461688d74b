"""The values that code reads from around it: which are found, under which name, and which are not."""

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import pytest

from tcbuild.formats import code_values
from tcbuild.formats.code_values import find

FLAG, NUMBER, FRACTION, TEXT, NOTHING = True, 3, 0.5, "mean", None
LISTED = (1, 2)
TABLE = {"a": 1}
UNUSED = 1
COUNT = 0
shape = 5  # is also the name of an attribute
LONG = "x" * (code_values.MAX_TEXT + 1)
settings = types.ModuleType("settings")
settings.EPS = 1e-6  # type: ignore[attr-defined]
settings.inner = types.ModuleType("settings.inner")  # type: ignore[attr-defined]
settings.inner.DEEP = "deep"
HERE = f"globals {__name__}."


def plain(x: Any) -> Any:
    """Read one of each type."""
    return x, FLAG, NUMBER, FRACTION, TEXT, NOTHING, LISTED, TABLE, LONG, __name__


def nested(x: Any) -> Any:
    """Read within a lambda, a comprehension and a class."""

    class Inner:
        value = TEXT

    return [NUMBER * y for y in x], (lambda: FRACTION)(), Inner


def attributes(x: Any) -> Any:
    """Read an attribute that is called like a global, and one of a plain value."""
    return x.shape, TEXT.upper()


def of_modules(x: Any) -> Any:
    """Read what other modules hold."""
    return x * settings.EPS, settings.inner.DEEP, math.pi


def counts(x: Any) -> Any:
    """Change the global that it reads."""
    global COUNT
    COUNT += 1
    return x * COUNT


class Endless:
    """Says that it wraps itself."""

    def __getattr__(self, name: str) -> "Endless":
        return self

    def __repr__(self) -> str:
        return "endless"  # the same in every process, as a test's name must be


@functools.wraps(plain)
def wrapper(*args: Any) -> Any:
    """Wrap a function that reads more."""
    return plain(*args), UNUSED


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            plain,
            {
                **{f"{HERE}FLAG": "True", f"{HERE}NUMBER": "3", f"{HERE}FRACTION": "0.5"},
                **{f"{HERE}TEXT": "'mean'", f"{HERE}NOTHING": "None", f"{HERE}LISTED": "[1, 2]"},
            },
        ),
        (nested, {f"{HERE}TEXT": "'mean'", f"{HERE}NUMBER": "3", f"{HERE}FRACTION": "0.5"}),
        (attributes, {f"{HERE}TEXT": "'mean'"}),
        (
            of_modules,
            {
                "globals settings.EPS": "1e-06",
                "globals settings.inner.DEEP": "'deep'",
                "globals math.pi": repr(math.pi),
            },
        ),
        (counts, {}),
        (Endless(), {}),
        (print, {}),
        (None, {}),
    ],
    ids=lambda value: str(getattr(value, "__name__", "")),
)
def test_globals(function: Any, expected: dict[str, str]) -> None:
    assert find({"part": function}) == dict(sorted(expected.items()))


def test_what_a_wrapper_wraps_is_read_too() -> None:
    assert find({"": wrapper}) == {**find({"": plain}), f"{HERE}UNUSED": "1"}


def scaled(scale: float, count: int) -> Callable[[float], float]:
    """Return a function that reads two variables of its closure, and changes one."""

    def forward(x: float) -> float:
        nonlocal count
        count += 1
        return x * scale * count * len(later)

    if count > 100:
        later = "never"
    return forward


def test_variables_of_closures() -> None:
    parts = {"": scaled(0.5, 1), "layers.0": scaled(2.0, 1)}
    assert find(parts) == {"closure layers.0.scale": "2.0", "closure scale": "0.5"}


def test_methods_and_the_name_of_a_module_that_was_imported_from_its_file() -> None:
    namespace: dict[str, Any] = {"__name__": "_tcbuild_model_1_model", "SCALE": 2}
    namespace[code_values.CALLED] = "model"
    exec("class Model:\n    def forward(self, x):\n        return x * SCALE", namespace)
    assert find({"": namespace["Model"]().forward}) == {"globals model.SCALE": "2"}


def test_the_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_values, "MAX_VALUES", 2)
    assert len(find({"": plain})) == 2
