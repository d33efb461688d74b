"""Records to JSON and back."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcbuild.formats import strict_json
from tcbuild.formats.bucket import Bucket, Range
from tcbuild.formats.errors import ManifestError, TooLargeError
from tcbuild.formats.manifest import Manifest
from tcbuild.formats.record import MAX_DEPTH, decode, encode
from tcbuild.formats.signature import (
    Branch,
    DimLeaf,
    InputLeaf,
    Node,
    Parameter,
    Sample,
    TensorLeaf,
    ValueLeaf,
)
from tests.formats import samples


@dataclass(frozen=True, kw_only=True)
class Point:
    kind: ClassVar[str] = "point"
    x: int
    label: str = "none"


@dataclass(frozen=True, kw_only=True)
class Line:
    kind: ClassVar[str] = "line"
    ends: tuple[Point, ...]
    names: dict[str, int | None]
    width: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Drawing:
    shape: Point | Line | None = None
    size: int | str = 1


LINE = Line(ends=(Point(x=1), Point(x=2, label="b")), names={"b": 1, "a": None})


def test_defaults_are_left_out_and_keys_sorted() -> None:
    data = encode(LINE)
    assert data == {
        "kind": "line",
        "ends": [{"kind": "point", "x": 1}, {"kind": "point", "x": 2, "label": "b"}],
        "names": {"a": None, "b": 1},
    }
    assert list(data["names"]) == ["a", "b"]


@pytest.mark.parametrize(
    "drawing", [Drawing(), Drawing(shape=LINE, size="n + 1"), Drawing(shape=Point(x=0), size=7)]
)
def test_round_trip(drawing: Drawing) -> None:
    assert decode(Drawing, encode(drawing), "drawing") == drawing


def test_unknown_fields_are_ignored() -> None:
    data = {"kind": "point", "x": 1, "colour": {"deep": [[[]]]}}
    assert decode(Point, data, "p") == Point(x=1)


@pytest.mark.parametrize(
    ("data", "where", "found", "expected"),
    [
        ({}, "d.shape", "{}", "an object of kind 'point' or an object of kind 'line' or NoneType"),
        ({"kind": "arc"}, "d.shape", "an object of kind 'arc'", "an object of kind 'point'"),
        ({"kind": ["point"]}, "d.shape", "an object of kind ['point']", "an object"),
        ({"kind": "point"}, "d.shape", "no field 'x'", "Point.x"),
        ({"kind": "point", "x": True}, "d.shape.x", "True", "int"),
        ({"kind": "point", "x": 1.0}, "d.shape.x", "1.0", "int"),
        ({"kind": "point", "x": 1, "label": None}, "d.shape.label", "None", "str"),
        ({"kind": "line", "ends": {}, "names": {}}, "d.shape.ends", "{}", "a list"),
        ({"kind": "line", "ends": [7], "names": {}}, "d.shape.ends[0]", "7", "an object (Point)"),
        ({"kind": "line", "ends": [], "names": []}, "d.shape.names", "[]", "an object"),
        ({"kind": "line", "ends": [], "names": {"a": "b"}}, "d.shape.names['a']", "'b'", "int"),
        (
            {"kind": "line", "ends": [], "names": {}, "width": 1},
            "d.shape.width",
            "1",
            "float",
        ),
        (False, "d.shape", "False", "an object"),
    ],
)
def test_refused_with_its_path(data: object, where: str, found: str, expected: str) -> None:
    with pytest.raises(ManifestError) as caught:
        decode(Drawing, {"shape": data}, "d")
    assert caught.value.where == where
    assert caught.value.found == found
    assert caught.value.expected.startswith(expected)


def test_depth() -> None:
    node: object = {"kind": "value", "type": "NoneType", "text": "None"}
    for depth in range(1, MAX_DEPTH + 1):
        parameter = {"name": "x", "form": "keyword_only", "node": node}
        if depth < MAX_DEPTH:
            decode(Parameter, parameter, "p")
        node = {"kind": "branch", "type": "list", "form": "list", "children": [node]}
    with pytest.raises(TooLargeError, match="65 records"):
        decode(Parameter, parameter, "p")


def test_every_kind_of_record() -> None:
    for manifest in (samples.tiny()[0], samples.rich()[0]):
        value = strict_json.read(strict_json.write(encode(manifest)))
        assert decode(Manifest, value, "manifest") == manifest


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.integers(0, 2**63 - 1)
leaves = (
    st.builds(
        TensorLeaf,
        dtype=texts,
        shape=st.lists(counts | texts, max_size=3).map(tuple),
        index=counts,
        layout=texts,
        sample=st.builds(Sample, low=counts, std=st.floats(0, 1e300)),
    )
    | st.builds(ValueLeaf, type=texts, text=texts)
    | st.builds(DimLeaf, size=texts)
    | st.builds(InputLeaf, index=counts)
)
nodes: st.SearchStrategy[Node] = st.recursive(
    leaves,
    lambda inner: st.builds(
        Branch,
        type=texts,
        form=texts,
        keys=st.lists(texts, max_size=3).map(tuple),
        children=st.lists(inner, max_size=3).map(tuple),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(nodes)
def test_any_tree(node: Node) -> None:
    parameter = Parameter(name="x", form="keyword_only", node=node)
    value = strict_json.read(strict_json.write(encode(parameter)))
    assert decode(Parameter, value, "p") == parameter


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        texts, counts | st.builds(Range, min=counts, max=st.none() | counts), max_size=4
    )
)
def test_any_bucket(dims: dict[str, int | Range]) -> None:
    bucket = Bucket(dims=dims)
    value = strict_json.read(strict_json.write(encode(bucket)))
    assert decode(Bucket, value, "b") == bucket
