"""A captured graph as source: subgraphs, special values, and what cannot be written."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tcbuild.aot import graph_source
from tcbuild.aot.errors import CaptureError


def run(source: str, constants: dict[str, Tensor], *tensors: Tensor) -> Any:
    """Run the source as the runtime does."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "<graph>", "exec"), namespace)
    return namespace["bind"](constants)(*tensors)


def exported(module: nn.Module, *tensors: Tensor) -> torch.fx.GraphModule:
    """Return the graph of a module without weights."""
    with torch.no_grad():
        program = torch.export.export(module, tensors)
    made: torch.fx.GraphModule = program.graph_module
    return made


class Nested(nn.Module):
    """Two branches, one inside the other."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [3]."""

        def positive(x: Tensor) -> Tensor:
            made: Tensor = torch.cond(
                x.max() > 5, lambda x: x - 100.0, lambda x: x.clamp(max=float("inf")), (x,)
            )
            return made

        made: Tensor = torch.cond(x.sum() > 0, positive, lambda x: x.sin(), (x,))
        return made


def test_subgraphs_inside_subgraphs() -> None:
    source = graph_source.write(exported(Nested(), torch.randn(3)), "here")
    for values in ([1.0, 2.0, 3.0], [1.0, 2.0, 9.0], [-1.0, -2.0, -3.0]):
        x = torch.tensor(values)
        (made,) = run(source, {}, x)
        assert torch.equal(made, Nested()(x))


class Values(nn.Module):
    """Infinities, nan, dtypes and devices."""

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [3]."""
        x = x.masked_fill(x > 1, float("-inf")).clamp(min=-3.5)
        x = torch.where(x < 0, float("nan"), x).to(torch.float64)
        return x + torch.ones(3, dtype=torch.float16, device="cpu")


def test_values_that_have_no_literal() -> None:
    source = graph_source.write(exported(Values(), torch.randn(3)), "here")
    x = torch.tensor([0.5, -1.0, 2.0])
    (made,) = run(source, {}, x)
    assert torch.equal(made.nan_to_num(7), Values()(x).nan_to_num(7))


def test_a_function_that_cannot_be_imported() -> None:
    graph = torch.fx.Graph()
    graph.output((graph.call_function(lambda x: x, (graph.placeholder("x"),)),))
    with pytest.raises(CaptureError, match="expected something that can be imported"):
        graph_source.write(torch.fx.GraphModule({}, graph), "here")
