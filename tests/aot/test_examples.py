"""Example calls with chosen values: what is passed by name stays by name."""

from typing import Any

import pytest

from tcbuild.aot.errors import SpecError
from tcbuild.aot.examples import chosen


def forward(a: int, b: int = 0, *, c: int = 0) -> None:
    """Take three."""


def first(a: int, b: int = 0, /, *more: int) -> None:
    """Take two by position only, and any number more."""


@pytest.mark.parametrize(
    ("call", "choices", "expected"),
    [
        (((), {"a": 1, "b": 2}), {}, ((), {"a": 1, "b": 2})),
        (((1,), {"c": 3}), {}, ((1,), {"c": 3})),
        (((1, 2), {}), {"b": 5}, ((1, 5), {})),
        (((1,), {"b": 2}), {"b": 5}, ((1,), {"b": 5})),
        (((1,), {}), {"b": 5, "c": 6}, ((1,), {"b": 5, "c": 6})),
        (((), {"a": 1}), {"a": 5}, ((), {"a": 5})),
    ],
)
def test_chosen(call: Any, choices: dict[str, object], expected: Any) -> None:
    assert chosen(forward, call, choices) == expected


def test_chosen_by_position() -> None:
    assert chosen(first, ((1,), {}), {"b": 5}) == ((1, 5), {})
    assert chosen(first, ((1, 2, 3), {}), {"a": 5}) == ((5, 2, 3), {})


def test_chosen_unknown() -> None:
    with pytest.raises(SpecError, match=r"found 'd', expected one of a, b, c"):
        chosen(forward, ((1,), {}), {"d": 5})
