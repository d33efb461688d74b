"""Compiling beside others: no process waits for another's lock, and no thread sees another's settings."""

import threading
from pathlib import Path

import torch
from torch import Tensor, nn

from tcbuild import aot, runtime


class Shifted(nn.Module):
    """Adds a number that is its own."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [n]."""
        return torch.tanh(x) + self.by


def build(by: float, path: Path) -> None:
    aot.build(aot.Spec.from_module(Shifted(by).eval(), (torch.ones(8),), verify=False), path)


def test_does_not_wait_for_the_lock_of_another_library(tmp_path: Path) -> None:
    from torch._inductor.codecache import get_lock_dir
    from torch.utils._filelock import FileLock

    with FileLock(str(Path(get_lock_dir()) / "model.lock")):
        builder = threading.Thread(target=build, args=(1.0, tmp_path / "one.tcb"), daemon=True)
        builder.start()
        builder.join(timeout=120)
        assert not builder.is_alive()
    x = torch.randn(8)
    with torch.no_grad():
        y = runtime.load(tmp_path / "one.tcb", on_miss="raise")(x)
    torch.testing.assert_close(y, torch.tanh(x) + 1)


def test_builds_in_two_threads(tmp_path: Path) -> None:
    paths = {by: tmp_path / f"{by}.tcb" for by in (2.0, 3.0)}
    threads = [threading.Thread(target=build, args=pair) for pair in paths.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x = torch.randn(8)
    for by, path in paths.items():
        with torch.no_grad():
            y = runtime.load(path, on_miss="raise")(x)
        torch.testing.assert_close(y, torch.tanh(x) + by)
