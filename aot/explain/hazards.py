"""What would make torch.compile compile again, or a call miss the artifact, in service."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import torch

from ...formats.errors import TcbuildError
from ...formats.signature import Node, TensorLeaf, ValueLeaf, walk
from .. import structure
from ..plan import Job
from ..spec import Call, Spec
from . import axes, state
from .hazard import Hazard

_OR_NONE: Final = "a tensor in the example call"


def find(
    spec: Spec, module: torch.nn.Module, job: Job, call: Call, frozen: Collection[str]
) -> tuple[Hazard, ...]:
    """Return the hazards of a model; none where its example call cannot be read, which a capture says.

    Args:
        spec: with what is declared.
        module: or its method, on the device of the call's tensors. It is called, and what it holds may change.
        job: whose example call it is.
        call: of the module.
        frozen: the names of the constants of the artifact: they are told already.
    """
    try:
        found = [*_values(spec, module, call), *axes.find(spec, module, job, call)]
    except (TcbuildError, TypeError):
        return ()
    if job.entry:
        found = [_of_method(one, job.entry) for one in found]
    return (*found, *state.find(module, call, job.mode, frozen))


def _of_method(hazard: Hazard, entry: str) -> Hazard:
    """Return a hazard of a method's inputs: it is named with the method, and so are the tables to write."""
    spec = re.sub(r"(?m)^\[model\]$", f"[methods.{entry}]", hazard.spec)
    spec = re.sub(r"(?m)^\[(shapes|values)\]$", rf"[methods.{entry}.\1]", spec)
    return replace(hazard, place=f"{entry}: {hazard.place}", spec=spec)


def _values(spec: Spec, module: torch.nn.Module, call: Call) -> Iterator[Hazard]:
    """Yield the Python values that a call passes; those that are at their defaults, as one."""
    declared = {*spec.values, *spec.optional}
    left: dict[str, ValueLeaf] = {}

    def leaf(_: str, value: object) -> Node:
        if isinstance(value, torch.Tensor):
            return TensorLeaf(dtype="", shape=(), index=0)
        return ValueLeaf.of(value)

    for parameter in structure.parameters(module.forward, call, leaf):
        if parameter.name in declared or parameter.node is None:
            continue
        if isinstance(parameter.node, ValueLeaf) and parameter.node == parameter.default:
            left[parameter.name] = parameter.node
            continue
        for path, node in walk(parameter.node, parameter.name):
            if isinstance(node, ValueLeaf):
                yield _value(path, parameter.name, node)
    if left:
        yield _left(left)


def _left(left: Mapping[str, ValueLeaf]) -> Hazard:
    texts = ", ".join(f"{name} = {node.text}" for name, node in left.items())
    values = {name: node for name, node in left.items() if node.type != "NoneType"}
    absent = [name for name in left if name not in values]
    spec = [f"[model]\noptional = {json.dumps(absent)}  # {_OR_NONE}"] if absent else []
    if values:
        listed = (f"{name} = {_listed(node)}" for name, node in values.items())
        spec.append("\n".join(["[values]", *listed]))
    return Hazard(
        place=", ".join(left),
        kind="at its default",
        words=f"the example call has {texts}, as a call that leaves it out; another value is another "
        "program: torch.compile compiles again, and a call of the artifact misses",
        ways_out=("write lines for those that calls do give; those that none gives are no hazard",),
        spec="\n\n".join(spec),
    )


def _value(path: str, parameter: str, node: ValueLeaf) -> Hazard:
    words = (
        f"the {node.type} {node.text} is a constant of the graph: for another value torch.compile "
        "compiles again, and a call of the artifact misses"
    )
    kind = "value not declared"
    if node.type == "NoneType":
        words = (
            "None decides which code runs: with a tensor torch.compile compiles again, and a call of the "
            "artifact misses"
        )
        way = "give the example call a tensor there, and name the input as optional"
        spec = f"[model]\noptional = [{json.dumps(parameter)}]  # {_OR_NONE}"
        return Hazard(place=path, kind=kind, words=words, ways_out=(way,), spec=spec)
    tensor = "take it as a tensor, where only the computation depends on it: torch.tensor(...)"
    if path != parameter:
        way = "make it a parameter of its own, and list its values; those inside a container cannot be"
        return Hazard(place=path, kind=kind, words=words, ways_out=(way, tensor))
    ways = ["list every value that calls pass: one variant for each"]
    if node.type in ("int", "float"):
        ways.append(tensor)
    spec = f"[values]\n{parameter} = {_listed(node)}"
    return Hazard(place=path, kind=kind, words=words, ways_out=tuple(ways), spec=spec)


def _listed(node: ValueLeaf) -> str:
    """Return a list for [values]: of a bool both, of anything else what is known."""
    if node.type == "bool":
        return "[true, false]"
    text = json.dumps(node.value) if node.type == "str" else node.text
    return f"[{text}]  # and the others"
