"""What follows from constants is computed once a call: where it is costly, and taken by much more."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._inductor import inductor_prims
from torch.fx.experimental.proxy_tensor import make_fx

from tcbuild.aot import build, compile
from tcbuild.aot.hoist import hoist
from tcbuild.aot.job_cache import JobCache
from tcbuild.aot.spec import Spec
from tcbuild.runtime import load

KEPT = inductor_prims.force_stride_order


class Net(torch.nn.Module):
    """A batch norm in eval mode whose statistics are not 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3)
        self.norm = torch.nn.BatchNorm2d(16)
        self.norm.running_var = 0.5 + torch.rand(16)
        self.norm.running_mean = torch.randn(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


def traced(function: Callable[..., torch.Tensor], *sizes: int) -> torch.fx.Graph:
    """Return the graph of a function of x [*sizes] and a constant [4]."""

    module = make_fx(function, tracing_mode="fake")(torch.rand(sizes), torch.rand(4))
    module.c = torch.nn.Buffer(torch.rand(4))
    graph: torch.fx.Graph = module.graph
    _, given = graph.find_nodes(op="placeholder")
    with graph.inserting_before(given):
        constant = graph.get_attr("c")
    constant.meta.update(given.meta)
    given.replace_all_uses_with(constant)
    graph.erase_node(given)
    return graph


@pytest.mark.parametrize(
    ("function", "sizes", "kept"),
    [
        (lambda x, c: x * torch.rsqrt(c + 1), (64, 4), 1),
        (lambda x, c: x * torch.rsqrt(c + 1)[None] + torch.exp(c), (64, 4), 2),
        (lambda x, c: x * (c + 1), (64, 4), 0),  # cheap
        (lambda x, c: x * torch.rsqrt(c), (8, 4), 0),  # not many more
        (lambda x, c: torch.rsqrt(x + c), (64, 4), 0),  # no constant
        (lambda x, c: x * torch.rsqrt(torch.rand_like(c)), (64, 4), 0),  # another each time
    ],
)
def test_what_is_kept(
    function: Callable[..., torch.Tensor], sizes: tuple[int, ...], kept: int
) -> None:
    graph = traced(function, *sizes)
    hoist(graph)
    graph.lint()
    assert len(graph.find_nodes(op="call_function", target=KEPT)) == kept


def test_answers_are_the_same_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, x = Net().eval(), torch.randn(2, 3, 20, 20)
    kept: list[int] = []

    def counted(graph: torch.fx.Graph) -> None:
        hoist(graph)
        kept.append(len(graph.find_nodes(op="call_function", target=KEPT)))

    answers = []
    for name, pass_ in (("with", counted), ("without", lambda graph: None)):
        monkeypatch.setattr(compile, "hoist", pass_)
        spec = Spec.from_module(module, (x,), verify=False)
        build(spec, tmp_path / f"{name}.tcb", cache=JobCache(jobs=tmp_path / name))
        with torch.no_grad():
            answers.append(load(tmp_path / f"{name}.tcb", on_miss="raise")(x))
    assert kept == [1]
    assert torch.equal(*answers)
