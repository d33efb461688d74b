"""What the reader of JSON refuses, and what writer and reader agree on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcbuild.formats import strict_json
from tcbuild.formats.strict_json import MAX_INT

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT - 1, MAX_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(values)
def test_round_trip(value: object) -> None:
    data = strict_json.write(value)
    assert strict_json.read(data) == value
    assert strict_json.write(strict_json.read(data)) == data
    assert json.loads(data) == value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Expecting value"),
        (b"{} {}", "Extra data"),
        (b"\xff", "invalid start byte"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'"\xed\xa0\x80"', "invalid continuation byte"),
        (b'"\\ud800"', "surrogates not allowed"),
        (b'{"\\udfff": 1}', "surrogates not allowed"),
        (b"NaN", "'NaN', which is not finite"),
        (b"-Infinity", "'-Infinity', which is not finite"),
        (b"1e999", "'1e999', which is not finite"),
        (b"9223372036854775808", "64 bits"),
        (b"-9223372036854775809", "64 bits"),
        (b"1" * 5000, "64 bits"),
        (b'{"a": 1, "a": 1}', "the key 'a' twice"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_json.read(data)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert strict_json.read(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_not_written(value: object) -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|surrogates not allowed"):
        strict_json.write(value)


def test_shown_in_little_room() -> None:
    nested: list[object] = []
    for _ in range(500):
        nested = [nested]
    for value in (nested, "a" * 10**6, list(range(10**5)), {str(i): i for i in range(10**4)}):
        assert len(strict_json.show(value)) <= 80
    assert strict_json.show("seq") == "'seq'"
