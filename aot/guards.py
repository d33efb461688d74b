"""Everything a call must satisfy for a captured graph to be right for it."""

from collections.abc import Collection, Iterable

import torch

from ..formats.bucket import Bucket
from ..formats.guard import DIMS, MODULE, PROCESS, Guard
from ..formats.signature import Signature, Symbol, TensorLeaf
from . import structure


def call_guards(
    signature: Signature,
    bucket: Bucket,
    relations: Iterable[str],
    *,
    written: Collection[int] = (),
    graph: bool = False,
    device: str = "cpu",
    grad: bool = False,
    training: str | None = None,
    trained: Collection[int] | None = None,
) -> tuple[Guard, ...]:
    """Return the guards of one variant on the call and the process.

    Args:
        signature: what it takes.
        bucket: the sizes it is for.
        relations: what the sizes must satisfy beyond it.
        written: the indices of the tensors that the program writes to in place; they may share memory
            with no other input.
        graph: the variant runs as an eager graph: strides, conjugate views and grad mode are torch's
            own concern then, and only an input that needs a gradient is refused.
        device: the kind of device that it runs on.
        grad: it is for calls while gradients are recorded, none of which has anything to record.
        training: which parts of the model are in training mode; nothing is said of it where left out,
            which means eval mode.
        trained: it is a training step, with the indices of the tensors that a gradient is asked for.
    """
    guards: list[Guard] = [] if graph else [_process("grad_mode", expected=grad)]
    if grad and trained is None:
        guards.append(Guard(subject=MODULE, fact="trainable", expected=False))
    if training is not None:
        guards.append(Guard(subject=MODULE, fact="training", expected=training))
    guards += [
        _process("autocast", expected=False),
        _process("default_dtype", expected=structure.dtype_name(torch.get_default_dtype())),
        _process("deterministic", expected=torch.are_deterministic_algorithms_enabled()),
        _process("modes", expected=0),
    ]
    if device == "cuda" and not graph:
        precision = torch.get_float32_matmul_precision()
        guards.append(_process("matmul_precision", expected=precision))
    for path, leaf in signature.inputs():
        if isinstance(leaf, TensorLeaf):
            guards += _tensor(path, leaf, signature.symbols, bucket, device, graph=graph)
            asks = leaf.index in (trained or ())
            guards.append(Guard(subject=path, fact="requires_grad", expected=asks))
            if leaf.index in written:
                guards.append(Guard(subject=path, fact="shared", expected=False))
        else:
            guards.append(Guard(subject=path, fact="value", expected=str(leaf)))
    guards += [Guard(subject=DIMS, fact="relation", expected=text) for text in relations]
    return tuple(guards)


def _process(fact: str, *, expected: object) -> Guard:
    return Guard(subject=PROCESS, fact=fact, expected=expected)


def _tensor(
    path: str,
    leaf: TensorLeaf,
    symbols: tuple[Symbol, ...],
    bucket: Bucket,
    device: str,
    *,
    graph: bool,
) -> list[Guard]:
    guards = [
        Guard(subject=path, fact="type", expected="Tensor"),
        Guard(subject=path, fact="dtype", expected=leaf.dtype),
        Guard(subject=path, fact="device", expected=device),
        Guard(subject=path, fact="rank", expected=len(leaf.shape)),
    ]
    read_here = {s.axis: s.name for s in symbols if s.input == leaf.index}
    for axis, size in enumerate(leaf.shape):
        expected: object = size
        if isinstance(size, str) and read_here.get(axis) == size:
            piece = bucket.dims[size]
            expected = piece if isinstance(piece, int) else {"min": piece.min, "max": piece.max}
        guards.append(Guard(subject=path, fact="size", axis=axis, expected=expected))
    if not graph:
        guards += [
            Guard(subject=path, fact="layout", expected=leaf.layout),
            Guard(subject=path, fact="neg", expected=False),
            Guard(subject=path, fact="conj", expected=False),
        ]
    return guards
