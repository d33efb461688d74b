"""Hundreds of variants: found by their sizes, their libraries opened when they are needed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tcbuild import runtime
from tcbuild.formats import Bucket, Manifest, Variant
from tcbuild.runtime.load import DEFERRED

from .. import models
from ..conftest import Rewrite
from .conftest import same

MANY = DEFERRED + 44


def one_size(variant: Variant, seq: int) -> Variant:
    """Return a variant for a range of sizes as one for a single size of them."""
    sizes = {0: variant.bucket.dims["batch"], 1: seq}
    return replace(
        variant,
        id=f"batch={sizes[0]},seq={seq}",
        bucket=Bucket(dims={"batch": sizes[0], "seq": seq}),
        guards=tuple(
            replace(guard, expected=seq)
            if guard.fact == "size" and guard.axis == 1 and guard.subject in ("ids", "feats['a']")
            else guard
            for guard in variant.guards
        ),
    )


@pytest.fixture
def many(net_artifact: Path, rewrite: Rewrite) -> Path:
    """Return the net's artifact with MANY variants, of which those for 2 to 16 words are served."""

    def change(manifest: Manifest) -> Manifest:
        ranged = next(v for v in manifest.variants if v.form == "library" and v.bucket.ranges())
        others = [v for v in manifest.variants if v.form != "library"]
        sizes = reversed(range(2, MANY + 2))
        return replace(manifest, variants=(*(one_size(ranged, n) for n in sizes), *others))

    return rewrite(net_artifact, change)


@pytest.fixture
def served(many: Path) -> Iterator[runtime.Dispatcher]:
    """Return it loaded, without gradients."""
    with torch.no_grad():
        yield runtime.load(many, on_miss="raise")


def test_each_is_found_by_its_sizes(served: runtime.Dispatcher, eager: models.Net) -> None:
    for seq in (2, 5, 16, 5):
        args, kwargs = models.net_call(seq=seq)
        assert same(served(*args, **kwargs), eager(*args, **kwargs))
    hits = {name: count for name, count in served.stats().hits.items() if count}
    assert hits == {"batch=3,seq=2": 1, "batch=3,seq=5": 2, "batch=3,seq=16": 1}


def test_a_miss_names_the_nearest_and_not_all(served: runtime.Dispatcher) -> None:
    args, kwargs = models.net_call(seq=MANY + 2)
    with pytest.raises(runtime.MissError) as raised:
        served(*args, **kwargs)
    assert "[batch=3,seq=2] (and " in str(raised.value)
    assert f"seq={MANY + 1}, " in raised.value.expected
    assert raised.value.expected.endswith(f"{MANY - 64} more")


def test_new_weights_reach_libraries_opened_before_and_after(
    served: runtime.Dispatcher, eager: models.Net
) -> None:
    calls = [models.net_call(seq=seq) for seq in (3, 4, 6)]
    served(*calls[0][0])
    for change in (2.0, 3.0):
        state = {name: tensor * change for name, tensor in models.net().state_dict().items()}
        served.load_weights(state)
        eager.load_state_dict(state)
        for args, kwargs in calls[: int(change)]:
            assert same(served(*args, **kwargs), eager(*args, **kwargs))


def test_the_file_may_go_once_it_is_loaded(many: Path, eager: models.Net) -> None:
    with torch.no_grad():
        served = runtime.load(many, on_miss="raise")
        many.unlink()
        args, kwargs = models.net_call(seq=7)
        assert same(served(*args, **kwargs), eager(*args, **kwargs))
