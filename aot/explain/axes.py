"""Axes of inputs that no dim is declared for, and that may vary in service."""

import json
from collections.abc import Iterator, Mapping

import torch

from ...formats.signature import Node, TensorLeaf
from .. import structure
from ..plan import Job
from ..spec import Call, Spec
from .hazard import Hazard

Tensors = dict[str, torch.Tensor]

_COST = "for another size torch.compile compiles again, and a call of the artifact misses"


def find(spec: Spec, module: torch.nn.Module, job: Job, call: Call) -> Iterator[Hazard]:
    """Yield the axes that follow a dim, have its size, or look like a batch or a sequence.

    Args:
        spec: with the dims, and which axis has which.
        module: for the names of its parameters.
        job: whose example call it is.
        call: of the module.
    """
    tensors = _tensors(module, call)
    sizes = spec.example_sizes(job.bucket)
    told: set[tuple[str, int]] = set()
    for name in spec.dims:
        other = _another(spec, name, sizes[name])
        if other is None:
            alike = [one for one in _free(spec, tensors) if _size(tensors, one) == sizes[name]]
        else:
            moved = _tensors(module, spec.inputs({**sizes, name: other}))
            alike = [
                one
                for one in _free(spec, tensors)
                if one[0] in moved
                and moved[one[0]].dim() > one[1]
                and _size(moved, one) != _size(tensors, one)
            ]
        for path, axis in alike:
            if (path, axis) not in told and _size(tensors, (path, axis)) > 1:
                told.add((path, axis))
                yield _follows(spec, tensors, path, axis, name, moves=other is not None)
    if not spec.dims:
        yield from _undeclared(spec, tensors)
    else:
        yield from _ones(spec, tensors, told)


def _tensors(module: torch.nn.Module, call: Call) -> Tensors:
    found: Tensors = {}

    def leaf(path: str, value: object) -> Node:
        if isinstance(value, torch.Tensor):
            found[path] = value
        return TensorLeaf(dtype="", shape=(), index=0)

    structure.parameters(module.forward, call, leaf)
    return found


def _free(spec: Spec, tensors: Tensors) -> Iterator[tuple[str, int]]:
    """Yield every axis without a dim."""
    for path, tensor in tensors.items():
        declared = spec.shapes.get(path, ())
        for axis in range(tensor.dim()):
            if axis >= len(declared) or declared[axis] is None:
                yield path, axis


def _size(tensors: Tensors, axis: tuple[str, int]) -> int:
    return int(tensors[axis[0]].size(axis[1]))


def _another(spec: Spec, name: str, size: int) -> int | None:
    """Return another size that a dim may have, of the same example call; None where it has only one."""
    for piece in spec.dims[name].pieces():
        if isinstance(piece, int):
            if piece != size and piece > 1:
                return piece
            continue
        for near in (size - 1, size + 1):
            if near > 1 and near in piece:
                return near
    return None


def _follows(
    spec: Spec, tensors: Tensors, path: str, axis: int, name: str, *, moves: bool
) -> Hazard:
    size = _size(tensors, (path, axis))
    first = next(
        f"{one}.size({axes.index(name)})" for one, axes in spec.shapes.items() if name in axes
    )
    why = (
        f"the example calls change it with {name}"
        if moves
        else f"it is the size of {name}, which is the declared dim of {first}"
    )
    axes = [*spec.shapes.get(path, ())]
    axes += [None] * (axis + 1 - len(axes))
    axes[axis] = name
    return Hazard(
        place=f"{path}.size({axis})",
        kind="axis without its dim",
        words=f"the size {size} is fixed, and {why}; {_COST}",
        ways_out=(f"declare it as {name}, where the two are always equal",),
        spec=f"[shapes]\n{_shape(path, axes)}",
    )


def _ones(spec: Spec, tensors: Tensors, told: set[tuple[str, int]]) -> Iterator[Hazard]:
    """Yield the first axes of size 1: an example of one, as a rule."""
    for path, axis in _free(spec, tensors):
        if axis == 0 and tensors[path].dim() > 1 and (path, axis) not in told:
            if tensors[path].size(0) != 1:
                continue
            axes = [*spec.shapes.get(path, ())] or [None]
            yield Hazard(
                place=f"{path}.size(0)",
                kind="axis of size 1",
                words=f"a first axis of size 1 is fixed: it is no dim, and broadcasts; {_COST}",
                ways_out=("declare a dim for it, unless every call has one there",),
                spec=_dim("batch", 1) + f"\n[shapes]\n{_shape(path, ['batch', *axes[1:]])}",
            )


def _undeclared(spec: Spec, tensors: Tensors) -> Iterator[Hazard]:
    """Yield, for a spec without any dim, the axes that look like a batch, and those like a sequence."""
    batch = [path for path, tensor in tensors.items() if tensor.dim() > 1]
    if not batch:
        return
    size = tensors[batch[0]].size(0)
    batch = [path for path in batch if tensors[path].size(0) == size]
    # Tokens are integers; what has their size at the same axis belongs to them.
    tokens = [p for p in batch if not tensors[p].is_floating_point() and tensors[p].dim() == 2]
    length = tensors[tokens[0]].size(1) if tokens else None
    names: dict[str, list[str | None]] = {path: ["batch"] for path in batch}
    for path in batch:
        if length is not None and tensors[path].size(1) == length:
            names[path].append("seq")
    yield _likely(tensors, names, "batch", 0)
    if length is not None:
        yield _likely(tensors, names, "seq", 1)


def _likely(
    tensors: Tensors, names: Mapping[str, list[str | None]], name: str, axis: int
) -> Hazard:
    paths = [path for path, axes in names.items() if name in axes]
    size = _size(tensors, (paths[0], axis))
    looks = "a batch: the first axis" if name == "batch" else "the length of a sequence"
    shapes = "\n".join(_shape(path, names[path]) for path in paths)
    return Hazard(
        place=", ".join(f"{path}.size({axis})" for path in paths),
        kind="no dim is declared",
        words=f"the size {size} is fixed, and looks like {looks}; {_COST}",
        ways_out=("declare a dim for it, unless every call has this size",),
        spec=f"{_dim(name, size)}\n[shapes]\n{shapes}",
    )


def _dim(name: str, size: int) -> str:
    most = max(64, 1 << (2 * size - 1).bit_length())
    return f'[dims.{name}]\npolicy = "dynamic"\nmin = {min(size, 2)}\nmax = {most}\n'


def _shape(path: str, axes: "list[str | None]") -> str:
    key = path if path.isidentifier() else json.dumps(path)
    return f"{key} = {json.dumps([axis or '_' for axis in axes])}"
