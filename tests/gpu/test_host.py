"""An artifact for another GPU, driver or torch is refused before any of its code is loaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tcbuild import runtime
from tcbuild.formats import Manifest
from tcbuild.runtime import program

from ..conftest import Rewrite

pytestmark = pytest.mark.gpu


def expecting(fact: str, value: str) -> Callable[[Manifest], Manifest]:
    """Return a change that lets every guard on a fact expect something else."""

    def change(manifest: Manifest) -> Manifest:
        variants = tuple(
            replace(
                variant,
                guards=tuple(
                    replace(guard, expected=value) if guard.fact == fact else guard
                    for guard in variant.guards
                ),
            )
            for variant in manifest.variants
        )
        return replace(manifest, variants=variants)

    return change


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("gpu", "sm_80", "host.gpu: expected sm_80, found sm_"),
        ("cuda", "11.8", "host.cuda: expected 11.8, found 1"),
        ("driver", "99.0", "host.driver: expected at least 99.0, found 1"),
        ("torch", "2.99.0", "host.torch: expected 2.99.0, found 2."),
    ],
)
def test_refused(
    mlp_artifact: Path,
    rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
    fact: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setattr(program, "Library", None)
    path = rewrite(mlp_artifact, expecting(fact, value))
    with pytest.raises(runtime.HostError, match=said) as caught:
        runtime.load(path)
    assert "TIP: rebuild it here" in str(caught.value)


def test_gpu_that_is_not_there(mlp_artifact: Path) -> None:
    with pytest.raises(runtime.HostError, match=r"host\.gpu: expected sm_.*, found none"):
        runtime.load(mlp_artifact, device="cuda:77")
