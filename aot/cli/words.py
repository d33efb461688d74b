"""What a model takes and returns, as a person would write it."""

from collections.abc import Iterator, Sequence

from ...formats.signature import (
    Branch,
    DimLeaf,
    InputLeaf,
    Node,
    Parameter,
    Signature,
    TensorLeaf,
    ValueLeaf,
    read_key,
)

_STARS = {"var_positional": "*", "var_keyword": "**"}


def parameters(signature: Signature) -> Iterator[str]:
    """Yield each parameter: `ids: int64[batch, seq]`; also `/` and `*`, as in a Python signature."""
    forms = [parameter.form for parameter in signature.parameters]
    for i, parameter in enumerate(signature.parameters):
        if parameter.form == "keyword_only" and not {"keyword_only", "var_positional"} & {
            *forms[:i]
        }:
            yield "*"
        yield _parameter(parameter)
        if parameter.form == "positional_only" and "positional_only" not in forms[i + 1 :]:
            yield "/"


def node(value: Node, inputs: Sequence[str] = ()) -> str:
    """Return a tree of tensors and values in words; `inputs` are the paths of the tensor inputs."""
    match value:
        case TensorLeaf():
            layout = "" if value.layout == "contiguous" else f" in memory order {value.layout}"
            return f"{value.dtype}[{', '.join(map(str, value.shape))}]{layout}"
        case ValueLeaf():
            return value.text
        case DimLeaf():
            return f"int({value.size})"
        case InputLeaf():
            return inputs[value.index]
        case Branch():
            return _branch(value, [node(child, inputs) for child in value.children])


def _branch(branch: Branch, items: list[str]) -> str:
    plain = {"list": "[{}]", "tuple": "({})" if len(items) != 1 else "({},)"}
    if branch.type in plain:
        return plain[branch.type].format(", ".join(items))
    name = "" if branch.type == "dict" else branch.type.partition(":")[2]
    if branch.form == "dict":
        pairs = (f"{read_key(k)!r}: {item}" for k, item in zip(branch.keys, items, strict=True))
        text = f"{{{', '.join(pairs)}}}"
        return f"{name}({text})" if name else text
    if branch.keys:
        items = [f"{key}={item}" for key, item in zip(branch.keys, items, strict=True)]
    return f"{name}({', '.join(items)})"


def _parameter(parameter: Parameter) -> str:
    name = f"{_STARS.get(parameter.form, '')}{parameter.name}"
    default = None if parameter.default is None else parameter.default.text
    if parameter.node is None:
        return f"{name}, left out"
    text = node(parameter.node)
    if isinstance(parameter.node, ValueLeaf):
        return f"{name} = {text}" + ("" if default in (None, text) else f" (not {default})")
    return f"{name}: {text}" + ("" if default is None else f" = {default}")
