"""What the tests of the builder share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from tcbuild.aot.job_cache import JobCache
from tcbuild.formats import Manifest, Variant

from ..conftest import Rewrite

Edit = Callable[[Manifest], Manifest]


@pytest.fixture
def no_jobs(tmp_path: Path) -> JobCache:
    """Return a job cache without a job in it, for libraries that nobody else is to get.

    It shares the session's compiler driver, and so the headers that are precompiled for it.
    """
    return JobCache(jobs=tmp_path / "jobs")


@pytest.fixture
def spec_copy(tiny_spec_dir: Path, tmp_path: Path) -> Path:
    """Return a folder with the tiny model's spec and source, to be changed."""
    return copytree(
        tiny_spec_dir, tmp_path / "spec", ignore=ignore_patterns("tiny.*", "__pycache__")
    )


@pytest.fixture
def edited(tiny_artifact: Path, rewrite: Rewrite) -> Callable[..., Path]:
    """Return a function that writes the tiny artifact again: valid, with another manifest or bytes."""

    def edit(
        change: Edit = lambda manifest: manifest, sections: dict[str, bytes] | None = None
    ) -> Path:
        return rewrite(tiny_artifact, change, sections)

    return edit


@pytest.fixture
def compiled() -> Callable[[Callable[[Variant], Variant]], Edit]:
    """Return a function that makes an edit of a manifest from an edit of its compiled variant."""

    def of(change: Callable[[Variant], Variant]) -> Edit:
        return lambda manifest: replace(
            manifest,
            variants=tuple(
                change(variant) if variant.form == "library" else variant
                for variant in manifest.variants
            ),
        )

    return of
