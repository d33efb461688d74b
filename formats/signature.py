"""What a model takes and returns: names, structure, dtypes and sizes, without torch.

A call's arguments form a tree for each parameter. Its leaves are tensors and Python values; its
branches are containers, told apart by type and keys. Tensor leaves are numbered in the order in
which the parameters stand in the model's signature, then depth first.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from .errors import ManifestError
from .strict_json import show

Size = int | str  # a number, or an expression over dimension names (see expression.py)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """How to draw values like the ones the model was built with.

    Attributes:
        low, high: the closed range that integers and booleans are drawn from.
        mean, std: of the normal distribution that floating-point values are drawn from.
    """

    low: int = 0
    high: int = 0
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorLeaf:
    """A tensor.

    Attributes:
        dtype: as torch prints it, without the module: "float32".
        shape: the size of each axis.
        layout: "contiguous", or the axes from the outermost in memory to the innermost: "0,2,3,1".
        index: which of the program's tensors this is; inputs and outputs are numbered apart.
        sample: how to draw values for it; inputs only.
    """

    kind: ClassVar[str] = "tensor"
    dtype: str
    shape: tuple[Size, ...]
    index: int
    layout: str = "contiguous"
    sample: Sample = Sample()


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueLeaf:
    """A Python value.

    Attributes:
        type: "NoneType", "bool", "int", "float" or "str".
        text: its `repr`.
    """

    kind: ClassVar[str] = "value"
    type: str
    text: str

    @classmethod
    def of(cls, value: object) -> "ValueLeaf":
        """Record a value.

        Raises:
            TypeError: the value is of another type than the five.
        """
        if value is not None and type(value) not in (bool, int, float, str):
            raise TypeError(type(value).__name__)
        return cls(type=type(value).__name__, text=repr(value))

    @property
    def value(self) -> bool | int | float | str | None:
        """The value that was recorded.

        Raises:
            ManifestError: the text does not read as the type.
        """
        try:
            return _READ[self.type](self.text)
        except (KeyError, ValueError, SyntaxError, RecursionError, MemoryError):
            found = f"{show(self.type)} {show(self.text)}"
            raise ManifestError(
                "value", found=found, expected="None, bool, int, float or str"
            ) from None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class DimLeaf:
    """An integer that follows from the sizes of the inputs; outputs only.

    Attributes:
        size: an expression over dimension names.
    """

    kind: ClassVar[str] = "dim"
    size: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InputLeaf:
    """The very tensor that was passed; outputs only.

    Attributes:
        index: which of the input tensors it is.
    """

    kind: ClassVar[str] = "input"
    index: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A container.

    Attributes:
        type: "list", "tuple" or "dict", else the import path of a named tuple, a dataclass or a
            mapping with its own class ("transformers.modeling_outputs:BaseModelOutput").
        form: what it is built like: "list", "tuple", "dict", "namedtuple", "dataclass".
        keys: the keys of a dict, the field names of a named tuple or a dataclass; else empty. An
            int key is its digits behind a "#", a str key stands for itself, behind one more "#"
            if it has one.
        children: one node for each item.
    """

    kind: ClassVar[str] = "branch"
    type: str
    form: str
    keys: tuple[str, ...] = ()
    children: "tuple[Node, ...]" = ()  # all of it quoted: Python 3.10 reads no name inside a type


Node = TensorLeaf | ValueLeaf | DimLeaf | InputLeaf | Branch


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One parameter of the model's `forward`.

    Attributes:
        name: as `forward` has it.
        form: the name of its `inspect.Parameter.kind`, in lower case.
        default: the value it has when it is left out; None where it must be given.
        node: what it holds in the calls this signature is for; None where it is left out in them
            and has a default that is not one of the five value types.
    """

    name: str
    form: str
    default: ValueLeaf | None = None
    node: Node | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """A dimension, and where to read it off a call: that axis has the size `scale * it + offset`.

    Attributes:
        name: as expressions and buckets name it.
        input: index of the input tensor it is read from.
        axis: of that tensor.
        scale: at least 1.
        offset: may be negative.
    """

    name: str
    input: int
    axis: int
    scale: int = 1
    offset: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """What one set of variants takes. (What a variant returns may depend on its bucket: see there.)

    Attributes:
        parameters: of `forward`, in its order.
        symbols: the dimensions that expressions may name.
    """

    parameters: tuple[Parameter, ...]
    symbols: tuple[Symbol, ...] = ()

    def inputs(self) -> Iterator[tuple[str, TensorLeaf | ValueLeaf]]:
        """Yield each input leaf with its path, such as `inputs['feats'][1]`, in order."""
        for parameter in self.parameters:
            if parameter.node is not None:
                for path, leaf in walk(parameter.node, parameter.name):
                    if isinstance(leaf, TensorLeaf | ValueLeaf):
                        yield path, leaf

    def tensors(self) -> tuple[tuple[str, TensorLeaf], ...]:
        """Return the tensor inputs with their paths, in order of their index."""
        return tuple((path, leaf) for path, leaf in self.inputs() if isinstance(leaf, TensorLeaf))


def optional(parameters: tuple[Parameter, ...]) -> tuple[bool, ...]:
    """Return for each parameter whether Python lets a call leave it out.

    A default that is not one of the five value types is not recorded. Where the parameter is given
    nevertheless in the calls a signature is for, it is known to have one by standing behind
    one that has.
    """
    found: list[bool] = []
    behind = False  # a positional parameter with a default
    for parameter in parameters:
        has_default = parameter.default is not None or parameter.node is None
        positional = parameter.form.startswith("positional")
        behind = behind or (positional and has_default)
        starred = parameter.form.startswith("var")
        found.append(not starred and (has_default or (positional and behind)))
    return tuple(found)


def walk(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Yield each leaf under `node` with its path, depth first."""
    if not isinstance(node, Branch):
        yield path, node
        return
    for i, child in enumerate(node.children):
        yield from walk(child, path + step(node, i))


def step(branch: Branch, i: int) -> str:
    """Return how Python reaches item `i` of the container: `[1]`, `['feats']` or `.field`."""
    if branch.form in ("namedtuple", "dataclass"):
        return f".{branch.keys[i]}"
    return f"[{read_key(branch.keys[i])!r}]" if branch.form == "dict" else f"[{i}]"


def write_key(key: object) -> str:
    """Write a dict key as text; see Branch.keys.

    Raises:
        TypeError: the key is neither a str nor an int.
    """
    if type(key) is int:
        return f"#{key}"
    if type(key) is str:
        return f"#{key}" if key.startswith("#") else key
    raise TypeError(type(key).__name__)


def read_key(text: str) -> str | int:
    """Read a dict key back from text."""
    if not text.startswith("#"):
        return text
    rest = text[1:]
    return int(rest) if re.fullmatch(r"-?[0-9]{1,4000}", rest) else rest


def describe_value(value: object) -> str | None:
    """Return a value as text; None where it is no plain value or list of these."""
    if isinstance(value, list | tuple):
        items = [describe_value(item) for item in value]
        plain = [item for item in items if item is not None]
        return f"[{', '.join(plain)}]" if len(plain) == len(items) and len(items) <= 16 else None
    try:
        return str(ValueLeaf.of(value))
    except TypeError:
        return None


def _read_str(text: str) -> str:
    value = ast.literal_eval(text)
    if not isinstance(value, str):
        raise ValueError
    return value


_READ: dict[str, Callable[[str], bool | int | float | str | None]] = {
    "NoneType": lambda text: {"None": None}[text],
    "bool": lambda text: {"True": True, "False": False}[text],
    "int": int,
    "float": float,
    "str": _read_str,
}
