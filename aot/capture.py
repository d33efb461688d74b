"""One bucket's graph, by torch.export; everything about the call around it stays ours.

The model is traced behind a module that takes the call's tensors in order and returns the result's
tensors and sizes in order. So containers, defaults, None and Python values never reach torch's own
calling convention: they are recorded in the signature, and guarded.
"""

import contextlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import Dim as TorchDim
from torch.export import ExportedProgram

from ..formats.bucket import Bucket
from ..formats.signature import (
    Node,
    Signature,
    Symbol,
    TensorLeaf,
    ValueLeaf,
)
from ..formats.training import NONE, describe
from ..formats.tree import arguments
from . import examples, source_line, structure
from .call_mode import CallMode
from .errors import CaptureError, ModelError, SpecError
from .placement import moved
from .spec import Call, Spec


@dataclass(frozen=True, kw_only=True)
class Captured:
    """One bucket's graph, and the call it was captured from.

    Attributes:
        bucket: the sizes it is for.
        signature: what it takes.
        outputs: what it returns; tensors and sizes are numbered in the order of the graph's outputs.
        program: the exported graph of `inputs -> outputs`, with its weights.
        tensors: the example call's tensors in order, dense.
        training: which parts of the model were in training mode.
    """

    bucket: Bucket
    signature: Signature
    outputs: Node
    program: ExportedProgram
    tensors: tuple[torch.Tensor, ...]
    training: str = NONE


def capture(
    spec: Spec,
    module: torch.nn.Module,
    bucket: Bucket,
    where: str,
    choices: Mapping[str, object] | None = None,
    device: str = "cpu",
    mode: CallMode | None = None,
) -> Captured:
    """Trace the model for one bucket.

    Args:
        spec: for the example call and the dimension of each axis.
        module: the model, in eval mode, on the device.
        bucket: the sizes; a range becomes a symbolic size, anything else is fixed.
        where: the job's identifier, for messages.
        choices: the values of the parameters that have a list of them in the spec.
        device: the kind of device to trace for; the example call's tensors are moved there.
        mode: of the call; eval mode without gradients where left out.

    Raises:
        ModelError: the model does not run eagerly on its own example call.
        CaptureError: it cannot be captured, or only for other sizes than the declared ones.
    """
    call = spec.inputs(spec.example_sizes(bucket))
    if choices:
        call = examples.chosen(module.forward, call, choices)
    signature, given = read_call(spec, module, call, where)
    tensors = tuple(moved(tensor, device) for tensor in given)
    if mode is not None and mode.step:
        tensors = _asking(module, call, tensors)
    if any(tensor is not other for tensor, other in zip(tensors, given, strict=True)):
        call = arguments(signature, tensors)
    returned: list[Node] = []
    axes = tuple(
        {
            axis: TorchDim.AUTO(min=bucket.ranges()[name].min, max=bucket.ranges()[name].max)
            for axis, name in enumerate(leaf.shape)
            if name in bucket.ranges()
        }
        for _, leaf in signature.tensors()
    )
    with quiet(), source_line.of_sizes(), (mode or CallMode()).on(module):
        training = describe((name, part.training) for name, part in module.named_modules())
        body = _Body(module, signature, returned)
        try:
            program = torch.export.export(
                body, tensors, dynamic_shapes={"inputs": axes}, strict=False
            )
        except Exception as error:
            sizes = spec.example_sizes(bucket)
            raise _explain(error, module, call, sizes, where) from error
    return Captured(
        bucket=bucket,
        signature=signature,
        outputs=returned[-1],
        program=program,
        tensors=tensors,
        training=training,
    )


def _asking(
    module: torch.nn.Module, call: Call, tensors: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    """Let tensors ask for a gradient where those of the example call do."""
    leaves = structure.leaves(module.forward, call)
    asks = (leaf.requires_grad for leaf in leaves if isinstance(leaf, torch.Tensor))
    return tuple(
        tensor.detach().requires_grad_() if wanted else tensor
        for tensor, wanted in zip(tensors, asks, strict=True)
    )


def read_call(
    spec: Spec,
    module: torch.nn.Module,
    call: Call,
    where: str,
) -> tuple[Signature, tuple[torch.Tensor, ...]]:
    """Return the signature of an example call, and its tensors in order, dense.

    Raises:
        CaptureError: the call holds something that is neither a tensor nor a Python value.
        SpecError: `[shapes]` names an input that is not there, or an axis it does not have.
    """
    tensors: list[torch.Tensor] = []

    def leaf(path: str, value: Any) -> Node:
        if isinstance(value, torch.Tensor):
            return _tensor_leaf(spec, path, value, tensors)
        try:
            return ValueLeaf.of(value)
        except TypeError as error:
            raise CaptureError(
                f"{where}: input {path}",
                found=f"a {error}",
                expected="a tensor, None, bool, int, float, str, or a container of these",
                tip="make it an attribute of the module, or pass it as tensors and numbers",
            ) from None

    try:
        parameters = structure.parameters(module.forward, call, leaf)
    except TypeError as error:
        method = getattr(module.forward, "__name__", "forward")
        expected = f"arguments of {type(module).__name__}.{method}"
        raise ModelError(f"{where}: example call", found=error, expected=expected) from None
    signature = Signature(parameters=parameters)
    paths = {path for path, _ in signature.tensors()}
    bound = inspect.signature(module.forward).bind(*call[0], **call[1]).arguments
    absent = {name for name, value in bound.items() if value is None}
    for path in spec.shapes:
        if path not in paths and _parameter(path) not in absent:
            raise SpecError(
                f"shapes.{path}", found="no such tensor input", expected=f"one of {sorted(paths)}"
            )
    return replace(signature, symbols=_symbols(signature)), tuple(tensors)


def _parameter(path: str) -> str:
    """Return the parameter that a path starts at; itself if it is the name of none."""
    return re.split(r"[\[.]", path)[0]


def _tensor_leaf(
    spec: Spec, path: str, tensor: torch.Tensor, tensors: list[torch.Tensor]
) -> TensorLeaf:
    axes = spec.shapes.get(path, ())
    if len(axes) > tensor.dim():
        found, expected = f"{len(axes)} axes", f"at most {tensor.dim()}"
        raise SpecError(f"shapes.{path}", found=found, expected=expected)
    axes = (*axes, *(None for _ in range(tensor.dim() - len(axes))))
    shape = tuple(
        size if name is None else name for size, name in zip(tensor.shape, axes, strict=True)
    )
    tensor = structure.dense(tensor.detach())
    tensors.append(tensor)
    return TensorLeaf(
        dtype=structure.dtype_name(tensor.dtype),
        shape=shape,
        index=len(tensors) - 1,
        layout=structure.tensor_layout(tensor),
        sample=structure.sample(tensor),
    )


def _symbols(signature: Signature) -> tuple[Symbol, ...]:
    """Return where each dimension is read: the first axis that has it."""
    found: dict[str, Symbol] = {}
    for _, leaf in signature.tensors():
        for axis, name in enumerate(leaf.shape):
            if isinstance(name, str) and name not in found:
                found[name] = Symbol(name=name, input=leaf.index, axis=axis)
    return tuple(found.values())


class _Body(torch.nn.Module):
    """The model behind tensors in order.

    The structure of its result is appended to `returned`, which stands outside the module: torch puts
    a module's attributes back as they were once it has traced it.
    """

    def __init__(self, model: torch.nn.Module, signature: Signature, returned: list[Node]) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self._signature = signature
        self._append = returned.append

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        args, kwargs = arguments(self._signature, inputs)
        result = self.model(*args, **kwargs)
        flat: list[Any] = []

        def leaf(path: str, value: Any) -> Node:
            if isinstance(value, torch.Tensor | torch.SymInt):
                flat.append(value)
                return TensorLeaf(dtype="", shape=(), index=len(flat) - 1)
            try:
                return ValueLeaf.of(value)
            except TypeError as error:
                raise CaptureError(
                    path,
                    found=f"a {error}",
                    expected="a tensor, a size, None, bool, int, float, str, or a container",
                    tip="return tensors, and compute the rest from them outside the model",
                ) from None

        self._append(structure.describe(result, "output", leaf))
        return tuple(flat)


_WAYS_OUT = (
    "change the line (torch.where and torch.cond for branches on data), or keep that part outside "
    "the module and build the rest"
)


def _explain(
    error: Exception, module: torch.nn.Module, call: Call, sizes: Mapping[str, int], where: str
) -> Exception:
    """Turn what torch.export raised into an error that names the user's line and the reason."""
    if isinstance(error, CaptureError):
        return error
    try:
        module(*call[0], **call[1])
    except Exception as eager:
        return ModelError(
            f"{where}: {source_line.of_error(eager) or 'example call'}",
            found=f"{type(eager).__name__}: {eager}",
            expected="a model that runs eagerly on its example call",
            tip=_wrong_call(sizes),
        )
    line = line_of(error)
    place = f"{where}: {line}" if line else where
    if line and line.code:
        place += f": `{line.code}`"
    reason = next((part.strip() for part in str(error).splitlines() if part.strip()), "no message")
    return CaptureError(
        place,
        found=f"{type(error).__name__}: {reason}",
        expected="code that torch.export can trace as one graph",
        tip=_WAYS_OUT,
    )


def line_of(error: BaseException) -> source_line.Line | None:
    """Return the user's line at which torch.export has given up."""
    said = re.search(r"raised this error:\s*(File .*\n.*)", str(error))
    named = next(source_line.in_text(said[1]), None) if said else None
    return named or source_line.of_error(error)


def _wrong_call(sizes: Mapping[str, int]) -> str:
    if not sizes:
        return "call the model with the example inputs by hand; it must answer"
    made = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return (
        f"the call has {made}: narrow a dim to the sizes that the model takes, and name in [shapes] "
        "every axis that varies with it"
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep torch's own reports of a failed trace off the terminal: the error says it all."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    quiet = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)
