"""What surrounds a step: autograd, optimizers, modes and threads see what eager shows them."""

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tcbuild import runtime

from . import models

X = models.drawn(8, 16)


@pytest.fixture
def pair(mlp: models.Mlp, mlp_artifact: Path) -> Iterator[tuple[models.Mlp, models.Mlp]]:
    """Return the model without and with the artifact."""
    eager = copy.deepcopy(mlp)
    runtime.attach(mlp, mlp_artifact, on_miss="raise")
    yield eager, mlp
    runtime.detach(mlp)


def grads(module: torch.nn.Module) -> list[Tensor]:
    found = [parameter.grad for parameter in module.parameters()]
    return [grad for grad in found if grad is not None]


def close(one: list[Tensor], other: list[Tensor]) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizers(pair: tuple[models.Mlp, models.Mlp], kind: type[torch.optim.Optimizer]) -> None:
    for module in pair:
        optimizer = kind(module.parameters(), lr=0.01)  # type: ignore[call-arg]
        for seed in range(5):
            optimizer.zero_grad()
            module(models.drawn(8, 16, seed=seed)).square().mean().backward()
            optimizer.step()
    close(list(pair[0].parameters()), list(pair[1].parameters()))


def test_gradients_add_up(pair: tuple[models.Mlp, models.Mlp]) -> None:
    for module in pair:
        first, second = module(X), module(2 * X)  # two forwards before a backward
        second.sum().backward()
        first.square().sum().backward()
        module(X).sum().backward()
    close(grads(pair[1]), grads(pair[0]))


def test_retained_graph(pair: tuple[models.Mlp, models.Mlp]) -> None:
    for module in pair:
        made = module(X).square().sum()
        made.backward(retain_graph=True)
        made.backward()
        with pytest.raises(RuntimeError, match="second time"):
            made.backward()
    close(grads(pair[1]), grads(pair[0]))


def test_double_backward_is_refused(pair: tuple[models.Mlp, models.Mlp]) -> None:
    made = pair[1](X).square().sum()
    (grad,) = torch.autograd.grad(made, [pair[1].first.weight], create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        grad.sum().backward()  # type: ignore[no-untyped-call]


def test_weights_that_change_before_the_backward(pair: tuple[models.Mlp, models.Mlp]) -> None:
    for module in pair:
        made = module(X).square().sum()
        with torch.no_grad():
            module.second.weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.backward()


def test_hooks(pair: tuple[models.Mlp, models.Mlp]) -> None:
    seen: dict[int, list[object]] = {0: [], 1: []}
    for which, module in enumerate(pair):
        said = seen[which].append
        module.register_forward_pre_hook(lambda m, args, said=said: said(("pre", args[0].shape)))
        module.register_forward_hook(lambda m, args, out, said=said: said(("post", out.shape)))
        module.second.weight.register_hook(lambda grad, said=said: said(grad.shape))  # type: ignore[no-untyped-call]
        made: Any = module(X)
        made.register_hook(lambda grad, said=said: said(("out", grad.shape)))
        made.sum().backward()
    assert seen[0] == seen[1]
    assert len(seen[0]) == 4


def test_strided_gradient(pair: tuple[models.Mlp, models.Mlp]) -> None:
    for module in pair:
        module(X).backward(models.drawn(4, 8, seed=5).t())
    close(grads(pair[1]), grads(pair[0]))


def test_no_grad_and_eval_mode_pick_other_variants(mlp: models.Mlp, mlp_artifact: Path) -> None:
    dispatcher = runtime.attach(mlp, mlp_artifact)
    train, served = dispatcher.explain(X), []
    assert str(train.variant).startswith("batch=2..64,train,step@")
    with torch.no_grad():
        served.append(dispatcher.explain(X).variant)
        mlp.eval()
        served.append(dispatcher.explain(X).variant)
    served.append(dispatcher.explain(X).variant)
    assert served[0] is None  # training mode without gradients was not built
    assert str(served[1]).startswith("batch=2..64@")
    assert served[2] is None


def test_inference_sees_the_trained_weights(mlp: models.Mlp, mlp_artifact: Path) -> None:
    runtime.attach(mlp, mlp_artifact, on_miss="raise")
    mlp(X).square().mean().backward()
    torch.optim.SGD(mlp.parameters(), lr=0.5).step()
    eager = copy.deepcopy(mlp).eval()
    mlp.eval()
    with torch.no_grad():
        torch.testing.assert_close(mlp(X), eager(X))
        mlp.load_state_dict({k: v * 2 for k, v in eager.state_dict().items()})
        eager.load_state_dict(mlp.state_dict())
        torch.testing.assert_close(mlp(X), eager(X))


def test_autocast_and_what_is_not_built_are_misses(mlp: models.Mlp, mlp_artifact: Path) -> None:
    alerts: list[runtime.Alert] = []
    eager = copy.deepcopy(mlp)
    dispatcher = runtime.attach(mlp, mlp_artifact, on_alert=alerts.append)
    for module in (eager, mlp):
        with torch.autocast("cpu", torch.bfloat16):
            module(X).float().sum().backward()
        module(models.drawn(100, 16)).sum().backward()
    close(grads(mlp), grads(eager))
    assert dispatcher.stats().fallbacks["fallback module"] == 2
    assert "autocast: expected False, found True" in str(alerts[0])
    assert "x.size(0): expected 2..64, found 100" in str(alerts[1])


def test_weights_of_another_form_are_a_miss(mlp: models.Mlp, mlp_artifact: Path) -> None:
    dispatcher = runtime.attach(mlp, mlp_artifact)
    mlp(X).sum().backward()
    mlp.first.weight.requires_grad_(False)
    assert "weights.first.weight.requires_grad: expected True, found False" in str(
        dispatcher.explain(X)
    )
    mlp(X).sum().backward()
    assert dispatcher.stats().fallbacks["fallback module"] == 1
    mlp.first.weight.requires_grad_(True)
    mlp(X).sum().backward()
    assert dispatcher.stats().fallbacks["fallback module"] == 1
    mlp.double()
    assert "weights.first.weight.dtype: expected float32, found float64" in str(
        dispatcher.explain(X.double())
    )
    mlp(X.double()).sum().backward()


def test_replaced_tensors(mlp: models.Mlp, mlp_artifact: Path) -> None:
    dispatcher = runtime.attach(mlp, mlp_artifact)
    with torch.no_grad():
        mlp.eval()(X)
    mlp.second.weight.data = mlp.second.weight.data * 2
    eager = copy.deepcopy(mlp)
    # A step takes what is there; a variant for inference is bound to what was.
    mlp.train()
    torch.testing.assert_close(mlp(X), eager.train()(X))
    mlp.eval()
    with torch.no_grad():
        torch.testing.assert_close(mlp(X), eager.eval()(X))
        assert "weights.second.weight: expected the tensor that was attached" in str(
            dispatcher.explain(X)
        )
    mlp.first = torch.nn.Linear(16, 32)
    assert "weights.first: expected the tensor that was attached" in str(dispatcher.explain(X))
    assert mlp(X).shape == (8, 4)


def test_threads(pair: tuple[models.Mlp, models.Mlp]) -> None:
    wrong: list[object] = []

    def train(seed: int) -> None:
        for round_ in range(20):
            x = models.drawn(2 + seed, 16, seed=round_)
            mine, own = [
                torch.autograd.grad(m(x).square().sum(), list(m.parameters())) for m in pair
            ]
            if not all(
                torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(mine, own, strict=True)
            ):
                wrong.append(seed)

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_copies_have_nothing_attached(mlp: models.Mlp, mlp_artifact: Path) -> None:
    dispatcher = runtime.attach(mlp, mlp_artifact)
    other = copy.deepcopy(mlp)
    with torch.no_grad():
        other.second.bias.add_(1)
    assert not torch.equal(other(X), mlp(X))
    assert dispatcher.stats().calls == 1
    with pytest.raises(TypeError, match="detach it first"):
        torch.save(mlp, "/dev/null")
    with pytest.raises(runtime.StateError, match="has an artifact attached"):
        runtime.attach(mlp, mlp_artifact)
    runtime.detach(mlp)
    mlp(X)
    assert dispatcher.stats().calls == 1
    assert "forward" not in vars(mlp)


def test_modules_that_are_another(mlp_artifact: Path) -> None:
    with pytest.raises(
        runtime.StateError, match=r"first.weight: .*\[32, 8\].*expected float32 \[32, 16\]"
    ):
        runtime.attach(models.Mlp(width=8), mlp_artifact)
    with pytest.raises(runtime.StateError, match="no such tensor"):
        runtime.attach(torch.nn.Linear(16, 4), mlp_artifact)
