"""Containers taken apart and built again."""

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest

from tcbuild.formats.signature import Branch, Parameter, Signature, TensorLeaf, ValueLeaf
from tcbuild.formats.tree import (
    ContainerTypeError,
    StructureError,
    arguments,
    assemble,
    container_type,
    flatten,
)


@dataclasses.dataclass
class Output:
    hidden: object
    extra: object = None


class Pair(NamedTuple):
    first: object
    second: object


NO_CLASS = 7


def leaf(index: int) -> TensorLeaf:
    return TensorLeaf(dtype="float32", shape=(), index=index)


def of(kind: type[Any], form: str, *keys: str, children: int = 2) -> Branch:
    plain = kind in (list, tuple, dict)
    name = kind.__name__ if plain else f"{kind.__module__}:{kind.__qualname__}"
    return Branch(type=name, form=form, keys=keys, children=tuple(map(leaf, range(children))))


CASES: list[tuple[Any, Branch, list[str]]] = [
    ([1, 2], of(list, "list"), ["x[0]", "x[1]"]),
    ((1, 2), of(tuple, "tuple"), ["x[0]", "x[1]"]),
    ({"a": 1, 5: 2}, of(dict, "dict", "a", "#5"), ["x['a']", "x[5]"]),
    (OrderedDict(a=1, b=2), of(OrderedDict, "dict", "a", "b"), ["x['a']", "x['b']"]),
    (Pair(1, 2), of(Pair, "namedtuple", "first", "second"), ["x.first", "x.second"]),
    (Output(1, 2), of(Output, "dataclass", "hidden", "extra"), ["x.hidden", "x.extra"]),
]


@pytest.mark.parametrize(("value", "node", "paths"), CASES)
def test_apart_and_together(value: Any, node: Branch, paths: list[str]) -> None:
    assert list(flatten(value, node, "x")) == list(zip(paths, [1, 2], strict=True))
    made = assemble(node, lambda leaf: leaf.index + 1)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize("other", [case[0] for case in CASES])
@pytest.mark.parametrize("node", [case[1] for case in CASES])
def test_another_container(other: Any, node: Branch) -> None:
    if type(other) is not container_type(node):
        with pytest.raises(StructureError, match=r"x: expected an? \w+, found an? \w+"):
            list(flatten(other, node, "x"))


@pytest.mark.parametrize(
    ("value", "node", "message"),
    [
        ([1], of(list, "list"), "x: expected 2 items, found 1"),
        ({"a": 1}, of(dict, "dict", "a", "b"), r"expected keys \[\"'a'\", \"'b'\"\]"),
        ({"a": 1, "5": 2}, of(dict, "dict", "a", "#5"), "expected keys"),
        (Output(1, 2), of(Output, "dataclass", "hidden", children=1), "found .*extra"),
    ],
)
def test_another_structure(value: Any, node: Branch, message: str) -> None:
    with pytest.raises(StructureError, match=message):
        list(flatten(value, node, "x"))


@pytest.mark.parametrize(
    ("branch", "message"),
    [
        (Branch(type="no.such.module:Class", form="tuple"), "no.such"),
        (Branch(type="collections:Nothing", form="dict"), "Nothing"),
        (Branch(type=f"{__name__}:NO_CLASS", form="dict"), "found a int, expected a class"),
        (of(Output, "dict", "hidden", "extra"), "expected a dict with hidden, extra"),
        (of(Output, "namedtuple", "hidden", "extra"), "expected a namedtuple with"),
        (of(Output, "dataclass", "hidden", "gone"), "found a class with hidden, extra"),
        (of(Pair, "namedtuple", "second", "first"), "found a class with first, second"),
        (of(Pair, "list"), "expected a list"),
        (of(OrderedDict, "dataclass", "a"), "found a class with no fields"),
    ],
)
def test_class_that_is_not_there(branch: Branch, message: str) -> None:
    with pytest.raises(ContainerTypeError, match=message):
        container_type(branch)


def test_arguments() -> None:
    def parameter(name: str, form: str, node: Any = None) -> Parameter:
        return Parameter(name=name, form=form, node=node)

    rest = of(tuple, "tuple", children=0)
    more = Branch(type="dict", form="dict", keys=("k",), children=(ValueLeaf.of(3),))
    signature = Signature(
        parameters=(
            parameter("a", "positional_only", leaf(0)),
            parameter("b", "positional_or_keyword", leaf(1)),
            parameter("rest", "var_positional", rest),
            parameter("c", "keyword_only", ValueLeaf.of("text")),
            parameter("left_out", "keyword_only"),
            parameter("more", "var_keyword", more),
        )
    )
    assert arguments(signature, [10, 11]) == ((10,), {"b": 11, "c": "text", "k": 3})
    starred = dataclasses.replace(rest, children=(leaf(2),))
    by_position = dataclasses.replace(
        signature,
        parameters=(
            *signature.parameters[:2],
            dataclasses.replace(signature.parameters[2], node=starred),
        ),
    )
    assert arguments(by_position, [10, 11, 12]) == ((10, 11, 12), {})
