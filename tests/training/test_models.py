"""Models of many kinds train through an artifact as they do in eager."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tcbuild import runtime

from ..conftest import CommandLine
from . import models
from .conftest import BATCH, Build

Loss = Callable[[object], Tensor]


def step(module: nn.Module, loss: Loss, *args: Tensor) -> dict[str, Tensor]:
    """Return what a step leaves behind: the loss, and all gradients and buffers."""
    module.zero_grad()
    made = loss(module(*args))
    made.backward()  # type: ignore[no-untyped-call]
    found = {"loss": made.detach()}
    found |= {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    return found | {n: b.clone() for n, b in module.named_buffers()}


def same(module: nn.Module, path: Path, loss: Loss, *calls: tuple[Tensor, ...]) -> runtime.Stats:
    """Train a copy with the artifact and one without; they must agree after each step."""
    eager, attached = copy.deepcopy(module).train(), copy.deepcopy(module).train()
    dispatcher = runtime.attach(attached, path, on_miss="raise")
    pair = [
        torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1)
        for m in (eager, attached)
    ]
    for args in calls:
        expected, found = (step(m, loss, *args) for m in (eager, attached))
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
        for optimizer in pair:
            optimizer.step()
    return dispatcher.stats()


def square(made: object) -> Tensor:
    assert isinstance(made, Tensor)
    return made.square().mean()


def test_mlp(mlp_artifact: Path) -> None:
    calls = [(models.drawn(rows, 16, seed=rows),) for rows in (2, 8, 64)]
    stats = same(models.seeded(models.Mlp), mlp_artifact, square, *calls)
    assert stats.fallback_share == 0


def test_batch_norm_keeps_its_statistics(build: Build) -> None:
    module = models.seeded(models.Conv)
    path = build(module, models.drawn(4, 3, 8, 8), name="conv")
    calls = [(models.drawn(4, 3, 8, 8, seed=seed),) for seed in range(3)]
    same(module, path, square, *calls)


def test_tied_weights_and_dynamic_sizes(build: Build) -> None:
    module = models.seeded(models.Gpt)
    ids = torch.randint(32, (3, 8), generator=torch.Generator().manual_seed(0))
    seq = torch.export.Dim("seq", min=2, max=32)
    path = build(module, ids, name="gpt", dynamic_shapes=({0: BATCH, 1: seq},))
    calls = [(ids,), (ids[:2, :5].contiguous(),), (ids.repeat(4, 3),)]
    same(module, path, square, *calls)


def test_two_losses_a_frozen_layer_and_an_input_that_needs_a_gradient(build: Build) -> None:
    module = models.seeded(models.Losses)
    x, label = models.drawn(6, 8).requires_grad_(), torch.tensor([0, 1, 2, 3, 0, 1])
    target = models.drawn(6, seed=2)
    path = build(module, x, label, target, name="losses")

    def total(made: object) -> Tensor:
        assert isinstance(made, dict)
        sum_: Tensor = made["class"] + 0.5 * made["value"]
        return sum_

    same(module, path, total, (x, label, target), (x, label, target))
    eager, attached = copy.deepcopy(module).train(), module.train()
    runtime.attach(attached, path, on_miss="raise")
    found = []
    for one in (eager, attached):
        given = x.detach().clone().requires_grad_()
        total(one(given, label, target)).backward()  # type: ignore[no-untyped-call]
        found.append(given.grad)
    torch.testing.assert_close(found[1], found[0])
    with pytest.raises(runtime.MissError, match=r"x\.requires_grad: expected True, found False"):
        attached(x.detach(), label, target)


def test_views_of_the_input_and_checkpointed_layers(build: Build) -> None:
    x = models.drawn(4, 8).requires_grad_()
    module = models.seeded(models.Views)
    path = build(module, x, name="views")
    eager, attached = copy.deepcopy(module).train(), module.train()
    runtime.attach(attached, path, on_miss="raise")
    found = []
    for one in (eager, attached):
        given = x.detach().clone().requires_grad_()
        again, turned, made = one(given)
        assert again is given
        assert turned.data_ptr() == given.data_ptr()
        assert turned.shape == (8, 4)
        (made.sum() + (turned * turned).sum()).backward()
        found.append([given.grad, *(parameter.grad for parameter in one.parameters())])
    torch.testing.assert_close(found[1], found[0])


def test_dropout_draws_by_the_seed(block_artifact: Path) -> None:
    module = models.seeded(models.Block).train()
    runtime.attach(module, block_artifact, on_miss="raise")
    x = models.drawn(3, 8, 16)
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(step(module, square, x))
    for name in found[0]:
        assert torch.equal(found[0][name], found[1][name]), name
    assert not torch.equal(found[0]["loss"], found[2]["loss"])
    for batch, seq in ((2, 2), (5, 32)):
        step(module, square, models.drawn(batch, seq, 16))


def test_verify_says_what_it_did_not_check(tcbuild: CommandLine, block_artifact: Path) -> None:
    done = tcbuild("verify", block_artifact)
    assert done.returncode == 0, done.stderr
    assert "not checked: a training step needs the model: --spec SPEC" in done.stdout
