"""What a signature and the trees in it must be, beyond the types of their fields."""

import inspect
from collections.abc import Iterator
from typing import Final

from . import expression, layout
from .dtype import DTYPES
from .errors import ManifestError, UnknownFeatureError
from .signature import (
    Branch,
    DimLeaf,
    InputLeaf,
    Node,
    Parameter,
    Signature,
    Size,
    Symbol,
    TensorLeaf,
    ValueLeaf,
    optional,
    read_key,
    step,
    write_key,
)
from .strict_json import show
from .text import is_dim, is_dotted, is_identifier

_PLAIN: Final = ("list", "tuple", "dict")
_NAMED: Final = ("namedtuple", "dataclass")


def check(signature: Signature, where: str) -> None:
    """Refuse a signature that no call can have.

    Raises:
        ManifestError: it names, numbers or orders something wrongly.
        UnknownFeatureError: it has a container of a form that this version does not know.
        TooLargeError: an expression is too long.
    """
    _check_parameters(signature.parameters, where)
    leaves = {
        path: leaf
        for parameter in signature.parameters
        if parameter.node is not None
        for path, leaf in check_tree(parameter.node, parameter.name, where)
    }
    tensors = [leaf for leaf in leaves.values() if isinstance(leaf, TensorLeaf)]
    if [leaf.index for leaf in tensors] != list(range(len(tensors))):
        raise ManifestError(where, found="tensor inputs out of order", expected="0, 1, 2, ...")
    dims = _check_symbols(signature.symbols, tensors, where)
    for path, leaf in leaves.items():
        if isinstance(leaf, DimLeaf | InputLeaf):
            found = f"an input of kind {leaf.kind!r}"
            raise ManifestError(f"{where}: {path}", found=found, expected="tensor, value or branch")
        check_leaf(leaf, dims, len(tensors), f"{where}: {path}")


def check_tree(node: Node, path: str, where: str) -> Iterator[tuple[str, Node]]:
    """Yield each leaf under a node with its path, once the containers above it are checked."""
    if not isinstance(node, Branch):
        yield path, node
        return
    _check_branch(node, f"{where}: {path}")
    for i, child in enumerate(node.children):
        yield from check_tree(child, path + step(node, i), where)


def check_leaf(leaf: Node, dims: frozenset[str], inputs: int, where: str) -> None:
    """Refuse a leaf with a dtype, shape, layout, value or number that cannot be.

    Args:
        leaf: of the inputs or the outputs.
        dims: the names that sizes may be written with.
        inputs: how many input tensors there are.
        where: for messages.

    Raises:
        ManifestError: it has one.
        TooLargeError: an expression is too long.
    """
    match leaf:
        case TensorLeaf():
            check_tensor(leaf.dtype, leaf.shape, leaf.layout, where)
            for size in leaf.shape:
                if isinstance(size, str):
                    expression.check(size, int, dims, where)
            if leaf.index < 0:
                raise ManifestError(where, found=f"index {leaf.index}", expected="0 or more")
            if leaf.sample.low > leaf.sample.high or leaf.sample.std < 0:
                found = f"values of {leaf.sample}"
                raise ManifestError(where, found=found, expected="low <= high, std >= 0")
        case ValueLeaf():
            _check_value(leaf, where)
        case DimLeaf():
            expression.check(leaf.size, int, dims, where)
        case InputLeaf() if not 0 <= leaf.index < inputs:
            raise ManifestError(
                where, found=f"input {leaf.index}", expected=f"one of {inputs} input tensors"
            )


def check_tensor(dtype: str, shape: tuple[Size, ...], order: str, where: str) -> None:
    """Refuse a dtype, a shape or a layout that no tensor has.

    Raises:
        ManifestError: naming it.
    """
    if dtype not in DTYPES:
        raise ManifestError(where, found=f"dtype {show(dtype)}", expected="one of torch's")
    if len(shape) > layout.MAX_RANK:
        raise ManifestError(
            where, found=f"{len(shape)} axes", expected=f"at most {layout.MAX_RANK}"
        )
    if any(isinstance(size, int) and size < 0 for size in shape):
        raise ManifestError(where, found=f"shape {list(shape)}", expected="no negative size")
    layout.axes(order, len(shape), where)


def _check_value(leaf: ValueLeaf, where: str) -> None:
    try:
        text = repr(leaf.value)
    except ManifestError as error:
        raise error.at(where) from None
    # How a str is escaped depends on the version of Python; all else is written in one way.
    if leaf.type != "str" and text != leaf.text:
        raise ManifestError(where, found=show(leaf.text), expected=text)


def _check_parameters(parameters: tuple[Parameter, ...], where: str) -> None:
    """Refuse parameters that Python would not take as those of one function."""
    made = []
    for parameter, may_be_left_out in zip(parameters, optional(parameters), strict=True):
        place = f"{where}: parameter {show(parameter.name)}"
        if not is_identifier(parameter.name):
            raise ManifestError(place, found=show(parameter.name), expected="a Python identifier")
        kind = getattr(inspect._ParameterKind, parameter.form.upper(), None)
        if not isinstance(kind, inspect._ParameterKind) or parameter.form != kind.name.lower():
            forms = ", ".join(kind.name.lower() for kind in inspect._ParameterKind)
            raise ManifestError(place, found=show(parameter.form), expected=f"one of {forms}")
        starred = {kind.VAR_POSITIONAL: "tuple", kind.VAR_KEYWORD: "dict"}.get(kind)
        if starred is not None and not _fits_starred(parameter, starred):
            expected = f"a {starred} with names for keys, and no default"
            raise ManifestError(place, found=f"another {parameter.form}", expected=expected)
        if parameter.default is not None:
            _check_value(parameter.default, f"{place}: default")
        default = None if may_be_left_out else inspect.Parameter.empty
        made.append(inspect.Parameter(parameter.name, kind, default=default))
    try:
        inspect.Signature(made)
    except ValueError as error:
        expected = "the parameters of a Python function"
        raise ManifestError(where, found=str(error), expected=expected) from None


def _fits_starred(parameter: Parameter, kind: str) -> bool:
    node = parameter.node
    if not isinstance(node, Branch) or node.type != kind or parameter.default is not None:
        return False
    return all(isinstance(read_key(key), str) for key in node.keys)


def _check_symbols(
    symbols: tuple[Symbol, ...], tensors: list[TensorLeaf], where: str
) -> frozenset[str]:
    names: set[str] = set()
    for symbol in symbols:
        place = f"{where}: dim {show(symbol.name)}"
        if not is_dim(symbol.name) or symbol.name in names:
            expected = "an ASCII identifier, once, and neither min nor max"
            raise ManifestError(place, found=show(symbol.name), expected=expected)
        names.add(symbol.name)
        there = 0 <= symbol.input < len(tensors)
        if not there or not 0 <= symbol.axis < len(tensors[symbol.input].shape):
            found = f"axis {symbol.axis} of tensor {symbol.input}"
            raise ManifestError(place, found=found, expected="an axis that is there")
        if symbol.scale < 1:
            raise ManifestError(place, found=f"scale {symbol.scale}", expected="at least 1")
    return frozenset(names)


def _check_branch(branch: Branch, where: str) -> None:
    if branch.form not in (*_PLAIN, *_NAMED):
        found, expected = f"a container of form {show(branch.form)}", ", ".join((*_PLAIN, *_NAMED))
        raise UnknownFeatureError(where, found=found, expected=f"one of {expected}")
    module, _, name = branch.type.partition(":")
    if branch.type in _PLAIN:
        fits = branch.type == branch.form
    else:
        fits = is_dotted(module) and is_dotted(name)
    if not fits:
        expected = f"{branch.form!r} or module:class"
        raise ManifestError(where, found=f"type {show(branch.type)}", expected=expected)
    keys = branch.keys
    keyed = branch.form in ("dict", *_NAMED)
    if len(keys) != (len(branch.children) if keyed else 0) or len(set(keys)) != len(keys):
        found = f"{len(set(keys))} keys for {len(branch.children)} items"
        expected = "one for each" if keyed else f"none in a {branch.form}"
        raise ManifestError(where, found=found, expected=expected)
    for key in keys:
        if branch.form in _NAMED and not is_identifier(key):
            raise ManifestError(where, found=f"field {show(key)}", expected="a Python identifier")
        if branch.form == "dict" and write_key(read_key(key)) != key:
            expected = show(write_key(read_key(key)))
            raise ManifestError(where, found=f"key {show(key)}", expected=expected)
