"""Malformed artifacts, each made from the tiny one and named after its defect."""

import copy
import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import zstandard

from tcbuild.formats import errors
from tcbuild.formats.container import HEADER, MAGIC, MAX_MANIFEST
from tcbuild.formats.expression import MAX_DEPTH, MAX_LENGTH
from tcbuild.formats.record import MAX_DEPTH as MAX_RECORDS
from tcbuild.formats.safetensors_header import MAX_HEADER
from tcbuild.formats.section import MAX_UNPACKED, PAGE, sha256, xxh3
from tcbuild.formats.variant_check import MAX_GUARDS
from tcbuild.formats.version import CURRENT

OPEN: Final = "open"  # the defect shows when the file is opened
CHECK: Final = "check"  # it opens, and shows when all of it is read


class Parts:
    """An artifact taken apart, to be changed and put together again."""

    def __init__(self, file: bytes) -> None:
        length = HEADER.unpack_from(file)[3]
        self.file = file
        self.manifest: dict[str, Any] = json.loads(file[HEADER.size : HEADER.size + length])
        self.data = bytearray(file[-(-(HEADER.size + length) // PAGE) * PAGE :])

    @property
    def variant(self) -> dict[str, Any]:
        variant: dict[str, Any] = self.manifest["variants"][0]
        return variant

    @property
    def signature(self) -> dict[str, Any]:
        signature: dict[str, Any] = self.manifest["signatures"][0]
        return signature

    @property
    def parameter(self) -> dict[str, Any]:
        parameter: dict[str, Any] = self.signature["parameters"][0]
        return parameter

    def section(self, name: str) -> dict[str, Any]:
        sections: list[dict[str, Any]] = self.manifest["sections"]
        return next(section for section in sections if section["name"] == name)

    def guard(self, fact: str) -> dict[str, Any]:
        guards: list[dict[str, Any]] = self.variant["guards"]
        return next(guard for guard in guards if guard["fact"] == fact)

    def stored(self, name: str) -> bytes:
        section = self.section(name)
        return bytes(self.data[section["offset"] : section["offset"] + section["length"]])

    def build(self, body: bytes | None = None, **header: Any) -> bytes:
        """Return a file that is right but for what was changed and for `header`."""
        if body is None:
            body = json.dumps(self.manifest, ensure_ascii=False).encode("utf-8", "surrogatepass")
        start = -(-(HEADER.size + len(body)) // PAGE) * PAGE
        fields = {
            "magic": MAGIC,
            "version": CURRENT,
            "reserved": 0,
            "manifest": len(body),
            "length": start + len(self.data),
            "digest": hashlib.sha256(body).digest(),
            **header,
        }
        head = HEADER.pack(*fields.values()) + body
        return head.ljust(start, b"\0") + self.data

    def text(self, old: str, new: str) -> bytes:
        """Return a file with a manifest in which one piece of its JSON text is another."""
        text = json.dumps(self.manifest)
        assert text.count(old) >= 1, old
        return self.build(text.replace(old, new, 1).encode("utf-8", "surrogatepass"))

    def last(self, stored: bytes) -> bytes:
        """Return a file with other stored bytes in its last section, graph.py."""
        section = self.section("graph.py")
        self.data[section["offset"] :] = stored
        section["length"] = len(stored)
        return self.build()

    def weights(self, head: object, data: bytes = b"\0" * 8) -> bytes:
        """Return a file with another weights section, whose digests are right."""
        body = head if isinstance(head, bytes) else json.dumps(head, separators=(",", ":")).encode()
        made = struct.pack("<Q", len(body)) + body + data
        section = self.section("weights")
        space = -(-len(made) // PAGE) * PAGE  # the other sections move to the next page
        for other in self.manifest["sections"]:
            if other is not section:
                other["offset"] += space - 192
        self.data[:192] = made.ljust(space, b"\0")
        section.update(length=len(made), size=len(made), digest=sha256(made), checksum=xxh3(made))
        return self.build()


Build = Callable[[Parts], bytes]


@dataclass(frozen=True, kw_only=True)
class Defect:
    """A malformed file, and the error it must give.

    Attributes:
        build: makes the file from a good one's parts.
        error: the exact class of the error.
        found, expected: a piece of what the error says was found, and was expected.
        when: OPEN or CHECK.
    """

    build: Build
    error: type[errors.FormatError]
    found: str
    expected: str
    when: str


DEFECTS: dict[str, Defect] = {}


def defect(
    error: type[errors.FormatError], found: str, expected: str, when: str = OPEN
) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        assert build.__name__ not in DEFECTS
        DEFECTS[build.__name__] = Defect(
            build=build, error=error, found=found, expected=expected, when=when
        )
        return build

    return register


# The file and its header.


@defect(errors.NotAnArtifactError, "b''", "TCB")
def empty_file(parts: Parts) -> bytes:
    return b""


@defect(errors.NotAnArtifactError, "b'{", "TCB")
def text_file(parts: Parts) -> bytes:
    return json.dumps(parts.manifest).encode()


@defect(errors.NotAnArtifactError, "\\n", "\\r\\n")
def magic_of_a_text_mode_copy(parts: Parts) -> bytes:
    return parts.file.replace(b"\r\n", b"\n")


@defect(errors.NotAnArtifactError, "\\tTCB", "\\x89TCB")
def magic_without_its_high_bit(parts: Parts) -> bytes:
    return parts.build(magic=b"\x09" + MAGIC[1:])


@defect(errors.TruncatedError, "4 bytes", "at least 64")
def truncated_magic(parts: Parts) -> bytes:
    return parts.file[:4]


@defect(errors.TruncatedError, "63 bytes", "at least 64")
def truncated_header(parts: Parts) -> bytes:
    return parts.file[: HEADER.size - 1]


@defect(errors.TruncatedError, "100 bytes", "4416 bytes")
def truncated_in_manifest(parts: Parts) -> bytes:
    return parts.file[:100]


@defect(errors.TruncatedError, "4097 bytes", "4416 bytes")
def truncated_in_weights(parts: Parts) -> bytes:
    return parts.file[: PAGE + 1]


@defect(errors.TruncatedError, "4417 bytes", "4416 bytes")
def trailing_bytes(parts: Parts) -> bytes:
    return parts.file + b"\0"


@defect(errors.TruncatedError, "8832 bytes", "4416 bytes")
def written_twice(parts: Parts) -> bytes:
    return parts.file * 2


@defect(errors.VersionError, f"version {CURRENT + 1}", f"to {CURRENT}")
def newer_version(parts: Parts) -> bytes:
    return parts.build(version=CURRENT + 1)


@defect(errors.VersionError, "version 0", "1 to")
def version_zero(parts: Parts) -> bytes:
    return parts.build(version=0)


@defect(errors.VersionError, "reserved bits 0x80000000", "1 to")
def reserved_bits_set(parts: Parts) -> bytes:
    return parts.build(reserved=1 << 31)


@defect(errors.TooLargeError, f"{MAX_MANIFEST + 1}", f"{MAX_MANIFEST}")
def manifest_length_over_limit(parts: Parts) -> bytes:
    return parts.build(manifest=MAX_MANIFEST + 1)


@defect(errors.TooLargeError, f"{(1 << 64) - 1}", f"{MAX_MANIFEST}")
def manifest_length_of_all_ones(parts: Parts) -> bytes:
    return parts.build(manifest=(1 << 64) - 1)


@defect(errors.TruncatedError, "bytes", "at least 12288 bytes")
def manifest_length_beyond_file(parts: Parts) -> bytes:
    return parts.build(manifest=2 * PAGE)


@defect(errors.DigestError, "", "")
def manifest_length_off_by_one(parts: Parts) -> bytes:
    return parts.build(manifest=HEADER.unpack_from(parts.build())[3] - 1)


@defect(errors.TruncatedError, "bytes", f"{(1 << 64) - 1} bytes")
def file_length_of_all_ones(parts: Parts) -> bytes:
    return parts.build(length=(1 << 64) - 1)


@defect(errors.DigestError, "", "0000")
def manifest_digest_wrong(parts: Parts) -> bytes:
    return parts.build(digest=bytes(32))


@defect(errors.DigestError, "", "")
def manifest_bit_flipped(parts: Parts) -> bytes:
    file = bytearray(parts.file)
    file[HEADER.size + 200] ^= 1
    return bytes(file)


# The manifest as JSON.


@defect(errors.ManifestError, "Expecting value", "JSON")
def manifest_empty(parts: Parts) -> bytes:
    return parts.build(b"")


@defect(errors.ManifestError, "Expecting value", "JSON")
def manifest_not_json(parts: Parts) -> bytes:
    return parts.build(b"<xml/>")


@defect(errors.ManifestError, "can't decode byte 0xff", "UTF-8")
def manifest_not_utf8(parts: Parts) -> bytes:
    return parts.build(b'{"name": "\xff"}')


@defect(errors.ManifestError, "can't decode byte", "UTF-8")
def manifest_in_utf16(parts: Parts) -> bytes:
    return parts.build(json.dumps(parts.manifest).encode("utf-16"))


@defect(errors.ManifestError, "BOM", "JSON")
def manifest_with_byte_order_mark(parts: Parts) -> bytes:
    return parts.build(json.dumps(parts.manifest).encode("utf-8-sig"))


@defect(errors.ManifestError, "Extra data", "JSON")
def manifest_of_two_values(parts: Parts) -> bytes:
    return parts.build(json.dumps(parts.manifest).encode() + b"{}")


@defect(errors.ManifestError, "nested too deep", "JSON")
def manifest_nested_too_deep(parts: Parts) -> bytes:
    return parts.text('"tiny"', "[" * 100_000)


@defect(errors.ManifestError, "[]", "an object (Manifest)")
def manifest_is_a_list(parts: Parts) -> bytes:
    return parts.build(b"[]")


@defect(errors.ManifestError, "the key 'name' twice", "JSON")
def key_twice(parts: Parts) -> bytes:
    return parts.text('"name": "tiny"', '"name": "tiny", "name": "huge"')


@defect(errors.ManifestError, "'NaN'", "JSON")
def number_not_a_number(parts: Parts) -> bytes:
    return parts.text('"index": 0', '"index": 0, "sample": {"std": NaN}')


@defect(errors.ManifestError, "'1e999'", "JSON")
def number_infinite(parts: Parts) -> bytes:
    return parts.text('"index": 0', '"index": 0, "sample": {"std": 1e999}')


@defect(errors.ManifestError, "64 bits", "JSON")
def number_over_64_bits(parts: Parts) -> bytes:
    return parts.text('"offset": 0', f'"offset": {1 << 63}')


@defect(errors.ManifestError, "64 bits", "JSON")
def number_of_a_million_digits(parts: Parts) -> bytes:
    return parts.text('"offset": 0', f'"offset": {"9" * 1_000_000}')


@defect(errors.ManifestError, "surrogates not allowed", "UTF-8")
def half_of_a_surrogate_pair(parts: Parts) -> bytes:
    return parts.text('"tiny"', '"\\ud800"')


@defect(errors.ManifestError, "no field 'producer'", "Manifest.producer")
def missing_field(parts: Parts) -> bytes:
    del parts.manifest["producer"]
    return parts.build()


@defect(errors.ManifestError, "7", "str")
def field_of_wrong_type(parts: Parts) -> bytes:
    parts.manifest["name"] = 7
    return parts.build()


@defect(errors.ManifestError, "True", "int")
def bool_where_int(parts: Parts) -> bytes:
    parts.variant["signature"] = True
    return parts.build()


@defect(errors.ManifestError, "0.0", "int")
def float_where_int(parts: Parts) -> bytes:
    parts.variant["signature"] = 0.0
    return parts.build()


@defect(errors.ManifestError, "None", "str")
def null_where_text(parts: Parts) -> bytes:
    parts.variant["id"] = None
    return parts.build()


@defect(errors.ManifestError, "{", "a list")
def object_where_list(parts: Parts) -> bytes:
    parts.manifest["sections"] = {"weights": parts.section("weights")}
    return parts.build()


@defect(errors.ManifestError, "[", "an object")
def list_where_object(parts: Parts) -> bytes:
    parts.variant["files"] = ["model.so"]
    return parts.build()


@defect(errors.TooLargeError, f"{MAX_RECORDS + 1} records", f"at most {MAX_RECORDS}")
def records_nested_too_deep(parts: Parts) -> bytes:
    node = parts.parameter["node"]
    for _ in range(MAX_RECORDS):
        node = {"kind": "branch", "type": "list", "form": "list", "children": [node]}
    parts.parameter["node"] = node
    return parts.build()


@defect(errors.UnknownFeatureError, "requires ['encryption']", "some of")
def unknown_required_feature(parts: Parts) -> bytes:
    parts.manifest["requires"] = ["encryption"]
    return parts.build()


@defect(errors.ManifestError, "'encryption'", "a list")
def required_features_not_in_a_list(parts: Parts) -> bytes:
    parts.manifest["requires"] = "encryption"
    return parts.build()


@defect(errors.ManifestError, "['encryption']", "str")
def required_feature_not_text(parts: Parts) -> bytes:
    parts.manifest["requires"] = [["encryption"]]
    return parts.build()


@defect(errors.ManifestError, "the name 'a\\nb'", "printable")
def name_with_a_newline(parts: Parts) -> bytes:
    parts.manifest["name"] = "a\nb"
    return parts.build()


# The section table.


@defect(errors.ManifestError, "'graph.py' twice", "unique")
def section_name_twice(parts: Parts) -> bytes:
    parts.section("model.so")["name"] = "graph.py"
    return parts.build()


@defect(errors.ManifestError, "section 'model.so'", "one of ['graph.py', 'weights']")
def section_missing(parts: Parts) -> bytes:
    parts.manifest["sections"].remove(parts.section("model.so"))
    return parts.build()


@defect(errors.SectionError, "an end at 640", "within 320 bytes")
def section_outside_file(parts: Parts) -> bytes:
    parts.section("graph.py").update(offset=576, length=64)
    return parts.build()


@defect(errors.SectionError, "bytes 192..256", "to start at 218")
def sections_overlap(parts: Parts) -> bytes:
    parts.section("graph.py")["offset"] = 192
    return parts.build()


@defect(errors.SectionError, "bytes -64..", "to start at 0")
def section_of_negative_offset(parts: Parts) -> bytes:
    parts.section("model.so")["offset"] = -64
    return parts.build()


@defect(errors.SectionError, "bytes 192..191", "to start at")
def section_of_negative_length(parts: Parts) -> bytes:
    parts.section("model.so")["length"] = -1
    return parts.build()


@defect(errors.SectionError, f"an end at {(1 << 64) - 65}", "within 320 bytes")
def section_end_beyond_64_bits(parts: Parts) -> bytes:
    parts.section("graph.py").update(offset=(1 << 63) - 64, length=(1 << 63) - 1)
    return parts.build()


@defect(errors.SectionError, "offset 257", "a multiple of 64")
def section_not_aligned(parts: Parts) -> bytes:
    parts.section("graph.py")["offset"] += 1
    parts.data.insert(256, 0)
    return parts.build()


@defect(errors.SectionError, "offset 64", "a multiple of 4096")
def weights_not_on_a_page(parts: Parts) -> bytes:
    for section in parts.manifest["sections"]:
        section["offset"] += 64
    parts.data[:0] = bytes(64)
    return parts.build()


@defect(errors.SectionError, "1 bytes behind the last section", "none")
def bytes_behind_the_last_section(parts: Parts) -> bytes:
    parts.data.append(0)
    return parts.build()


@defect(errors.SectionError, "encoding 'lzma'", "'raw' or 'zstd'")
def section_of_unknown_encoding(parts: Parts) -> bytes:
    parts.section("graph.py")["encoding"] = "lzma"
    return parts.build()


@defect(errors.SectionError, "size 137", "the length 136")
def raw_section_of_another_size(parts: Parts) -> bytes:
    parts.section("weights")["size"] += 1
    return parts.build()


@defect(errors.TooLargeError, f"size {MAX_UNPACKED + 1}", f"at most {MAX_UNPACKED}")
def unpacked_size_over_limit(parts: Parts) -> bytes:
    parts.section("graph.py")["size"] = MAX_UNPACKED + 1
    return parts.build()


@defect(errors.TooLargeError, "size -1", f"at most {MAX_UNPACKED}")
def unpacked_size_negative(parts: Parts) -> bytes:
    parts.section("graph.py")["size"] = -1
    return parts.build()


@defect(errors.SectionError, "digest ''", "64 hex digits")
def digest_empty(parts: Parts) -> bytes:
    parts.section("graph.py")["digest"] = ""
    return parts.build()


@defect(errors.SectionError, "digest 'md5:", "sha256:")
def digest_of_another_kind(parts: Parts) -> bytes:
    parts.section("graph.py")["digest"] = f"md5:{0:032}"
    return parts.build()


@defect(errors.SectionError, "checksum None", "xxh3_128:")
def weights_without_checksum(parts: Parts) -> bytes:
    del parts.section("weights")["checksum"]
    return parts.build()


@defect(errors.SectionError, "checksum 'xxh3_128:", "none with encoding 'zstd'")
def checksum_in_place_of_a_digest(parts: Parts) -> bytes:
    parts.section("model.so")["checksum"] = xxh3(b"another library")
    return parts.build()


# What the sections hold.


@defect(errors.SectionError, "byte 0x01 at 4095", "zeros", CHECK)
def padding_before_the_data(parts: Parts) -> bytes:
    file = bytearray(parts.build())
    file[PAGE - 1] = 1
    return bytes(file)


@defect(errors.SectionError, "byte 0x01 at 4232", "zeros", CHECK)
def padding_between_sections(parts: Parts) -> bytes:
    parts.data[136] = 1
    return parts.build()


@defect(errors.DigestError, "sha256:", f"sha256:{1:064}", CHECK)
def digest_wrong(parts: Parts) -> bytes:
    parts.section("model.so")["digest"] = f"sha256:{1:064}"
    return parts.build()


@defect(errors.DigestError, "sha256:", f"sha256:{1:064}", CHECK)
def digest_of_the_weights_wrong(parts: Parts) -> bytes:
    parts.section("weights")["digest"] = f"sha256:{1:064}"
    return parts.build()


@defect(errors.DigestError, "xxh3_128:", "xxh3_128:", CHECK)
def weights_bit_flipped(parts: Parts) -> bytes:
    parts.data[130] ^= 8
    return parts.build()


@defect(errors.SectionError, "", "one zstd frame", CHECK)
def zstd_garbage(parts: Parts) -> bytes:
    return parts.last(b"not a zstd frame, but as long as one")


@defect(errors.SectionError, "", "one zstd frame", CHECK)
def zstd_empty(parts: Parts) -> bytes:
    return parts.last(b"")


@defect(errors.SectionError, "", "one zstd frame", CHECK)
def zstd_truncated(parts: Parts) -> bytes:
    return parts.last(parts.stored("graph.py")[:-3])


@defect(errors.SectionError, "unused", "one zstd frame", CHECK)
def zstd_two_frames(parts: Parts) -> bytes:
    return parts.last(parts.stored("graph.py") * 2)


@defect(errors.SectionError, "a zstd frame of 55 bytes", "56", CHECK)
def zstd_of_another_size(parts: Parts) -> bytes:
    parts.section("graph.py")["size"] += 1
    return parts.build()


@defect(errors.SectionError, f"a zstd frame of {(1 << 64) - 1} bytes", "55", CHECK)
def zstd_without_its_size(parts: Parts) -> bytes:
    return parts.last(zstandard.ZstdCompressor(write_content_size=False).compress(b"1" * 55))


@defect(errors.SectionError, "", "one zstd frame", CHECK)
def zstd_bomb(parts: Parts) -> bytes:
    """State 55 bytes, in the table and in the frame, and inflate to 16 MiB."""
    frame = bytearray(zstandard.compress(bytes(16 << 20)))
    assert struct.unpack_from("<I", frame, 6) == (16 << 20,)
    struct.pack_into("<I", frame, 6, parts.section("graph.py")["size"])
    return parts.last(bytes(frame))


@defect(errors.WeightsError, "7 bytes", "at least 8", CHECK)
def weights_shorter_than_a_length(parts: Parts) -> bytes:
    short = bytes(7)
    parts.data[:136] = bytes(136)
    parts.section("weights").update(length=7, size=7, digest=sha256(short), checksum=xxh3(short))
    return parts.build()


@defect(errors.TooLargeError, f"a header of {MAX_HEADER + 1}", f"{MAX_HEADER}", CHECK)
def weights_header_too_long(parts: Parts) -> bytes:
    made = struct.pack("<Q", MAX_HEADER + 1).ljust(136, b"{")
    parts.data[:136] = made
    parts.section("weights").update(digest=sha256(made), checksum=xxh3(made))
    return parts.build()


@defect(errors.WeightsError, "a header of 1000 bytes in a section of 136", "inside", CHECK)
def weights_header_beyond_section(parts: Parts) -> bytes:
    made = struct.pack("<Q", 1000).ljust(136, b" ")
    parts.data[:136] = made
    parts.section("weights").update(digest=sha256(made), checksum=xxh3(made))
    return parts.build()


@defect(errors.WeightsError, "Expecting", "a safetensors header", CHECK)
def weights_header_not_json(parts: Parts) -> bytes:
    return parts.weights(b"{scale: 1}")


@defect(errors.WeightsError, "nested too deep", "a safetensors header", CHECK)
def weights_header_nested_too_deep(parts: Parts) -> bytes:
    return parts.weights(b"[" * 100_000)


@defect(errors.WeightsError, "[]", "a safetensors header", CHECK)
def weights_header_is_a_list(parts: Parts) -> bytes:
    return parts.weights([])


SCALE: Final[dict[str, Any]] = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@defect(errors.WeightsError, "the key 'scale' twice", "a safetensors header", CHECK)
def weights_header_key_twice(parts: Parts) -> bytes:
    item = json.dumps(SCALE)
    return parts.weights(f'{{"scale": {item}, "scale": {item}}}'.encode())


@defect(errors.WeightsError, "dtype 'F33'", "F32", CHECK)
def weights_dtype_unknown(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "dtype": "F33"}})


@defect(errors.WeightsError, "dtype ['F32']", "F32", CHECK)
def weights_dtype_not_text(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "dtype": ["F32"]}})


@defect(errors.WeightsError, "dtype None", "F32", CHECK)
def weights_tensor_not_an_object(parts: Parts) -> bytes:
    return parts.weights({"scale": [0, 8]})


@defect(errors.WeightsError, "bytes 66..74", "66..78 for float32 [3]", CHECK)
def weights_shape_mismatch(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "shape": [3]}})


@defect(errors.WeightsError, "shape [-2]", "at least 0", CHECK)
def weights_shape_negative(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "shape": [-2]}})


@defect(errors.WeightsError, "shape '2'", "at least 0", CHECK)
def weights_shape_not_a_list(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "shape": "2"}})


@defect(errors.WeightsError, "shape [0, 4611686018427387904", "a product below", CHECK)
def weights_shape_beyond_64_bits(parts: Parts) -> bytes:
    shape = [0, 1 << 62, 1 << 62]
    return parts.weights({"scale": {**SCALE, "shape": shape, "data_offsets": [0, 0]}}, b"")


@defect(errors.WeightsError, "shape [1, 1", "at most 64 sizes", CHECK)
def weights_shape_of_too_many_axes(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "shape": [1] * 65, "data_offsets": [0, 4]}}, bytes(4))


@defect(errors.WeightsError, "data_offsets [8]", "begins and ends", CHECK)
def weights_offsets_missing(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "data_offsets": [8]}})


@defect(errors.WeightsError, "bytes", "for float32 [2]", CHECK)
def weights_offsets_backwards(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "data_offsets": [8, 0]}})


@defect(errors.WeightsError, "bytes", "for float32 [2]", CHECK)
def weights_with_a_gap(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "data_offsets": [4, 12]}}, bytes(12))


@defect(errors.WeightsError, "bytes", "for float32 [2]", CHECK)
def weights_overlap(parts: Parts) -> bytes:
    return parts.weights({"scale": SCALE, "tied": SCALE})


@defect(errors.WeightsError, "tensors up to byte", "up to the end at", CHECK)
def weights_with_bytes_behind_them(parts: Parts) -> bytes:
    return parts.weights({"scale": SCALE}, bytes(9))


@defect(errors.WeightsError, "no such tensor", "the manifest lists", CHECK)
def weights_tensor_missing(parts: Parts) -> bytes:
    return parts.weights({}, b"")


@defect(errors.WeightsError, "a tensor that is not listed", "the manifest lists", CHECK)
def weights_tensor_not_listed(parts: Parts) -> bytes:
    extra = {"dtype": "U8", "shape": [1], "data_offsets": [8, 9]}
    return parts.weights({"scale": SCALE, "extra": extra}, bytes(9))


@defect(errors.WeightsError, "int32 (2,)", "float32 (2,)", CHECK)
def weights_of_another_dtype(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "dtype": "I32"}})


@defect(errors.WeightsError, "float32 (2, 1)", "float32 (2,)", CHECK)
def weights_of_another_shape(parts: Parts) -> bytes:
    return parts.weights({"scale": {**SCALE, "shape": [2, 1]}})


@defect(errors.WeightsError, "a start at byte 66", "a multiple of 4", CHECK)
def weights_not_aligned(parts: Parts) -> bytes:
    return parts.weights(json.dumps({"scale": SCALE}, separators=(",", ":")).encode())


# The weights in the manifest.


@defect(errors.ManifestError, "section 'heavy'", "one of ['graph.py'")
def weights_section_missing(parts: Parts) -> bytes:
    parts.manifest["weights"]["section"] = "heavy"
    return parts.build()


@defect(errors.SectionError, "encoding 'zstd'", "'raw', to map it")
def weights_compressed(parts: Parts) -> bytes:
    parts.manifest["weights"]["section"] = "graph.py"
    return parts.build()


def external(parts: Parts, **changes: Any) -> bytes:
    """Return a file whose weights are in another one, with changes to the record of that."""
    digests = {"digest": f"sha256:{0:064}", "checksum": f"xxh3_128:{0:032}"}
    record = {"file": "tiny.weights.safetensors", "tensors": {"scale": digests}, **changes}
    del parts.manifest["weights"]["section"]
    parts.manifest["weights"]["external"] = record
    parts.manifest["requires"] = ["external_weights"]
    return parts.build()


@defect(errors.ManifestError, "neither", "one of section and external")
def weights_nowhere(parts: Parts) -> bytes:
    del parts.manifest["weights"]["section"]
    return parts.build()


@defect(errors.ManifestError, "both", "one of section and external")
def weights_in_two_places(parts: Parts) -> bytes:
    external(parts)
    parts.manifest["weights"]["section"] = "weights"
    return parts.build()


@defect(errors.ManifestError, "[]", "'external_weights' among requires")
def external_weights_not_required(parts: Parts) -> bytes:
    external(parts)
    parts.manifest["requires"] = []
    return parts.build()


@defect(
    errors.ManifestError, "'../else.safetensors'", "the name of a file in the artifact's folder"
)
def external_weights_in_another_folder(parts: Parts) -> bytes:
    return external(parts, file="../else.safetensors")


@defect(errors.ManifestError, "'..'", "the name of a file in the artifact's folder")
def external_weights_in_no_file(parts: Parts) -> bytes:
    return external(parts, file="..")


@defect(errors.ManifestError, "no digests", "digests of each stored tensor")
def external_weight_without_digests(parts: Parts) -> bytes:
    return external(parts, tensors={})


@defect(errors.ManifestError, "a tensor that is not stored", "digests of each stored tensor")
def external_weight_that_is_an_alias(parts: Parts) -> bytes:
    external(parts)
    tensors = parts.manifest["weights"]["external"]["tensors"]
    tensors["tied"] = tensors["scale"]
    return parts.build()


@defect(errors.ManifestError, "digest 'sha256:0'", "64 hex digits")
def external_weight_with_a_short_digest(parts: Parts) -> bytes:
    external(parts)
    parts.manifest["weights"]["external"]["tensors"]["scale"]["digest"] = "sha256:0"
    return parts.build()


@defect(errors.ManifestError, "checksum 'sha256:", "xxh3_128: and 32 hex digits")
def external_weight_with_another_checksum(parts: Parts) -> bytes:
    external(parts)
    digests = parts.manifest["weights"]["external"]["tensors"]["scale"]
    digests["checksum"] = digests["digest"]
    return parts.build()


@defect(errors.ManifestError, "'tied' as an alias of 'nothing'", "two weights")
def alias_of_nothing(parts: Parts) -> bytes:
    parts.manifest["weights"]["aliases"]["tied"] = "nothing"
    return parts.build()


@defect(errors.ManifestError, "'tied' as an alias of 'tied'", "the second one stored")
def alias_of_itself(parts: Parts) -> bytes:
    parts.manifest["weights"]["aliases"]["tied"] = "tied"
    return parts.build()


@defect(errors.ManifestError, "'tied' as an alias of 'scale'", "two weights that are alike")
def alias_of_another_shape(parts: Parts) -> bytes:
    parts.manifest["weights"]["tensors"]["tied"]["shape"] = [1, 2]
    return parts.build()


@defect(errors.ManifestError, "dtype complex128", "one of bool")
def weight_that_cannot_be_stored(parts: Parts) -> bytes:
    parts.manifest["weights"]["tensors"]["tied"]["dtype"] = "complex128"
    return parts.build()


@defect(errors.ManifestError, "'1,0'", "an order of 1 axes")
def weight_of_another_rank_than_its_layout(parts: Parts) -> bytes:
    parts.manifest["weights"]["tensors"]["tied"]["layout"] = "1,0"
    return parts.build()


# Packed weights.

LINEAR: Final = {"kind": "linear"}
CONVOLUTION: Final = {
    "kind": "convolution",
    "padding": [1, 1],
    "stride": [1, 1],
    "dilation": [1, 1],
    "groups": 2,
    "input": [1, 8, 5, 5],
}


def packed(
    parts: Parts, shape: list[int], packing: Mapping[str, object], slot: str = "c0"
) -> bytes:
    """Give the weight a shape and the variant a packed one of it, right but for these."""
    for name in ("scale", "tied"):
        parts.manifest["weights"]["tensors"][name]["shape"] = shape
    guard = {"subject": "@host", "fact": "onednn", "expected": True}
    if not any(item["fact"] == "onednn" for item in parts.variant["guards"]):
        parts.variant["guards"].append(guard)
    parts.variant["packed"] = {slot: dict(packing)}
    parts.manifest["requires"] = ["packed_weights"]
    return parts.build()


def entry(parts: Parts, name: str, *requires: str) -> bytes:
    """Make the variant one of a method."""
    parts.variant["entry"] = name
    parts.manifest["requires"] = list(requires)
    return parts.build()


@defect(errors.ManifestError, "the entry '_decode'", "the name of a public method")
def entry_that_is_private(parts: Parts) -> bytes:
    return entry(parts, "_decode", "methods")


@defect(errors.ManifestError, "the entry 'de code'", "the name of a public method")
def entry_that_is_no_name(parts: Parts) -> bytes:
    return entry(parts, "de code", "methods")


@defect(errors.ManifestError, "the entry 'stats'", "another name: a loaded model has stats itself")
def entry_that_is_taken(parts: Parts) -> bytes:
    return entry(parts, "stats", "methods")


@defect(errors.ManifestError, "[]", "'methods' among requires")
def methods_not_required(parts: Parts) -> bytes:
    return entry(parts, "decode")


@defect(errors.ManifestError, "kind 'sparse'", "one of linear, convolution, blocks")
def packed_in_another_way(parts: Parts) -> bytes:
    return packed(parts, [2, 3], {"kind": "sparse"})


@defect(errors.ManifestError, "linear packed as 'int8'", "float32 or bfloat16")
def packed_as_another_dtype(parts: Parts) -> bytes:
    return packed(parts, [2, 3], {**LINEAR, "dtype": "int8"})


@defect(errors.ManifestError, "blocks packed as 'bfloat16'", "float32")
def packed_in_blocks_and_rounded(parts: Parts) -> bytes:
    return packed(parts, [2, 3], {"kind": "blocks", "block": 16, "dtype": "bfloat16"})


@defect(errors.ManifestError, "fp32_precision 'tf32'", "ieee or bf16")
def variant_of_another_precision(parts: Parts) -> bytes:
    parts.variant["fp32_precision"] = "tf32"
    return parts.build()


@defect(errors.ManifestError, "[]", "'packed_weights' among requires")
def packed_weights_not_required(parts: Parts) -> bytes:
    packed(parts, [2, 3], LINEAR)
    parts.manifest["requires"] = []
    return parts.build()


@defect(errors.ManifestError, "no guard on host.onednn", "one")
def packed_weights_without_a_guard(parts: Parts) -> bytes:
    packed(parts, [2, 3], LINEAR)
    parts.variant["guards"].pop()
    return parts.build()


@defect(errors.ManifestError, "slot 'c7'", "a slot of a weight that stays as it is")
def packed_slot_that_is_not_there(parts: Parts) -> bytes:
    return packed(parts, [2, 3], LINEAR, slot="c7")


@defect(errors.ManifestError, "slot 'c0'", "a slot of a weight that stays as it is")
def packed_weight_that_is_written_to(parts: Parts) -> bytes:
    parts.variant["state"] = ["scale"]
    return packed(parts, [2, 3], LINEAR)


@defect(errors.ManifestError, "a weight of int8", "one of float32")
def packed_weight_of_another_dtype(parts: Parts) -> bytes:
    for name in ("scale", "tied"):
        parts.manifest["weights"]["tensors"][name]["dtype"] = "int8"
    return packed(parts, [2, 3], LINEAR)


@defect(errors.ManifestError, "a weight of shape [2, 3, 4] for 0 rows", "2 axes, for 0 or 1 rows")
def packed_linear_of_three_axes(parts: Parts) -> bytes:
    return packed(parts, [2, 3, 4], LINEAR)


@defect(errors.ManifestError, "in blocks of 0", "2 axes, in blocks of 1 to 1024")
def packed_blocks_of_no_size(parts: Parts) -> bytes:
    return packed(parts, [2, 3], {"kind": "blocks"})


@defect(errors.ManifestError, "a weight of shape [2, 3] for 8 rows", "2 axes, for 0 or 1 rows")
def packed_linear_for_eight_rows(parts: Parts) -> bytes:
    return packed(parts, [2, 3], {**LINEAR, "rows": 8})


@defect(
    errors.ManifestError,
    "padding, stride and dilation [[1], [1, 1], [1, 1]]",
    "for each of 2 axes, of 2 or 3",
)
def packed_convolution_without_all_paddings(parts: Parts) -> bytes:
    return packed(parts, [4, 4, 3, 3], {**CONVOLUTION, "padding": [1]})


@defect(
    errors.ManifestError,
    "padding, stride and dilation [[1, 1], [0, 1], [1, 1]]",
    "for each of 2 axes, of 2 or 3",
)
def packed_convolution_that_does_not_move(parts: Parts) -> bytes:
    return packed(parts, [4, 4, 3, 3], {**CONVOLUTION, "stride": [0, 1]})


@defect(errors.ManifestError, "input [1, 9, 5, 5] in 2 groups", "for a weight [4, 4, 3, 3]")
def packed_convolution_of_other_channels(parts: Parts) -> bytes:
    return packed(parts, [4, 4, 3, 3], {**CONVOLUTION, "input": [1, 9, 5, 5]})


# A part of a build.


def part(parts: Parts, requires: tuple[str, ...] = ("shard",), **changed: object) -> bytes:
    """Make the file the second of two parts, right but for these fields."""
    ids = [v["id"] for v in parts.manifest["variants"] if v["form"] == "library"]
    jobs = [name for id in ids for name in (f"before {id}", id)]
    shard = {"index": 2, "count": 2, "jobs": jobs, "origin": {"spec": "sha256:0"}}
    parts.manifest["shard"] = {**shard, **changed}
    parts.manifest["requires"] = list(requires)
    return parts.build()


@defect(errors.ManifestError, "part 3 of 2", "part 1 to count of count")
def part_beyond_the_last(parts: Parts) -> bytes:
    return part(parts, index=3)


@defect(errors.ManifestError, "part 0 of 2", "part 1 to count of count")
def part_before_the_first(parts: Parts) -> bytes:
    return part(parts, index=0)


@defect(errors.ManifestError, "an id twice", "unique ids")
def part_with_a_job_twice(parts: Parts) -> bytes:
    return part(parts, jobs=["one", "one"])


@defect(errors.ManifestError, "''", "printable text")
def part_with_a_job_without_a_name(parts: Parts) -> bytes:
    return part(parts, jobs=["one", ""])


@defect(errors.ManifestError, "['batch=", "those of part 2 of 2: ['other']")
def part_with_other_jobs(parts: Parts) -> bytes:
    return part(parts, jobs=["one", "other"])


@defect(errors.ManifestError, "[]", "'shard' among requires")
def part_that_an_old_reader_would_serve(parts: Parts) -> bytes:
    return part(parts, requires=())


# The tensor check.


def tensor_check(parts: Parts, section: str = "model.so", **changed: object) -> bytes:
    """Give the file an extension that is right but for these fields of its guards, by fact."""
    expected = {"python": "cpython-311", "torch": "2.13.0", "os": "linux", "arch": "x86_64"}
    guards = [
        {"subject": "@host", "fact": name, "expected": value} for name, value in expected.items()
    ]
    kept = [{**guard, **changed} if guard["fact"] == "python" else guard for guard in guards]
    parts.manifest["tensor_check"] = {"section": section, "guards": kept}
    return parts.build()


@defect(errors.ManifestError, "section 'nowhere'", "one of ['graph.py'")
def extension_section_missing(parts: Parts) -> bytes:
    return tensor_check(parts, "nowhere")


@defect(errors.ManifestError, "no guard on host.python", "one in each extension")
def extension_for_any_python(parts: Parts) -> bytes:
    return tensor_check(parts, fact="glibc", expected="2.34")


@defect(errors.ManifestError, "subject '@process'", "@host")
def extension_with_a_guard_on_the_process(parts: Parts) -> bytes:
    return tensor_check(parts, subject="@process")


@defect(errors.ManifestError, "subject '@host'", "@host")
def extension_with_a_fact_of_the_process(parts: Parts) -> bytes:
    return tensor_check(parts, fact="grad_mode", expected=False)


@defect(errors.UnknownFeatureError, "a guard on 'moon'", "one of")
def extension_with_an_unknown_fact(parts: Parts) -> bytes:
    return tensor_check(parts, fact="moon")


@defect(errors.ManifestError, "311", "a string")
def extension_with_a_number_for_a_name(parts: Parts) -> bytes:
    return tensor_check(parts, expected=311)


@defect(errors.TooLargeError, f"{MAX_GUARDS + 4} guards", f"at most {MAX_GUARDS}")
def extension_with_too_many_guards(parts: Parts) -> bytes:
    tensor_check(parts)
    guards = parts.manifest["tensor_check"]["guards"]
    guards += guards[:1] * MAX_GUARDS
    return parts.build()


# Signatures.


@defect(errors.ManifestError, "'x: print(1)'", "a Python identifier")
def parameter_with_code_for_a_name(parts: Parts) -> bytes:
    parts.parameter["name"] = "x: print(1)"
    return parts.build()


@defect(errors.ManifestError, "'lambda'", "a Python identifier")
def parameter_with_a_keyword_for_a_name(parts: Parts) -> bytes:
    parts.parameter["name"] = "lambda"
    return parts.build()


@defect(errors.ManifestError, "duplicate parameter name: 'x'", "a Python function")
def parameter_twice(parts: Parts) -> bytes:
    parts.signature["parameters"].append({"name": "x", "form": "keyword_only"})
    return parts.build()


@defect(errors.ManifestError, "wrong parameter order", "a Python function")
def parameters_out_of_order(parts: Parts) -> bytes:
    parts.signature["parameters"].append({"name": "y", "form": "positional_only"})
    return parts.build()


@defect(errors.ManifestError, "'POSITIONAL_ONLY'", "one of positional_only")
def parameter_of_unknown_form(parts: Parts) -> bytes:
    parts.parameter["form"] = "POSITIONAL_ONLY"
    return parts.build()


@defect(errors.ManifestError, "another var_positional", "a tuple")
def starred_parameter_of_a_tensor(parts: Parts) -> bytes:
    parts.parameter["form"] = "var_positional"
    return parts.build()


@defect(errors.ManifestError, "an input of kind 'input'", "tensor, value or branch")
def input_that_is_an_output(parts: Parts) -> bytes:
    node = {"kind": "input", "index": 0}
    parts.signature["parameters"].append({"name": "y", "form": "keyword_only", "node": node})
    return parts.build()


@defect(errors.ManifestError, "an object of kind 'sparse'", "an object of kind 'tensor'")
def node_of_unknown_kind(parts: Parts) -> bytes:
    parts.parameter["node"]["kind"] = "sparse"
    return parts.build()


@defect(errors.ManifestError, "{'dtype'", "an object of kind 'tensor'")
def node_without_a_kind(parts: Parts) -> bytes:
    del parts.parameter["node"]["kind"]
    return parts.build()


@defect(errors.ManifestError, "tensor inputs out of order", "0, 1, 2")
def tensors_out_of_order(parts: Parts) -> bytes:
    parts.parameter["node"]["index"] = 1
    return parts.build()


@defect(errors.ManifestError, "dtype 'nn'", "one of torch's")
def tensor_of_unknown_dtype(parts: Parts) -> bytes:
    parts.parameter["node"]["dtype"] = "nn"
    return parts.build()


@defect(errors.ManifestError, "shape [-1]", "no negative size")
def tensor_of_negative_size(parts: Parts) -> bytes:
    parts.parameter["node"]["shape"] = [-1]
    return parts.build()


@defect(errors.ManifestError, "100 axes", "at most 64")
def tensor_of_too_many_axes(parts: Parts) -> bytes:
    parts.parameter["node"]["shape"] = [1] * 100
    return parts.build()


@defect(errors.ManifestError, "'0,1'", "an order of 1 axes")
def tensor_of_another_rank_than_its_layout(parts: Parts) -> bytes:
    parts.parameter["node"]["layout"] = "0,1"
    return parts.build()


@defect(errors.ManifestError, "Sample(low=2, high=1", "low <= high")
def sample_from_an_empty_range(parts: Parts) -> bytes:
    parts.parameter["node"]["sample"] = {"low": 2, "high": 1}
    return parts.build()


@defect(errors.ManifestError, "'int' '0x10'", "None, bool, int")
def value_that_does_not_read(parts: Parts) -> bytes:
    parts.parameter["default"] = {"kind": "value", "type": "int", "text": "0x10"}
    return parts.build()


@defect(errors.ManifestError, "'bytes'", "None, bool, int")
def value_of_unknown_type(parts: Parts) -> bytes:
    parts.parameter["default"] = {"kind": "value", "type": "bytes", "text": "b''"}
    return parts.build()


@defect(errors.ManifestError, "'1_0'", "10")
def value_in_two_spellings(parts: Parts) -> bytes:
    parts.parameter["default"] = {"kind": "value", "type": "int", "text": "1_0"}
    return parts.build()


@defect(errors.ManifestError, "'str' '[[", "None, bool, int")
def value_nested_too_deep(parts: Parts) -> bytes:
    parts.parameter["default"] = {"kind": "value", "type": "str", "text": "[" * 100_000}
    return parts.build()


def branch(parts: Parts, **fields: object) -> bytes:
    """Put the input into a container with these fields."""
    node = {"kind": "branch", "children": [copy.deepcopy(parts.parameter["node"])], **fields}
    parts.parameter["node"] = node
    return parts.build()


@defect(errors.UnknownFeatureError, "a container of form 'set'", "one of list")
def container_of_unknown_form(parts: Parts) -> bytes:
    return branch(parts, type="set", form="set")


@defect(errors.ManifestError, "type 'list'", "'tuple' or module:class")
def container_of_another_form_than_its_type(parts: Parts) -> bytes:
    return branch(parts, type="list", form="tuple")


@defect(errors.ManifestError, "type 'os.system(\"\")'", "module:class")
def container_with_code_for_a_type(parts: Parts) -> bytes:
    return branch(parts, type='os.system("")', form="tuple")


@defect(errors.ManifestError, "0 keys for 1 items", "one for each")
def container_with_too_few_keys(parts: Parts) -> bytes:
    return branch(parts, type="dict", form="dict")


@defect(errors.ManifestError, "1 keys for 1 items", "none in a list")
def container_with_keys_in_a_list(parts: Parts) -> bytes:
    return branch(parts, type="list", form="list", keys=["a"])


@defect(errors.ManifestError, "1 keys for 2 items", "one for each")
def container_with_a_key_twice(parts: Parts) -> bytes:
    node = parts.parameter["node"]
    return branch(parts, type="dict", form="dict", keys=["a", "a"], children=[node, node])


@defect(errors.ManifestError, "key '#007'", "'#7'")
def container_with_a_key_in_two_spellings(parts: Parts) -> bytes:
    return branch(parts, type="dict", form="dict", keys=["#007"])


@defect(errors.ManifestError, "field 'x.y'", "a Python identifier")
def container_with_code_for_a_field(parts: Parts) -> bytes:
    return branch(parts, type="m:C", form="dataclass", keys=["x.y"])


@defect(errors.ManifestError, "'batch-size'", "an ASCII identifier")
def dim_not_an_identifier(parts: Parts) -> bytes:
    parts.signature["symbols"][0]["name"] = "batch-size"
    return parts.build()


@defect(errors.ManifestError, "'min'", "neither min nor max")
def dim_named_like_a_function(parts: Parts) -> bytes:
    parts.signature["symbols"][0]["name"] = "min"
    return parts.build()


@defect(errors.ManifestError, "'batch'", "once")
def dim_twice(parts: Parts) -> bytes:
    parts.signature["symbols"] *= 2
    return parts.build()


@defect(errors.ManifestError, "axis 1 of tensor 0", "an axis that is there")
def dim_of_no_axis(parts: Parts) -> bytes:
    parts.signature["symbols"][0]["axis"] = 1
    return parts.build()


@defect(errors.ManifestError, "axis 0 of tensor -1", "an axis that is there")
def dim_of_no_tensor(parts: Parts) -> bytes:
    parts.signature["symbols"][0]["input"] = -1
    return parts.build()


@defect(errors.ManifestError, "scale 0", "at least 1")
def dim_of_scale_zero(parts: Parts) -> bytes:
    parts.signature["symbols"][0]["scale"] = 0
    return parts.build()


# Variants.


@defect(errors.ManifestError, "none", "at least one")
def no_variants(parts: Parts) -> bytes:
    parts.manifest["variants"] = []
    return parts.build()


@defect(errors.ManifestError, "twice", "unique")
def variant_twice(parts: Parts) -> bytes:
    parts.manifest["variants"] *= 2
    return parts.build()


@defect(errors.ManifestError, "id ''", "printable")
def variant_without_a_name(parts: Parts) -> bytes:
    parts.variant["id"] = ""
    return parts.build()


@defect(errors.UnknownFeatureError, "form 'wasm'", "one of library")
def variant_of_unknown_form(parts: Parts) -> bytes:
    parts.variant["form"] = "wasm"
    return parts.build()


@defect(errors.ManifestError, "signature -1", "one of 1")
def variant_of_no_signature(parts: Parts) -> bytes:
    parts.variant["signature"] = -1
    return parts.build()


@defect(errors.ManifestError, "no such file", "model.so")
def library_without_a_library(parts: Parts) -> bytes:
    parts.variant["files"] = {"model.dll": "model.so"}
    return parts.build()


@defect(errors.ManifestError, "file '../../.profile'", "plain file names")
def file_name_with_a_path(parts: Parts) -> bytes:
    parts.variant["files"]["../../.profile"] = "graph.py"
    return parts.build()


@defect(errors.ManifestError, "no target", "a target for a library")
def library_without_a_target(parts: Parts) -> bytes:
    del parts.variant["target"]
    return parts.build()


@defect(errors.ManifestError, "device 'cuda'", "as its target")
def library_for_another_device_than_its_target(parts: Parts) -> bytes:
    parts.variant["device"] = "cuda"
    return parts.build()


@defect(errors.ManifestError, "device 'tpu'", "'cpu' or 'cuda'")
def unknown_device(parts: Parts) -> bytes:
    parts.variant["device"] = parts.variant["target"]["device"] = "tpu"
    return parts.build()


@defect(errors.ManifestError, "'cpu' in the guard", "'cuda', the variant's device")
def guard_on_another_device(parts: Parts) -> bytes:
    parts.variant["device"] = parts.variant["target"]["device"] = "cuda"
    parts.variant["guards"].append({"subject": "@host", "fact": "gpu", "expected": "sm_90"})
    return parts.build()


@defect(errors.ManifestError, "no guard on host.gpu", "one")
def cuda_library_for_any_gpu(parts: Parts) -> bytes:
    parts.variant["device"] = parts.variant["target"]["device"] = "cuda"
    return parts.build()


@defect(errors.ManifestError, "a CUDA graph on device 'cpu'", "cuda")
def cuda_graph_on_the_cpu(parts: Parts) -> bytes:
    parts.variant["cuda_graph"] = True
    return parts.build()


@defect(errors.ManifestError, "weight 'bias'", "one of ['scale', 'tied']")
def constant_without_a_weight(parts: Parts) -> bytes:
    parts.variant["constants"]["c1"] = "bias"
    return parts.build()


@defect(errors.ManifestError, "section 'source'", "one of ['graph.py'")
def reference_missing(parts: Parts) -> bytes:
    parts.variant["reference"] = "source"
    return parts.build()


@defect(errors.ManifestError, "'batch' in 8..1", "min <= max")
def bucket_of_an_empty_range(parts: Parts) -> bytes:
    parts.variant["bucket"]["dims"]["batch"] = {"min": 8, "max": 1}
    return parts.build()


@defect(errors.ManifestError, "'batch' in -1..-1", "0 <= min")
def bucket_of_a_negative_size(parts: Parts) -> bytes:
    parts.variant["bucket"]["dims"]["batch"] = -1
    return parts.build()


@defect(errors.ManifestError, "nothing for ['batch']", "a size or a range")
def bucket_without_a_dim(parts: Parts) -> bytes:
    parts.variant["bucket"]["dims"] = {}
    return parts.build()


@defect(errors.ManifestError, "input 1", "one of 1 input tensors")
def output_of_no_input(parts: Parts) -> bytes:
    parts.variant["outputs"] = {"kind": "input", "index": 1}
    return parts.build()


@defect(errors.ManifestError, "index -1", "0 or more")
def output_of_negative_index(parts: Parts) -> bytes:
    parts.variant["outputs"]["index"] = -1
    return parts.build()


# Guards and expressions.


@defect(errors.UnknownFeatureError, "a guard on 'phase_of_the_moon'", "one of type")
def unknown_guard_fact(parts: Parts) -> bytes:
    parts.guard("neg")["fact"] = "phase_of_the_moon"
    return parts.build()


@defect(errors.ManifestError, "'yes'", "true or false")
def guard_expected_of_wrong_form(parts: Parts) -> bytes:
    parts.guard("neg")["expected"] = "yes"
    return parts.build()


@defect(errors.ManifestError, "'min': None", "an integer, an expression")
def guard_of_a_range_without_a_min(parts: Parts) -> bytes:
    parts.guard("size")["expected"] = {"min": None, "max": 8}
    return parts.build()


@defect(errors.ManifestError, "{'max': 1, 'min': 8}", "an integer, an expression")
def guard_of_an_empty_range(parts: Parts) -> bytes:
    parts.guard("size")["expected"] = {"min": 8, "max": 1}
    return parts.build()


@defect(errors.ManifestError, "[[[...]]]", "a string")
def guard_expected_nested_deep(parts: Parts) -> bytes:
    nested: list[Any] = []
    for _ in range(150):
        nested = [nested]
    parts.guard("device")["expected"] = nested
    return parts.build()


@defect(errors.ManifestError, "subject 'y'", "a fact of tensor")
def guard_on_unknown_input(parts: Parts) -> bytes:
    parts.guard("neg")["subject"] = "y"
    return parts.build()


@defect(errors.ManifestError, "subject 'tensor'", "a fact of tensor")
def guard_on_a_kind_of_subject(parts: Parts) -> bytes:
    parts.guard("neg")["subject"] = "tensor"
    return parts.build()


@defect(errors.ManifestError, "subject '@host'", "a fact of tensor")
def guard_of_an_input_on_the_host(parts: Parts) -> bytes:
    parts.guard("neg")["subject"] = "@host"
    return parts.build()


@defect(errors.ManifestError, "subject 'x'", "a fact of @host")
def guard_of_the_host_on_an_input(parts: Parts) -> bytes:
    parts.guard("torch")["subject"] = "x"
    return parts.build()


@defect(errors.ManifestError, "axis None for 'size'", "an axis with a size")
def guard_of_a_size_without_an_axis(parts: Parts) -> bytes:
    del parts.guard("size")["axis"]
    return parts.build()


@defect(errors.ManifestError, "axis 1", "one of 1 axes")
def guard_of_a_size_of_no_axis(parts: Parts) -> bytes:
    parts.guard("size")["axis"] = 1
    return parts.build()


@defect(errors.ManifestError, "'int64' in the guard", "'float32', as in the signature")
def guard_against_its_signature(parts: Parts) -> bytes:
    parts.guard("dtype")["expected"] = "int64"
    return parts.build()


@defect(errors.ManifestError, "'1,0'", "an order of 1 axes")
def guard_of_a_layout_of_another_rank(parts: Parts) -> bytes:
    parts.guard("layout")["expected"] = "1,0"
    return parts.build()


@defect(errors.ManifestError, "'2.x'", "a version")
def guard_of_a_version_without_numbers(parts: Parts) -> bytes:
    guard = {"subject": "@host", "fact": "glibc", "expected": "2.x"}
    parts.variant["guards"].append(guard)
    return parts.build()


@defect(errors.ManifestError, "no guard on x.dtype", "one in each variant of form 'library'")
def guard_missing(parts: Parts) -> bytes:
    parts.variant["guards"].remove(parts.guard("dtype"))
    return parts.build()


@defect(errors.ManifestError, "no guard on host.torch", "one in each variant")
def guard_of_the_host_missing(parts: Parts) -> bytes:
    parts.variant["guards"].remove(parts.guard("torch"))
    return parts.build()


def relation(parts: Parts, text: str) -> bytes:
    """Add a guard that is this expression."""
    parts.variant["guards"].append({"subject": "@dims", "fact": "relation", "expected": text})
    return parts.build()


@defect(errors.ManifestError, "__import__", "integers, names")
def expression_with_call(parts: Parts) -> bytes:
    return relation(parts, "__import__('os').getpid() > 0")


@defect(errors.ManifestError, "'batch.real > 0'", "integers, names")
def expression_with_attribute(parts: Parts) -> bytes:
    return relation(parts, "batch.real > 0")


@defect(errors.ManifestError, "'9**9**9 > batch'", "integers, names")
def expression_with_power(parts: Parts) -> bytes:
    return relation(parts, "9**9**9 > batch")


@defect(errors.ManifestError, "'min(batch) > 0'", "integers, names")
def expression_with_one_argument(parts: Parts) -> bytes:
    return relation(parts, "min(batch) > 0")


@defect(errors.TooLargeError, f"{MAX_LENGTH + 1} characters", f"at most {MAX_LENGTH}")
def expression_too_long(parts: Parts) -> bytes:
    return relation(parts, "batch > 0".ljust(MAX_LENGTH + 1))


@defect(errors.ManifestError, "'batch+batch+", "integers, names")
def expression_nested_too_deep(parts: Parts) -> bytes:
    return relation(parts, f"{'batch+' * (MAX_DEPTH + 1)}1 > 0")


@defect(errors.ManifestError, "'((((", "integers, names")
def expression_of_parentheses(parts: Parts) -> bytes:
    return relation(parts, "(" * MAX_LENGTH)


@defect(errors.ManifestError, "'seq > 0', which reads ['seq']", "dims ['batch']")
def expression_of_unknown_dim(parts: Parts) -> bytes:
    return relation(parts, "seq > 0")


@defect(errors.ManifestError, "the expression 'batch + 1'", "true or false")
def expression_of_a_number_for_a_relation(parts: Parts) -> bytes:
    return relation(parts, "batch + 1")


@defect(errors.ManifestError, "the expression 'batch > 1'", "a number")
def expression_of_a_relation_for_a_size(parts: Parts) -> bytes:
    parts.variant["outputs"]["shape"] = ["batch > 1"]
    return parts.build()
