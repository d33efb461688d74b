"""Expressions over dimension names."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcbuild.formats.errors import ManifestError, TooLargeError
from tcbuild.formats.expression import MAX_DEPTH, MAX_LENGTH, check, evaluate, names

DIMS = {"batch": 4, "seq": 10, "_x1": 0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("batch", 4),
        ("2*batch + 1", 9),
        ("-batch // 3", -2),
        ("seq % 4", 2),
        ("-(seq % -4)", 2),
        ("min(batch, seq, 7) - max(batch, 1)", 0),
        ("batch*seq <= 4096", True),
        ("0 < batch < seq", True),
        ("batch == 4 and not seq == 4", True),
        ("batch > 4 or seq > 10", False),
        ("True", True),
        (" batch ", 4),
        ("_x1", 0),
    ],
)
def test_value(text: str, value: int) -> None:
    assert evaluate(text, DIMS) == value
    assert type(evaluate(text, DIMS)) is type(value)
    check(text, type(value), frozenset(DIMS), "here")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "()", "batch seq", "batch +", "1.5", "1e3", "0x10", "1_000", "0or 1", "'a'"),
        *("batch ** 2", "batch / 2", "batch & 1", "~batch", "+batch", "batch << 1", "batch @ 2"),
        *("batch.real", "batch[0]", "(1, 2)", "[1]", "{1}", "lambda: 1", "1 if batch else 2"),
        *("None", "...", "f(1)", "min(1)", "min()", "min(*batch)", "min(1, 2, key=3)", "min"),
        *("__import__('os')", "print(1)", "(batch := 1)", "batch is 4", "batch in seq"),
        *("(batch > 1) + 1", "not batch", "batch and seq", "min(batch > 1, 2)", "-True"),
        *(
            "(batch > 1) == True",
            "batch = 4",
            "batch\n",
            "batch # why",
            "größe",
            "\N{FULLWIDTH LATIN SMALL LETTER B}",
            "a;b",
        ),
        *("(" * 2000, "-" * 4000 + "1", "not " * 900 + "True", "1+" * 2000 + "1"),
    ],
)
def test_not_in_the_grammar(text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        names(text)
    assert "integers, names" in caught.value.expected
    assert len(str(caught.value)) < 400


def test_length_and_depth() -> None:
    assert evaluate("1".ljust(MAX_LENGTH), {}) == 1
    assert evaluate("1+" * MAX_DEPTH + "1", {}) == MAX_DEPTH + 1
    with pytest.raises(TooLargeError, match=f"{MAX_LENGTH + 1} characters"):
        names("1".ljust(MAX_LENGTH + 1))
    with pytest.raises(ManifestError):
        names("1+" * (MAX_DEPTH + 1) + "1")


def test_names() -> None:
    assert names("max(batch, 2) + seq // 2 - 1") == {"batch", "seq"}
    with pytest.raises(ManifestError, match=r"unknown names \['other'\]"):
        evaluate("other + 1", DIMS)


def test_no_value() -> None:
    for text in ("batch // _x1", "batch % _x1"):
        with pytest.raises(ManifestError, match="a division by zero"):
            evaluate(text, DIMS)


def test_kind_and_dims() -> None:
    with pytest.raises(ManifestError, match=r"here: .*'batch > 1', expected a number"):
        check("batch > 1", int, frozenset(DIMS), "here")
    with pytest.raises(ManifestError, match=r"here: .*'batch', expected true or false"):
        check("batch", bool, frozenset(DIMS), "here")
    with pytest.raises(ManifestError, match=r"reads \['seq'\], expected dims \['batch'\]"):
        check("batch + seq", int, frozenset({"batch"}), "here")
    with pytest.raises(ManifestError, match="here: expression"):
        check("f()", int, frozenset(DIMS), "here")


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(" ".join)


def in_parentheses(text: str) -> str:
    return f"({text})"


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        joined(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(in_parentheses)
        | inner.map(lambda text: f"-{text}")
        | st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
        )
    )


numbers = st.recursive(
    st.sampled_from(sorted(DIMS)) | st.integers(0, 99).map(str), combined, max_leaves=12
)
relations = st.recursive(
    joined(numbers, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers),
    lambda inner: (
        joined(inner.map(in_parentheses), st.sampled_from(["and", "or"]), inner.map(in_parentheses))
        | inner.map(lambda text: f"not ({text})")
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=120)
@given(numbers | relations)
def test_means_what_python_means(text: str) -> None:
    try:
        expected = eval(text, {}, dict(DIMS))
    except ZeroDivisionError:
        with pytest.raises(ManifestError, match="a division by zero"):
            evaluate(text, DIMS)
    else:
        assert evaluate(text, DIMS) == expected


@settings(deadline=None, max_examples=150)
@given(st.text("ab019_+-*/%<>=!(), .\n#andortmix", max_size=30))
def test_any_text(text: str) -> None:
    with contextlib.suppress(ManifestError):
        evaluate(text, {"a": 1, "b": 2})
