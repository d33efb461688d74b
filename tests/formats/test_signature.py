"""Trees of a call: paths, values, keys."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcbuild.formats.errors import ManifestError
from tcbuild.formats.signature import (
    Branch,
    Signature,
    TensorLeaf,
    ValueLeaf,
    read_key,
    walk,
    write_key,
)
from tcbuild.formats.signature_check import check
from tests.formats import samples


def test_paths() -> None:
    signature = samples.rich()[0].signatures[1]
    assert [path for path, _ in signature.inputs()] == [
        "ids",
        "inputs['feats'][0]",
        "inputs[7]",
        "inputs['#']",
        "scale",
        "more['flag']",
    ]
    assert [path for path, _ in signature.tensors()] == ["ids", "inputs['feats'][0]"]
    check(signature, "here")


def test_paths_of_fields() -> None:
    outputs = samples.rich()[0].variants[1].outputs
    paths = [path for path, _ in walk(outputs, "output")]
    assert paths == ["output.hidden", "output.rest.first", "output.rest.second"]


@settings(deadline=None)
@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text())
def test_value(value: object) -> None:
    leaf = ValueLeaf.of(value)
    assert type(leaf.value) is type(value)
    assert leaf.value == value or (isinstance(value, float) and math.isnan(value))
    assert str(leaf) == repr(value)


@pytest.mark.parametrize("value", [b"", (1,), 1j, [], type])
def test_value_of_another_type(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        ValueLeaf.of(value)


@pytest.mark.parametrize(
    ("type", "text"),
    [
        *(("bool", "true"), ("NoneType", "null"), ("int", "1.0"), ("int", ""), ("float", "x")),
        *(("str", "a"), ("str", "1"), ("str", "'"), ("str", "(" * 10**5), ("str", "-" * 10**5)),
        *(("bytes", "b''"), ("", ""), ("int", "1" * 10_000)),
    ],
)
def test_value_that_does_not_read(type: str, text: str) -> None:
    with pytest.raises(ManifestError, match="None, bool, int, float or str") as caught:
        _ = ValueLeaf(type=type, text=text).value
    assert len(str(caught.value)) < 400


@settings(deadline=None)
@given(st.integers() | st.text() | st.text("#-0123456789", max_size=5))
def test_key(key: int | str) -> None:
    assert read_key(write_key(key)) == key
    assert type(read_key(write_key(key))) is type(key)


@settings(deadline=None)
@given(st.text() | st.text("#-0123456789\N{SUPERSCRIPT TWO}", max_size=5))
def test_any_text_reads_as_a_key(text: str) -> None:
    assert isinstance(read_key(text), str | int)


@pytest.mark.parametrize("key", [None, True, 1.0, (1,)])
def test_key_of_another_type(key: object) -> None:
    with pytest.raises(TypeError, match=type(key).__name__):
        write_key(key)


def test_empty_signature() -> None:
    signature = Signature(parameters=())
    check(signature, "here")
    assert list(signature.inputs()) == []


def test_walk_is_depth_first() -> None:
    leaves = [TensorLeaf(dtype="int8", shape=(), index=i) for i in range(3)]
    inner = Branch(type="tuple", form="tuple", children=(leaves[0], leaves[1]))
    node = Branch(type="list", form="list", children=(inner, leaves[2]))
    assert list(walk(node, "x")) == [
        ("x[0][0]", leaves[0]),
        ("x[0][1]", leaves[1]),
        ("x[1]", leaves[2]),
    ]
