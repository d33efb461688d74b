"""The calling convention: arguments bind by name and key, never by the order of whatever tensors come.

`Binder.bind` reads a call against a signature and says what differs; `compile_lookup` writes the same
reading out as one straight function, for calls like ones that were accepted before.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..formats.signature import (
    Branch,
    Node,
    Parameter,
    Signature,
    TensorLeaf,
    ValueLeaf,
    optional,
    read_key,
)
from ..formats.tree import StructureError, container_type, flatten
from . import devices, modes

# Takes what the model takes; gives what the memo has for such calls, and the tensors in order.
Lookup = Callable[..., tuple[Any, tuple[torch.Tensor, ...]] | None]


class Binder:
    """Reads calls against one signature.

    Attributes:
        signature: what the model takes.
        device: where it runs.
    """

    def __init__(self, signature: Signature, device: torch.device = devices.CPU) -> None:
        self.signature = signature
        self.device = device
        self._python = _python_signature(signature)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, object]:
        """Return what a call passed for each leaf of the signature, by path.

        Raises:
            StructureError: the call has other parameters or another structure.
        """
        try:
            arguments = self._python.bind(*args, **kwargs).arguments
        except TypeError as error:
            message = f"arguments: {error}"
            raise StructureError(message) from None
        leaves: dict[str, object] = {}
        for parameter in self.signature.parameters:
            if parameter.node is not None:
                value = arguments.get(parameter.name, _default(parameter))
                if value is _LEFT_OUT:
                    message = f"{parameter.name}: expected a value, found it left out"
                    raise StructureError(message)
                leaves.update(flatten(value, parameter.node, parameter.name))
            elif parameter.name in arguments:
                message = f"{parameter.name}: expected to be left out, found a value"
                raise StructureError(message)
        return leaves


def compile_lookup(
    signature: Signature,
    memo: Mapping[Any, Any],
    setting: Callable[[], object],
    more: Sequence[Callable[[], object]] = (),
    device: torch.device = devices.CPU,
) -> Lookup:
    """Return a function with the model's own parameters that finds what `memo` has for a call.

    The key is the size of each symbol's axis, then the settings of the thread that are no part of a
    tensor check: grad mode, default dtype, deterministic algorithms, function modes, forward
    differentiation; how the fallback module is set; and what the functions of `more` return, which are
    further settings that guards look at. `device` is where the model runs. The function returns None
    where the memo has nothing or the structure differs in a way it looks at; it raises whatever a call
    of another structure makes it run into.
    """
    writer = _Writer()
    for parameter in signature.parameters:
        if parameter.node is not None:
            if parameter.default is None:
                writer.lines.append(f"if {parameter.name} is _tcb_left_out: return None")
            writer.read(parameter.name, parameter.node)
        else:
            writer.lines.append(f"if {parameter.name} is not _tcb_left_out: return None")
    sizes = [f"{writer.tensors[s.input]}.shape[{s.axis}]" for s in signature.symbols]
    state = ["_tcb_grad()", "_tcb_dtype()", "_tcb_deterministic()"]
    state += ["_tcb_depth() and _tcb_modes(_tcb_device)"]
    state += ["_tcb_forward_ad._current_level", "_tcb_setting()"]
    state += [f"{writer.constant(read)}()" for read in more]
    body = [
        *writer.lines,
        f"_tcb_found = _tcb_memo.get(({', '.join([*sizes, *state])}))",
        "if _tcb_found is None: return None",
        f"return _tcb_found, ({''.join(f'{name}, ' for name in writer.tensors)})",
    ]
    head = f"def _tcb_lookup({_parameters(signature, writer)}):"
    namespace: dict[str, Any] = {
        "_tcb_memo": memo,
        "_tcb_left_out": _LEFT_OUT,
        "_tcb_type": type,
        "_tcb_len": len,
        "_tcb_repr": repr,
        "_tcb_grad": torch.is_grad_enabled,
        "_tcb_dtype": torch.get_default_dtype,
        "_tcb_deterministic": torch.are_deterministic_algorithms_enabled,
        "_tcb_setting": setting,
        "_tcb_depth": modes.depth,
        "_tcb_modes": modes.function_modes,
        "_tcb_device": device,
        "_tcb_forward_ad": modes.forward_ad,
        **writer.constants,
    }
    exec(compile("\n    ".join([head, *body]), "<lookup>", "exec"), namespace)
    lookup: Lookup = namespace["_tcb_lookup"]
    return lookup


def memo_key(
    signature: Signature,
    tensors: tuple[torch.Tensor, ...],
    setting: object,
    more: Sequence[Callable[[], object]] = (),
    device: torch.device = devices.CPU,
) -> tuple[object, ...]:
    """Return the key that a lookup uses for a call with these tensors in this thread."""
    sizes = [tensors[symbol.input].shape[symbol.axis] for symbol in signature.symbols]
    return (
        *sizes,
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        modes.function_modes(device),
        modes.forward_ad._current_level,
        setting,
        *[read() for read in more],
    )


class _LeftOut:
    """The default of a parameter whose own default cannot be written into an artifact."""


_LEFT_OUT = _LeftOut()


def _python_signature(signature: Signature) -> inspect.Signature:
    """Return the signature of the model's `forward`, as Python has it."""
    parameters = []
    for parameter, may_be_left_out in zip(
        signature.parameters, optional(signature.parameters), strict=True
    ):
        form = inspect._ParameterKind[parameter.form.upper()]
        default = _default(parameter) if may_be_left_out else inspect.Parameter.empty
        parameters.append(inspect.Parameter(parameter.name, form, default=default))
    return inspect.Signature(parameters)


def _default(parameter: Parameter) -> object:
    match parameter.form:
        case "var_positional":
            return ()
        case "var_keyword":
            return {}
    return parameter.default.value if parameter.default is not None else _LEFT_OUT


class _Writer:
    """Writes the lines that take the arguments apart."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tensors: list[str] = []
        self.constants: dict[str, object] = {}

    def constant(self, value: object) -> str:
        name = f"_tcb_c{len(self.constants)}"
        self.constants[name] = value
        return name

    def read(self, source: str, node: Node) -> None:
        if isinstance(node, TensorLeaf):
            self.tensors.append(source)
        elif isinstance(node, ValueLeaf):
            self._value(source, node)
        elif isinstance(node, Branch):
            self._branch(source, node)

    def _value(self, source: str, leaf: ValueLeaf) -> None:
        match leaf.type:
            case "NoneType" | "bool":
                test = f"{source} is not {leaf.text}"
            case "float":  # by its text: 0.0 is not -0.0, and nan is nan
                test = f"_tcb_type({source}) is not {self.constant(float)}"
                test = f"{test} or _tcb_repr({source}) != {leaf.text!r}"
            case _:
                kind, value = self.constant(type(leaf.value)), self.constant(leaf.value)
                test = f"_tcb_type({source}) is not {kind} or {source} != {value}"
        self.lines.append(f"if {test}: return None")

    def _branch(self, source: str, branch: Branch) -> None:
        kind = container_type(branch)
        prefix = f"_tcb_b{len(self.lines)}"
        items = [f"{prefix}_{i}" for i in range(len(branch.children))]
        test = f"_tcb_type({source}) is not {self.constant(kind)}"
        match branch.form:
            case "dict":
                test = f"{test} or _tcb_len({source}) != {len(items)}"
                keys = [self.constant(read_key(key)) for key in branch.keys]
                reads = [f"{item} = {source}[{key}]" for item, key in zip(items, keys, strict=True)]
            case "dataclass":
                others = {field.name for field in dataclasses.fields(kind)} - set(branch.keys)
                test = " or ".join(
                    [test, *(f"{source}.{key} is not None" for key in sorted(others))]
                )
                reads = [
                    f"{item} = {source}.{key}" for item, key in zip(items, branch.keys, strict=True)
                ]
            case _:  # one instruction, which raises where the length is another
                reads = [f"[{', '.join(items)}] = {source}"]
        self.lines += [f"if {test}: return None", *reads]
        for item, child in zip(items, branch.children, strict=True):
            self.read(item, child)


def _parameters(signature: Signature, writer: _Writer) -> str:
    """Write the parameter list; its defaults are objects in the namespace."""
    out: list[str] = []
    seen_star = False
    previous = ""
    for parameter, may_be_left_out in zip(
        signature.parameters, optional(signature.parameters), strict=True
    ):
        if previous == "positional_only" and parameter.form != "positional_only":
            out.append("/")
        if parameter.form == "keyword_only" and not seen_star:
            out.append("*")
            seen_star = True
        star = {"var_positional": "*", "var_keyword": "**"}.get(parameter.form, "")
        seen_star = seen_star or star == "*"
        default = ""
        if may_be_left_out:
            default = f"={writer.constant(_default(parameter))}"
        out.append(f"{star}{parameter.name}{default}")
        previous = parameter.form
    if previous == "positional_only":
        out.append("/")
    return ", ".join(out)
