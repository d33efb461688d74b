"""CUDA graphs: captured at the second call of a form, replayed from then on, owned by nobody's surprise."""

import threading
from pathlib import Path

import pytest
import torch

from tcbuild import runtime
from tcbuild.runtime.alert import Alerter
from tcbuild.runtime.cuda_graphs import GraphOptions, Graphs, Run

from . import models
from .conftest import Build

pytestmark = pytest.mark.gpu

ROWS = models.WIDTH
DEVICE = torch.device("cuda", 0)


@pytest.fixture
def eager() -> models.Mlp:
    """Return the model of the artifacts, on the GPU."""
    made: models.Mlp = models.seeded(models.Mlp).cuda()
    return made


def graphs(model: runtime.Dispatcher) -> int:
    return sum(count for count, _ in model.stats().graphs.values())


def test_replays_new_values(graphed_artifact: Path, eager: models.Mlp) -> None:
    model = runtime.load(graphed_artifact, on_miss="raise")
    for seed in range(5):
        for rows in (2, 7):
            x = models.drawn(rows, ROWS, seed=seed)
            assert models.close(model(x), eager(x))
    assert graphs(model) == 2
    assert "CUDA graphs of" in str(model.stats())


def test_outputs_are_the_callers(graphed_artifact: Path, eager: models.Mlp) -> None:
    model = runtime.load(graphed_artifact, on_miss="raise")
    calls = [models.drawn(4, ROWS, seed=seed) for seed in range(4)]
    answers = [model(x) for x in calls]
    assert all(models.close(y, eager(x)) for x, y in zip(calls, answers, strict=True))


def test_borrowed_outputs_are_overwritten(graphed_artifact: Path, eager: models.Mlp) -> None:
    model = runtime.load(graphed_artifact, on_miss="raise", borrow_outputs=True)
    first, second = (models.drawn(4, ROWS, seed=seed) for seed in (0, 1))
    for _ in range(2):
        model(first)
    one = model(first)
    assert models.close(one, eager(first))
    two = model(second)
    assert two.data_ptr() == one.data_ptr()
    assert models.close(one, eager(second))


def test_borrowed_inputs_are_read_where_they_are(graphed_artifact: Path, eager: models.Mlp) -> None:
    model = runtime.load(graphed_artifact, on_miss="raise", borrow_inputs=True)
    x = models.drawn(4, ROWS)
    for seed in range(4):
        x.copy_(models.drawn(4, ROWS, seed=seed))
        assert models.close(model(x), eager(x))
    assert graphs(model) == 1
    other = models.drawn(4, ROWS, seed=9)
    assert models.close(model(other), eager(other))
    assert graphs(model) == 1


def test_warmup_captures(graphed_artifact: Path) -> None:
    model = runtime.load(graphed_artifact, on_miss="raise")
    model.warmup()
    assert graphs(model) == 1


def test_new_weights_drop_the_graphs(graphed_artifact: Path, eager: models.Mlp) -> None:
    model = runtime.load(graphed_artifact, on_miss="raise")
    x = models.drawn(4, ROWS)
    for factor in (1.0, 2.0, 0.5):
        state = {name: tensor * factor for name, tensor in eager.state_dict().items()}
        model.load_weights(state)
        eager.load_state_dict(state)
        for _ in range(3):
            assert models.close(model(x), eager(x))
        assert graphs(model) == 1


def test_state_is_written_once_a_call(step_artifact: Path) -> None:
    model, eager = runtime.load(step_artifact, on_miss="raise"), models.seeded(models.Step).cuda()
    model.warmup()
    for position in (0, 3, 5, 5, 9):
        x, at = models.drawn(1, ROWS, seed=position), torch.tensor([position], device="cuda")
        assert models.close(model(x, at), eager(x, at))
        assert models.close(model.state()["cache"], eager.cache)
    assert graphs(model) == 1


def test_input_that_is_written_to(build: Build) -> None:
    class Add(torch.nn.Module):
        def forward(self, x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            total.add_(x)
            return total.sum()

    shape = (4, ROWS)
    path = build(
        Add().eval(),
        models.drawn(*shape, device="cpu"),
        torch.zeros(shape),
        name="add",
        mode="reduce-overhead",
    )
    model, total = runtime.load(path, on_miss="raise"), torch.zeros(shape, device="cuda")
    expected = torch.zeros(shape, device="cuda")
    for seed in range(4):
        x = models.drawn(*shape, seed=seed)
        expected += x
        assert models.close(model(x, total), expected.sum())
        assert models.close(total, expected)


def test_failed_capture_is_told_and_served(
    graphed_artifact: Path, eager: models.Mlp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "operation not permitted when stream is capturing"
        raise RuntimeError(message)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", refuse)
    alerts: list[runtime.Alert] = []
    model = runtime.load(graphed_artifact, on_miss="raise", on_alert=alerts.append)
    x = models.drawn(4, ROWS)
    for _ in range(4):
        assert models.close(model(x), eager(x))
    assert [alert.kind for alert in alerts] == ["trouble"]
    assert "was not captured: operation not permitted" in str(alerts[0])
    assert not model.stats().misses


def alone(run: Run, alerts: list[runtime.Alert]) -> Graphs:
    """Return the graphs of a function, without an artifact."""
    options = GraphOptions(alerter=Alerter("model", alerts.append))
    return Graphs(run, DEVICE, options, name="v", state=0, written=())


def fails_late(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Ask for what no capture permits, in the middle of one."""
    made = given[0] + 1
    if torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()
    return [made]


@pytest.mark.parametrize("begins", [True, False])
def test_failed_capture_leaves_torch_as_it_was(
    monkeypatch: pytest.MonkeyPatch, *, begins: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    if not begins:
        monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", refuse)
    alerts: list[runtime.Alert] = []
    graphs = alone(fails_late, alerts)
    stream = torch.cuda.current_stream(DEVICE)
    torch.cuda.manual_seed(0)
    expected = [torch.rand(4, device=DEVICE) for _ in range(4)]
    torch.cuda.manual_seed(0)
    for drawn in expected:
        (made,) = graphs.run([torch.zeros(4, device=DEVICE)])
        assert bool((made == 1).all())
        assert torch.cuda.current_stream(DEVICE) == stream
        assert torch.equal(torch.rand(4, device=DEVICE), drawn)
    assert len(alerts) == 1


def test_each_replay_draws_new_numbers() -> None:
    alerts: list[runtime.Alert] = []
    graphs = alone(lambda given: [given[0] + torch.rand_like(given[0])], alerts)
    torch.cuda.manual_seed(0)
    expected = [torch.rand(4, device=DEVICE) for _ in range(6)]
    torch.cuda.manual_seed(0)
    for drawn in expected:
        (made,) = graphs.run([torch.zeros(4, device=DEVICE)])
        assert torch.equal(made, drawn)
    assert not alerts
    assert graphs.read()[0] == 1


def test_outputs_outlive_their_graph() -> None:
    alerts: list[runtime.Alert] = []
    options = GraphOptions(alerter=Alerter("model", alerts.append), borrow_outputs=True)
    graphs = Graphs(lambda given: [given[0] + 1], DEVICE, options, name="v", state=0, written=())
    kept = []
    for value in range(3):
        x = torch.full((4,), float(value), device=DEVICE)
        kept.append([graphs.run([x])[0] for _ in range(3)][-1])
        graphs.drop()
    assert not alerts
    assert [float(made[0]) for made in kept] == [1, 2, 3]


def test_streams_and_threads(graphed_artifact: Path, eager: models.Mlp) -> None:
    model = runtime.load(graphed_artifact, on_miss="raise")
    wrong: list[int] = []

    def serve(number: int) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream), torch.no_grad():
            for i in range(50):
                x = models.drawn(2 + i % 3, ROWS, seed=100 * number + i)
                stream.synchronize()
                answer = model(x)
                stream.synchronize()
                if not models.close(answer, eager(x)):
                    wrong.append(number)

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert graphs(model) == 12
