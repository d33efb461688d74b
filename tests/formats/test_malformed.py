"""Every way to be malformed gives its own error, and nothing but an error of the closed set."""

import contextlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tcbuild.formats import section
from tcbuild.formats.container import HEADER, Artifact
from tcbuild.formats.errors import (
    DigestError,
    FormatError,
    NotAnArtifactError,
    SectionError,
    TruncatedError,
)
from tcbuild.formats.manifest import Manifest
from tcbuild.formats.section import ZSTD
from tests.formats import samples
from tests.formats.malformed import DEFECTS, OPEN, Parts


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return samples.write_tiny(tmp_path_factory.mktemp("good") / "tiny.tcb").read_bytes()


@pytest.mark.parametrize("name", DEFECTS)
def test_defect(name: str, tiny: bytes, tmp_path: Path) -> None:
    defect = DEFECTS[name]
    path = tmp_path / f"{name}.tcb"
    path.write_bytes(defect.build(Parts(tiny)))
    if defect.when == OPEN:
        with pytest.raises(FormatError) as caught:
            Artifact(path)
    else:
        with Artifact(path) as artifact, pytest.raises(FormatError) as caught:
            artifact.check()
    error = caught.value
    assert type(error) is defect.error, error
    assert defect.found in error.found, error
    assert defect.expected in error.expected, error
    assert error.where.startswith(str(path))
    assert len(str(error)) < 2000


def test_parts_go_together_again(tiny: bytes, tmp_path: Path) -> None:
    path = tmp_path / "again.tcb"
    path.write_bytes(Parts(tiny).build())
    with Artifact(path) as artifact:
        artifact.check()


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(NotAnArtifactError, match="no regular file"):
        Artifact(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAnArtifactError, match="no regular file"):
        Artifact(tmp_path / "pipe")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Artifact(tmp_path / "nothing.tcb")


@contextlib.contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Flip one bit of a file, and at the end flip it back."""
    with path.open("r+b", buffering=0) as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1 << bit % 8]), bit // 8)
        yield
        os.pwrite(file.fileno(), bytes([byte]), bit // 8)


def refused(path: Path) -> type[FormatError] | None:
    """Return the class of the error that a file gives, at the latest when all of it is read."""
    try:
        with Artifact(path) as artifact:
            artifact.check()
    except FormatError as error:
        return type(error)
    return None


def test_every_length(tiny: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short.tcb"
    path.write_bytes(tiny)
    for length in reversed(range(1, len(tiny))):
        os.truncate(path, length)
        assert refused(path) is TruncatedError, length
    os.truncate(path, 0)
    assert refused(path) is NotAnArtifactError


def test_every_bit_of_the_header(tiny: bytes, tmp_path: Path) -> None:
    path = tmp_path / "flipped.tcb"
    path.write_bytes(tiny)
    for bit in range(8 * HEADER.size):
        with flipped(path, bit), pytest.raises(FormatError):
            Artifact(path)


def test_every_byte(tiny: bytes, tmp_path: Path) -> None:
    """No byte of the file is without a check: digests cover sections, padding must be zeros.

    Only in a zstd frame there are bits that no decoder looks at: what it holds is what counts.
    """
    path = tmp_path / "flipped.tcb"
    path.write_bytes(tiny)
    with Artifact(path) as artifact:
        data = {
            artifact.data + position: item.encoding
            for item in artifact.manifest.sections
            for position in range(item.offset, item.offset + item.length)
        }
    end = HEADER.size + HEADER.unpack_from(tiny)[3]
    for position in range(HEADER.size, len(tiny)):
        with flipped(path, 8 * position + position % 8):
            error = refused(path)
        if position < end:
            assert error is DigestError, position
        elif position not in data:
            assert error is SectionError, position
        elif error is None:
            assert data[position] == ZSTD, position
            assert tiny[position - 4 :].startswith(b"\x28\xb5\x2f\xfd"), position


ODD: tuple[object, ...] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 0.5, -0.0, 1e308),
    *("", "x", "@host", "batch", "#1", "a\nb", "\N{SNOWMAN}", "[" * 200, "contiguous", "0,1"),
    *([], [[]], ["x"], [1], [None], {}, {"kind": "tensor"}, {"kind": []}, {"min": 1}, {"": 0}),
)


def changed(value: Any, odd: random.Random) -> Iterator[Any]:
    """Yield the value with, at each place in turn, a part removed or another value in its stead."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, item in items:
        for other in odd.sample(ODD, 3):
            yield {**value, key: other} if isinstance(value, dict) else with_item(value, key, other)
        if isinstance(value, dict):
            yield {name: kept for name, kept in items if name != key}
        else:
            yield [*value[:key], *value[key + 1 :]]
            yield [*value, item]
        if isinstance(item, dict | list):
            for other in changed(item, odd):
                if isinstance(value, dict):
                    yield {**value, key: other}
                else:
                    yield with_item(value, key, other)


def with_item(values: list[Any], index: int, item: object) -> list[Any]:
    return [*values[:index], item, *values[index + 1 :]]


def test_every_value_of_the_manifest(tmp_path: Path) -> None:
    """Whatever JSON stands in the manifest, the reader takes it or gives an error of its own."""
    file = samples.write_rich(tmp_path / "rich.tcb").read_bytes()
    parts = Parts(file)
    taken = tried = 0
    for value in changed(parts.manifest, random.Random(7)):
        tried += 1
        try:
            manifest = Manifest.from_bytes(json.dumps(value).encode(), "changed")
            section.check_table(manifest.sections, len(parts.data), "changed")
        except FormatError:
            continue
        taken += 1
        assert Manifest.from_bytes(manifest.to_bytes(), "again") == manifest
        for variant in manifest.variants:
            assert all(map(str, variant.guards))
    assert tried > 1500
    assert taken < tried / 4
