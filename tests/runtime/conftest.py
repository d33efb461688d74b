"""What the tests of the runtime share."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from tcbuild import runtime

from .. import models
from ..conftest import ROOT, python_path


class Script(Protocol):
    """Runs Python source in a fresh process and returns what it prints; `argv` are its arguments."""

    def __call__(self, source: str, *argv: str | Path, **environment: str) -> str: ...


@pytest.fixture
def eager() -> models.Net:
    """Return the model that the net artifact was built from."""
    return models.net()


@pytest.fixture
def net(net_artifact: Path) -> Iterator[runtime.Dispatcher]:
    """Return the net, loaded, without gradients, as it is meant to be called."""
    with torch.no_grad():
        yield runtime.load(net_artifact)


@pytest.fixture
def strict_net(net_artifact: Path) -> Iterator[runtime.Dispatcher]:
    """Return the net, loaded so that a miss raises, without gradients."""
    with torch.no_grad():
        yield runtime.load(net_artifact, on_miss="raise")


@pytest.fixture
def script() -> Script:
    """Return a function that runs source in a fresh process."""

    def run(source: str, *argv: str | Path, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", source, *map(str, argv)],
            env={**os.environ, "PYTHONPATH": python_path(ROOT / "src", ROOT), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def leaves(value: Any) -> list[Any]:
    """Return the leaves of a result, in order."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [x for f in dataclasses.fields(value) for x in leaves(getattr(value, f.name))]
    if isinstance(value, dict):
        return [x for item in value.values() for x in leaves(item)]
    if isinstance(value, list | tuple):
        return [x for item in value for x in leaves(item)]
    return [value]


def same(made: Any, expected: Any) -> bool:
    """Return whether two results are alike: structure, types, values up to rounding."""
    if type(made) is not type(expected) or len(leaves(made)) != len(leaves(expected)):
        return False
    return all(_same_leaf(*pair) for pair in zip(leaves(made), leaves(expected), strict=True))


def _same_leaf(made: Any, expected: Any) -> bool:
    if not isinstance(made, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return type(made) is type(expected) and bool(made == expected)
    return (
        (made.dtype, made.shape) == (expected.dtype, expected.shape)
        and torch.allclose(made, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    )  # fmt: skip
