"""A file with the weights of an artifact: each way in which it is another one than was built."""

import dataclasses
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcbuild.formats import Artifact
from tcbuild.formats.container import write
from tcbuild.formats.errors import DigestError, FormatError, MissingWeightsError, WeightsError
from tcbuild.formats.external import Digests, External, file_beside
from tcbuild.formats.section import sha256, xxh3
from tests.formats import samples

DATA = struct.pack("<2f", 1.0, -0.5)
SCALE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def file_of(head: dict[str, Any], data: bytes = DATA) -> bytes:
    body = json.dumps(head, separators=(",", ":")).encode()
    body = body.ljust(-(-(8 + len(body)) // 64) * 64 - 8)
    return struct.pack("<Q", len(body)) + body + data


GOOD = file_of({"scale": SCALE})


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Return the tiny artifact with its weights in a file beside it."""
    manifest, contents = samples.tiny()
    assert manifest.weights is not None
    digests = Digests(digest=sha256(DATA), checksum=xxh3(DATA))
    record = External(file="tiny.weights.safetensors", tensors={"scale": digests})
    weights = dataclasses.replace(manifest.weights, section=None, external=record)
    manifest = dataclasses.replace(manifest, weights=weights, requires=("external_weights",))
    path = tmp_path / "tiny.tcb"
    write(path, manifest, contents[1:])
    file_beside(path).write_bytes(GOOD)
    return path


# What is in the file instead; what it is refused with, and what that says was found.
WRONG: dict[str, tuple[bytes, type[FormatError], str]] = {
    "empty": (b"", WeightsError, "0 bytes"),
    "truncated": (GOOD[:-1], WeightsError, "tensors up to byte"),
    "truncated in its header": (GOOD[:40], WeightsError, "a header of"),
    "longer": (GOOD + b"\0", WeightsError, "tensors up to byte"),
    "another dtype": (file_of({"scale": {**SCALE, "dtype": "I32"}}), WeightsError, "int32"),
    "another shape": (file_of({"scale": {**SCALE, "shape": [1, 2]}}), WeightsError, "(1, 2)"),
    "another name": (file_of({"other": SCALE}), WeightsError, "no such tensor"),
    "other values": (file_of({"scale": SCALE}, bytes(8)), DigestError, "xxh3_128:"),
    "not aligned": (
        file_of(
            {
                "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                "scale": {**SCALE, "data_offsets": [1, 9]},
            },
            b"\0" + DATA,
        ),
        WeightsError,
        "a start at byte",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_file_is_refused(name: str, artifact: Path) -> None:
    data, error, found = WRONG[name]
    file_beside(artifact).write_bytes(data)
    with Artifact(artifact) as opened, pytest.raises(FormatError) as caught:
        opened.check()
    assert type(caught.value) is error, caught.value
    assert found in caught.value.found
    assert caught.value.where.startswith(str(file_beside(artifact)))
    assert "weights=PATH" in caught.value.tip


@pytest.mark.parametrize(
    "make", [lambda path: None, os.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")]
)
def test_a_file_that_cannot_be_opened(artifact: Path, make: Callable[[Path], Any]) -> None:
    file_beside(artifact).unlink()
    make(file_beside(artifact))
    with Artifact(artifact) as opened, pytest.raises(MissingWeightsError) as caught:
        opened.check()
    assert caught.value.expected == "the weights that were written as tiny.weights.safetensors"


def test_a_file_elsewhere_may_hold_more_in_any_order(artifact: Path, tmp_path: Path) -> None:
    file_beside(artifact).unlink()
    more = {
        "__metadata__": {"format": "pt"},
        "z": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "scale": {**SCALE, "data_offsets": [4, 12]},
    }
    other = tmp_path / "all of it.safetensors"
    other.write_bytes(file_of(more, bytes(4) + DATA))
    with Artifact(artifact) as opened:
        opened.check(other)
        file = opened.weights_file(other)
        assert file is not None
        assert list(file.entries) == ["scale"]
        assert bytes(file.bytes(file.entries["scale"])) == DATA


def test_a_digest_that_the_quick_check_does_not_look_at(artifact: Path, tmp_path: Path) -> None:
    manifest, contents = samples.tiny()
    with Artifact(artifact) as opened:
        manifest = opened.manifest
    assert manifest.weights is not None
    assert manifest.weights.external is not None
    digests = Digests(digest=sha256(b"other"), checksum=xxh3(DATA))
    external = dataclasses.replace(manifest.weights.external, tensors={"scale": digests})
    weights = dataclasses.replace(manifest.weights, external=external)
    write(artifact, dataclasses.replace(manifest, weights=weights), contents[1:])
    with Artifact(artifact) as opened:
        file = opened.weights_file()
        assert file is not None
        file.check("scale")
        with pytest.raises(DigestError, match="sha256:"):
            opened.check()


def test_a_path_for_an_artifact_that_has_its_weights(tmp_path: Path) -> None:
    path = samples.write_tiny(tmp_path / "tiny.tcb")
    with Artifact(path) as opened, pytest.raises(WeightsError, match="leave it out"):
        opened.weights_file(tmp_path / "any.safetensors")
