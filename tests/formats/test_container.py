"""The file: written, read, mapped, closed; and one that stays readable for good."""

import dataclasses
import hashlib
import os
import struct
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcbuild.formats import manifest as manifests
from tcbuild.formats import strict_json, variant_check
from tcbuild.formats.container import HEADER, Artifact, Content, write
from tcbuild.formats.errors import (
    DigestError,
    FormatError,
    ManifestError,
    SectionError,
    TooLargeError,
)
from tcbuild.formats.record import encode
from tcbuild.formats.safetensors_header import read_header
from tcbuild.formats.section import PAGE, RAW
from tcbuild.formats.signature import Sample, TensorLeaf
from tests.formats import samples

V1 = Path(__file__).parent / "stored" / "v1.tcb"
V1_SHA256 = "390b7b5bfa1dfc1bda2fff1e6f6cc3509340165eab6d07f725b68911f5af9bd3"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return samples.write_tiny(tmp_path / "tiny.tcb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


def test_round_trip(tmp_path: Path) -> None:
    for manifest, contents in (samples.tiny(), samples.rich()):
        path = tmp_path / f"{manifest.name}.tcb"
        write(path, manifest, contents)
        with Artifact(path) as artifact:
            artifact.check()
            assert dataclasses.replace(artifact.manifest, sections=()) == manifest
            for content in contents:
                assert artifact.read(content.name) == b"".join(content.parts)
            assert artifact.text("graph.py") == samples.SOURCE.decode()


def test_same_bytes_each_time(tmp_path: Path) -> None:
    one, two = samples.write_rich(tmp_path / "1"), samples.write_rich(tmp_path / "2")
    assert one.read_bytes() == two.read_bytes()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.binary(max_size=200), st.booleans()), max_size=6))
def test_any_contents(folder: Path, more: list[tuple[bytes, bool]]) -> None:
    manifest, contents = samples.tiny()
    contents += [
        Content(name=f"extra {i}", parts=[data], encoding=RAW if raw else "zstd")
        for i, (data, raw) in enumerate(more)
    ]
    path = folder / "any.tcb"
    write(path, manifest, contents)
    with Artifact(path) as artifact:
        artifact.check()
        for i, (data, raw) in enumerate(more):
            section = artifact.manifest.section(f"extra {i}")
            assert artifact.read(section.name) == data
            assert section.offset % (PAGE if raw else 64) == 0


def test_parts_of_other_items(tmp_path: Path) -> None:
    manifest, contents = samples.tiny()
    values = numpy.arange(10, dtype=numpy.float64).reshape(2, 5)
    contents.append(Content(name="values", parts=[values.data, b"!"], encoding=RAW))
    write(tmp_path / "values.tcb", manifest, contents)
    with Artifact(tmp_path / "values.tcb") as artifact:
        assert artifact.manifest.section("values").size == 81
        assert bytes(artifact.read("values")) == values.tobytes() + b"!"


def test_weights_are_where_the_manifest_says(tiny: Path) -> None:
    with Artifact(tiny) as artifact:
        section = artifact.manifest.section("weights")
        assert (artifact.data + section.offset) % PAGE == 0
        entry = read_header(artifact.stored("weights"), "here")["scale"]
        assert entry.start % 64 == 0
        data = artifact.stored("weights")[entry.start : entry.end]
        assert struct.unpack("<2f", data) == (1.0, -0.5)


def test_unknown_section(tiny: Path) -> None:
    with Artifact(tiny) as artifact:
        for use in (artifact.stored, artifact.read, artifact.text, artifact.map_private):
            with pytest.raises(SectionError, match="none named 'nothing'"):
                use("nothing")


def test_text_that_is_none(tmp_path: Path) -> None:
    manifest, contents = samples.tiny()
    contents.append(Content(name="latin", parts=["größe".encode("latin-1")]))
    write(tmp_path / "t.tcb", manifest, contents)
    with Artifact(tmp_path / "t.tcb") as artifact:
        assert artifact.read("latin")
        with pytest.raises(SectionError, match="UTF-8"):
            artifact.text("latin")


def test_views_outlive_the_artifact(tiny: Path) -> None:
    artifact = Artifact(tiny)
    view = artifact.stored("weights")
    array = numpy.frombuffer(artifact.stored("weights"), dtype=numpy.uint8)
    expected = bytes(view)
    artifact.close()
    artifact.close()
    os.unlink(tiny)
    assert bytes(view) == expected
    assert array.tobytes() == expected


def test_closed(tiny: Path) -> None:
    with Artifact(tiny) as artifact:
        pass
    for use in (artifact.stored, artifact.read, artifact.text, artifact.map_private):
        with pytest.raises(ValueError, match="is closed"):
            use("weights")
    with pytest.raises(ValueError, match="released"):
        artifact.check()
    assert artifact.manifest.name == "tiny"


def test_no_descriptor_is_left(tiny: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        Artifact(tiny).close()
        with pytest.raises(FormatError):
            Artifact(__file__)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before


def test_private_map(tiny: Path) -> None:
    """What is written to it stays in it, and what happens to the path does not reach it."""
    file = tiny.read_bytes()
    with Artifact(tiny) as artifact:
        for section in artifact.manifest.sections:
            assert artifact.map_private(section.name) == artifact.stored(section.name)
        other = tiny.with_suffix(".new")
        other.write_bytes(bytes(len(file)))
        other.replace(tiny)
        private = artifact.map_private("weights")
        expected = bytes(artifact.stored("weights"))
    assert bytes(private) == expected
    array = numpy.frombuffer(private, dtype=numpy.uint8)
    del private
    array[:] = 255
    assert set(array.tolist()) == {255}
    assert tiny.read_bytes() == bytes(len(file))


def test_private_map_of_nothing(tmp_path: Path) -> None:
    manifest, contents = samples.tiny()
    contents.append(Content(name="nothing", parts=[], encoding=RAW))
    write(tmp_path / "n.tcb", manifest, contents)
    with Artifact(tmp_path / "n.tcb") as artifact:
        artifact.check()
        assert len(artifact.map_private("nothing")) == 0


def test_nothing_is_written_that_no_reader_takes(tmp_path: Path) -> None:
    manifest, contents = samples.tiny()
    path = tmp_path / "bad.tcb"
    twice = [*contents, contents[0]]
    unknown = [*contents, Content(name="x", parts=[b""], encoding="lzma")]
    nan = TensorLeaf(dtype="float32", shape=(), index=0, sample=Sample(std=float("nan")))
    (variant,) = manifest.variants
    with pytest.raises(ManifestError, match="'weights' twice"):
        write(path, manifest, twice)
    with pytest.raises(SectionError, match="encoding 'lzma'"):
        write(path, manifest, unknown)
    with pytest.raises(ManifestError, match=r"section 'graph\.py'"):
        write(path, manifest, contents[:-1])
    not_finite = (dataclasses.replace(variant, outputs=nan),)
    with pytest.raises(ManifestError, match="not JSON compliant"):
        write(path, dataclasses.replace(manifest, variants=not_finite), contents)
    unguarded = (dataclasses.replace(variant, guards=variant.guards[1:]),)
    with pytest.raises(ManifestError, match="no guard on"):
        write(path, dataclasses.replace(manifest, variants=unguarded), contents)
    with pytest.raises(ManifestError, match="surrogates not allowed"):
        write(path, dataclasses.replace(manifest, model="\ud800"), contents)
    assert not path.exists()


@pytest.mark.parametrize(
    ("module", "limit", "found"),
    [
        (manifests, "MAX_SECTIONS", "3 items"),
        (manifests, "MAX_VARIANTS", "1 items"),
        (manifests, "MAX_WEIGHTS", "2 items"),
        (variant_check, "MAX_GUARDS", "11 guards"),
    ],
)
def test_limits_on_counts(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, module: object, limit: str, found: str
) -> None:
    count = int(found.split()[0])
    monkeypatch.setattr(module, limit, count)
    Artifact(tiny).close()
    monkeypatch.setattr(module, limit, count - 1)
    with pytest.raises(TooLargeError, match=f"found {found}, expected at most {count - 1}"):
        Artifact(tiny)


def test_limit_on_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcbuild.formats.container.MAX_MANIFEST", 1000)
    with pytest.raises(TooLargeError, match="expected at most 1000"):
        samples.write_tiny(tmp_path / "large.tcb")
    assert not list(tmp_path.iterdir())


def test_a_section_is_read_against_its_own_digest(tiny: Path) -> None:
    file = bytearray(tiny.read_bytes())
    with Artifact(tiny) as artifact:
        start = artifact.data + artifact.manifest.section("model.so").offset
    file[start + 10] ^= 1
    tiny.write_bytes(file)
    with Artifact(tiny) as artifact:
        assert artifact.read("graph.py") == samples.SOURCE
        with pytest.raises(DigestError, match=r"tiny\.tcb: section 'model\.so'"):
            artifact.read("model.so")


def test_version_1_is_readable() -> None:
    """A file of version 1. It is never written again: a reader that refuses it is wrong."""
    file = V1.read_bytes()
    assert hashlib.sha256(file).hexdigest() == V1_SHA256
    assert HEADER.unpack_from(file)[1] == 1
    with Artifact(V1) as artifact:
        artifact.check()
        manifest = artifact.manifest
        assert artifact.read("model.so") == b"\x7fELF machine code"
        assert artifact.text("graph.py").startswith("def bind(c):")
        entries = read_header(artifact.stored("weights"), "here")
        start = entries["scale"].start
        assert struct.unpack_from("<2f", artifact.stored("weights"), start) == (1.0, -0.5)
    assert manifest.name == "rich"
    assert [variant.id for variant in manifest.variants] == [
        "batch=1..8@cpu-x86-64-v3",
        "batch=4,seq=2..@cpu-x86-64-v3",
        "embedded",
    ]
    assert {guard.fact for variant in manifest.variants for guard in variant.guards} == {
        *("type", "dtype", "device", "rank", "size", "layout", "neg", "conj", "requires_grad"),
        *("value", "relation", "grad_mode", "autocast", "default_dtype", "deterministic", "modes"),
        *("torch", "os", "arch", "isa", "glibc"),
    }
    # Nothing that it says is lost.
    end = HEADER.size + HEADER.unpack_from(file)[3]
    assert encode(manifest) == strict_json.read(file[HEADER.size : end])
