"""What a compilation depends on, as one digest: the same digest means the same library."""

import hashlib
import json
from collections.abc import Iterator, Mapping

import torch

# Raise it when what this package does between a graph and a library changes.
REVISION = 8


def fingerprint(
    graph: torch.fx.GraphModule,
    inputs: tuple[torch.Tensor, ...],
    names: Mapping[str, str],
    environment: Mapping[str, str],
    options: Mapping[str, str],
) -> str:
    """Return the digest of a graph with its constants' forms, its example inputs, the dimension that
    each of its symbols stands for, and the environment.

    The values of the weights are no part of it: the library takes them from outside. The values of
    small constants are, in case a compiler folds them after all.
    """
    digest = hashlib.sha256()
    head = {
        "revision": REVISION,
        "names": dict(names),
        "environment": dict(environment),
        "options": dict(options),
    }
    digest.update(json.dumps(head, sort_keys=True).encode())
    for line in _lines(graph):
        digest.update(line.encode())
        digest.update(b"\n")
    for tensor in inputs:
        digest.update(_form(tensor).encode())
    return digest.hexdigest()


def _lines(graph: torch.fx.GraphModule) -> Iterator[str]:
    ranges = None
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        yield f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {_value(value)}"
        if isinstance(value, torch.Tensor) and hasattr(value, "fake_mode") and ranges is None:
            env = value.fake_mode.shape_env
            ranges = "" if env is None else str(sorted(map(str, env.var_to_range.items())))
            yield ranges
    for name, child in graph.named_children():
        if isinstance(child, torch.fx.GraphModule):
            yield f"subgraph {name}"
            yield from _lines(child)
    for name, tensor in graph.named_buffers(recurse=False):
        yield f"constant {name} {_form(tensor)}"
        if tensor.numel() <= 64:
            yield str(tensor.tolist())


def _value(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return _form(value)
    if isinstance(value, tuple | list):
        return str([_value(item) for item in value])
    return str(value)


def _form(tensor: torch.Tensor) -> str:
    strides = tuple(tensor.stride()) if tensor.layout is torch.strided else None
    return f"{tensor.dtype} {tuple(tensor.shape)} {strides} {tensor.device.type}"
