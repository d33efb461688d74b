"""A graph that is carried to another process: the private surface of torch that does it.

The weights stay behind: a library takes them from outside, so that their form is all a compiler needs.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

SMALL: Final = 64  # elements; constants of so few are carried by value, as they may be looked at

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class _Form:
    """A weight without its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    value: torch.Tensor | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "_Form":
        return cls(
            shape=tuple(tensor.shape),
            stride=tensor.stride(),
            dtype=tensor.dtype,
            device=str(tensor.device),
            value=tensor.detach().cpu() if tensor.numel() <= SMALL else None,
        )

    def make(self) -> torch.Tensor:
        """Return a tensor of this form; of zeros, or of the values where they are there."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return made.zero_() if self.value is None else made.copy_(self.value)


def dump(graph: torch.fx.GraphModule, tensors: Tensors, path: Path) -> None:
    """Write a graph with its example inputs.

    Raises:
        Exception: of any class: torch cannot take it to pieces.
    """
    from torch.fx._graph_pickler import GraphPickler, Options

    constants = dict(graph.named_buffers(recurse=False))
    bare: dict[str, Any] = {name: torch.empty(0) for name in constants}
    bare |= dict(graph.named_children())
    copy = torch.fx.Graph()
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    copy.output(copy.graph_copy(graph.graph, values))
    module = torch.fx.GraphModule(bare, copy)
    record = {
        "graph": GraphPickler.dumps(module, Options(ops_filter=None)),
        "constants": {name: _Form.of(tensor) for name, tensor in constants.items()},
        "inputs": [(_Form.of(tensor), tensor.detach().cpu()) for tensor in tensors],
    }
    path.write_bytes(pickle.dumps(record))


def load(path: Path) -> tuple[torch.fx.GraphModule, Tensors]:
    """Read what `dump` has written, in a process that knows the same operators.

    Raises:
        Exception: of any class: torch cannot put it together.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx._graph_pickler import GraphPickler
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    record = pickle.loads(path.read_bytes())
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    graph: Any = GraphPickler.loads(record["graph"], mode)
    for name, form in record["constants"].items():
        if hasattr(graph, name):
            delattr(graph, name)
        graph.register_buffer(name, form.make())
    graph.recompile()
    return graph, tuple(form.make().copy_(value) for form, value in record["inputs"])
