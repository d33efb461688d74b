"""The artifact's table of contents."""

import gc
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from . import (
    entries,
    extension,
    external,
    packing,
    shards,
    signature_check,
    strict_json,
    variant_check,
    weights,
)
from .errors import FormatError, ManifestError, SectionError, TooLargeError, UnknownFeatureError
from .extension import Extension
from .guard import HOST
from .record import decode, encode
from .section import RAW, Section
from .shards import Shard
from .signature import Signature
from .strict_json import show
from .text import is_label
from .variant import LIBRARY, Variant
from .version import FEATURES
from .weights import Weight, Weights

__all__ = ["Manifest", "Weight", "Weights", "check"]

MAX_SECTIONS: Final = 1 << 18
MAX_VARIANTS: Final = 1 << 16
MAX_WEIGHTS: Final = 1 << 20
LARGE: Final = 1 << 20  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One output of one variant at one size, as it was found when the artifact was verified.

    Attributes:
        variant: the variant's id.
        sizes: the call's sizes, in words.
        output: the path of the output.
        error: largest absolute difference to float64, to three digits.
        eager: the same of eager.
        allowed: what the rule allowed.
    """

    variant: str
    sizes: str
    output: str
    error: float = 0.0
    eager: float = 0.0
    allowed: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Everything a reader needs before it touches a section.

    Attributes:
        name: of the model.
        producer: what wrote the file: "tcbuild 0.1.0".
        signatures: what the variants take.
        variants: the compiled programs, in the order in which they were planned.
        sections: where the bytes are.
        weights: where the weights are; None where the model has none.
        requires: features that a reader must know (see version.py).
        environment: what the artifact was built with, by name: torch, compiler, ...
        frozen: the plain Python values that the model's modules held as attributes, and the globals and
            variables of closures that the code of their `forward` reads, as text: what was read of them
            is a constant of the compiled programs.
        checks: what the verification of the artifact measured.
        model: where the model came from, as the spec says it.
        tensor_check: compiled code that recognises a call like one that was accepted before; None
            where there is none.
        shard: which part of a build on several machines this is; None for a whole artifact.
    """

    name: str
    producer: str
    signatures: tuple[Signature, ...]
    variants: tuple[Variant, ...]
    sections: tuple[Section, ...]
    weights: Weights | None = None
    requires: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    frozen: dict[str, str] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    model: str = ""
    tensor_check: Extension | None = None
    shard: Shard | None = None

    def section(self, name: str) -> Section:
        """Return the section of that name.

        Raises:
            SectionError: there is none. Names that the manifest itself refers to are there.
        """
        for section in self.sections:
            if section.name == name:
                return section
        raise SectionError("sections", found=f"none named {show(name)}", expected="its name")

    @property
    def entries(self) -> tuple[str, ...]:
        """The entry points that there are variants for: names of methods; "" for the only one."""
        return tuple(dict.fromkeys(variant.entry for variant in self.variants)) or ("",)

    def of(self, entry: str) -> "Manifest":
        """Return the manifest with the variants of one entry point only; itself where it has no other."""
        if self.entries == (entry,):
            return self
        variants = [variant for variant in self.variants if variant.entry == entry]
        used = sorted({variant.signature for variant in variants})
        return replace(
            self,
            signatures=tuple(self.signatures[i] for i in used),
            variants=tuple(replace(v, signature=used.index(v.signature)) for v in variants),
        )

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, the same bytes for the same manifest.

        Raises:
            ManifestError: a float in it is not finite, or a text is not Unicode.
        """
        try:
            return strict_json.write(encode(self))
        except ValueError as error:
            expected = "finite numbers and valid Unicode"
            raise ManifestError("manifest", found=str(error), expected=expected) from None

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Manifest":
        """Read a manifest and check that it is consistent.

        Raises:
            ManifestError: it is not JSON, a field is missing or of another type, a reference inside
                it leads nowhere, or a variant could answer calls that it was not built for.
            UnknownFeatureError: it requires something this version does not know.
            TooLargeError: it has more parts than a limit allows.
            SectionError: the weights are not in a raw section.
        """
        with _uncollected(len(data)):
            try:
                value = strict_json.read(data)
            except ValueError as error:
                expected = "strict JSON in UTF-8"
                raise ManifestError(where, found=str(error), expected=expected) from None
            try:
                _check_features(value)
                manifest = decode(cls, value, "manifest")
            except FormatError as error:
                raise error.at(where) from None
            check(manifest, where)
        return manifest


@contextmanager
def _uncollected(size: int) -> Iterator[None]:
    """Let the garbage collector rest while a large manifest is read: all of it is new, none is garbage."""
    rest = size > LARGE and gc.isenabled()
    if rest:
        gc.disable()
    try:
        yield
    finally:
        if rest:
            gc.enable()


def check(manifest: Manifest, where: str) -> None:
    """Refuse a manifest with a part that cannot be, or a reference that leads nowhere.

    Raises:
        FormatError: as `Manifest.from_bytes`.
    """
    _at_most(MAX_SECTIONS, manifest.sections, f"{where}: sections")
    _at_most(MAX_VARIANTS, manifest.variants, f"{where}: variants")
    sections = {section.name for section in manifest.sections}
    _once([section.name for section in manifest.sections], f"{where}: sections")
    _once([variant.id for variant in manifest.variants], f"{where}: variants")
    if not manifest.variants:
        raise ManifestError(f"{where}: variants", found="none", expected="at least one")
    for text in (manifest.name, manifest.producer, *sections):
        if not is_label(text):
            raise ManifestError(where, found=f"the name {show(text)}", expected="printable text")
    if manifest.weights is not None:
        _check_weights(manifest, manifest.weights, sections, f"{where}: weights")
    if manifest.tensor_check is not None:
        extension.check(manifest.tensor_check, sections, f"{where}: tensor_check")
    entries.check(manifest.variants, manifest.requires, f"{where}: variants")
    if manifest.shard is not None:
        _check_shard(manifest, manifest.shard, f"{where}: shard")
    for i, signature in enumerate(manifest.signatures):
        signature_check.check(signature, f"{where}: signatures[{i}]")
    tensors = manifest.weights.tensors if manifest.weights is not None else {}
    written = {name for variant in manifest.variants for name in variant.state}
    abouts = [variant_check.About(signature) for signature in manifest.signatures]
    for variant in manifest.variants:
        place = f"{where}: variant {show(variant.id)}"
        if not 0 <= variant.signature < len(manifest.signatures):
            found = f"signature {variant.signature}"
            expected = f"one of {len(manifest.signatures)}"
            raise ManifestError(place, found=found, expected=expected)
        variant_check.check(variant, abouts[variant.signature], place)
        for name in (*variant.files.values(), *filter(None, [variant.reference])):
            _known("section", name, sections, place)
        names = [*variant.constants.values(), *variant.state]
        if variant.step is not None:
            names += [*variant.step.weights, *variant.step.backward_constants.values()]
        for name in names:
            _known("weight", name, tensors, place)
        if variant.packed:
            if packing.FEATURE not in manifest.requires:
                found = show(list(manifest.requires))
                expected = f"{packing.FEATURE!r} among requires"
                raise ManifestError(place, found=found, expected=expected)
            _check_packed(variant, tensors, written, f"{place}: packed")


def _check_features(value: Any) -> None:
    given = value.get("requires", []) if isinstance(value, dict) else []
    unknown = [name for name in decode(tuple[str, ...], given, "requires") if name not in FEATURES]
    if unknown:
        found = f"requires {show(unknown)}"
        expected = f"some of {sorted(FEATURES)}"
        raise UnknownFeatureError("manifest", found=found, expected=expected)


def _check_shard(manifest: Manifest, record: Shard, where: str) -> None:
    shards.check(record, manifest.variants, where)
    if shards.FEATURE not in manifest.requires:
        expected = f"{shards.FEATURE!r} among requires"
        raise ManifestError(where, found=show(list(manifest.requires)), expected=expected)


def _check_weights(
    manifest: Manifest, record: Weights, sections: Collection[str], where: str
) -> None:
    _at_most(MAX_WEIGHTS, record.tensors, where)
    if (record.section is None) == (record.external is None):
        found = "neither" if record.section is None else "both"
        raise ManifestError(where, found=found, expected="one of section and external")
    if record.section is not None:
        _known("section", record.section, sections, where)
        encoding = manifest.section(record.section).encoding
        if encoding != RAW:
            place = f"{where}: section {show(record.section)}"
            raise SectionError(
                place, found=f"encoding {show(encoding)}", expected=f"{RAW!r}, to map it"
            )
    elif external.FEATURE not in manifest.requires:
        expected = f"{external.FEATURE!r} among requires"
        raise ManifestError(where, found=show(list(manifest.requires)), expected=expected)
    weights.check(record, where)


def _check_packed(
    variant: Variant, tensors: Mapping[str, Weight], written: Collection[str], where: str
) -> None:
    if variant.form != LIBRARY or variant.device != "cpu":
        found = f"form {variant.form!r} on {variant.device!r}"
        raise ManifestError(where, found=found, expected=f"form {LIBRARY!r} on 'cpu'")
    if not any((g.subject, g.fact, g.expected) == (HOST, "onednn", True) for g in variant.guards):
        raise ManifestError(where, found="no guard on host.onednn", expected="one")
    for slot, one in variant.packed.items():
        name = variant.constants.get(slot)
        if name is None or name in written:
            found = f"slot {show(slot)}"
            raise ManifestError(
                where, found=found, expected="a slot of a weight that stays as it is"
            )
        weight = tensors[name]
        packing.check(one, weight.shape, weight.dtype, f"{where}: {show(slot)}")


def _known(kind: str, name: str, names: Collection[str], where: str) -> None:
    if name not in names:
        expected = f"one of {show(sorted(names))}"
        raise ManifestError(where, found=f"{kind} {show(name)}", expected=expected)


def _once(names: list[str], where: str) -> None:
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ManifestError(where, found=f"{show(twice)} twice", expected="unique names")


def _at_most(limit: int, items: Collection[object], where: str) -> None:
    if len(items) > limit:
        raise TooLargeError(where, found=f"{len(items)} items", expected=f"at most {limit}")
