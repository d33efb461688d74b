"""The artifact's table of contents."""

import json
from dataclasses import dataclass, field

from . import guard as guards
from .errors import ManifestError, UnknownFeatureError
from .expression import names
from .record import decode, encode
from .section import Section
from .signature import Branch, DimLeaf, InputLeaf, Node, Signature, TensorLeaf, walk
from .variant import GRAPH, LIBRARY, Variant
from .version import FEATURES


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """One parameter, buffer or constant of the model, as the variants were compiled for it.

    Attributes:
        dtype: as torch prints it, without the module: "float32".
        shape: the size of each axis.
        layout: "contiguous", or the axes from the outermost in memory to the innermost: "0,2,3,1".
            The tensor is stored with its axes in that order.
        role: "parameter", "buffer" (both are in the model's state_dict) or "constant" (is not).
    """

    dtype: str
    shape: tuple[int, ...]
    layout: str = "contiguous"
    role: str = "parameter"


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Where the weights are, and what they must be.

    Attributes:
        section: name of the safetensors section.
        tensors: every weight by name, tied ones under each of their names.
        aliases: for each tied weight that is not stored under its own name, the one it is stored as.
    """

    section: str
    tensors: dict[str, Weight]
    aliases: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Everything a reader needs before it touches a section.

    Attributes:
        name: of the model.
        producer: what wrote the file: "tcbuild 0.1.0".
        signatures: what the variants take.
        variants: the compiled programs, in the order in which they were planned.
        sections: where the bytes are.
        weights: None where the model has none.
        requires: features that a reader must know (see version.py).
        environment: what the artifact was built with, by name: torch, compiler, ...
        frozen: the plain Python values that the model's modules held as attributes, as text: what the
            code read of them is a constant of the compiled programs.
        model: where the model came from, as the spec says it.
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
    model: str = ""

    def section(self, name: str) -> Section:
        """Return the section of that name; `check` has made sure that it is there."""
        return next(section for section in self.sections if section.name == name)

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, the same bytes for the same manifest."""
        text = json.dumps(encode(self), indent=1, sort_keys=True, ensure_ascii=False)
        return text.encode("utf-8")

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Manifest":
        """Read a manifest and check that it is consistent.

        Raises:
            ManifestError: it is not JSON, a field is missing or of another type, or a reference
                inside it leads nowhere.
            UnknownFeatureError: it requires something this version does not know.
            SectionError: the section table is malformed.
        """
        try:
            value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ManifestError(where, found=str(error), expected="JSON in UTF-8") from None
        requires = value.get("requires", []) if isinstance(value, dict) else []
        unknown = [name for name in requires if name not in FEATURES] if requires else []
        if unknown:
            raise UnknownFeatureError(
                where, found=f"requires {unknown}", expected=f"some of {sorted(FEATURES)}"
            )
        try:
            manifest = decode(cls, value, "manifest")
        except RecursionError:
            raise ManifestError(where, found="deep nesting", expected="a manifest") from None
        except ManifestError as error:
            place = f"{where}: {error.where}"
            raise ManifestError(place, found=error.found, expected=error.expected) from None
        check(manifest, where)
        return manifest


def check(manifest: Manifest, where: str) -> None:
    """Refuse a manifest with a reference that leads nowhere, or a guard nobody can evaluate."""
    sections = {section.name for section in manifest.sections}
    if len(sections) != len(manifest.sections):
        raise ManifestError(where, found="a section name twice", expected="unique names")
    if manifest.weights is not None:
        _known(manifest.weights.section, sections, f"{where}: weights.section")
        for name in (*manifest.weights.aliases, *manifest.weights.aliases.values()):
            if name not in manifest.weights.tensors:
                found = f"alias of {name!r}"
                raise ManifestError(f"{where}: weights", found=found, expected="a listed weight")
    ids = [variant.id for variant in manifest.variants]
    if len(set(ids)) != len(ids) or not ids:
        raise ManifestError(where, found=f"variants {ids}", expected="unique identifiers")
    for i, signature in enumerate(manifest.signatures):
        _check_signature(signature, f"{where}: signatures[{i}]")
    for variant in manifest.variants:
        place = f"{where}: variant {variant.id!r}"
        if variant.form not in (LIBRARY, GRAPH):
            raise UnknownFeatureError(
                place, found=f"form {variant.form!r}", expected="library, graph"
            )
        if not 0 <= variant.signature < len(manifest.signatures):
            found = f"signature {variant.signature}"
            raise ManifestError(place, found=found, expected=f"0..{len(manifest.signatures) - 1}")
        for section in (*variant.files.values(), *filter(None, [variant.reference])):
            _known(section, sections, place)
        for name in (*variant.constants.values(), *variant.state):
            if manifest.weights is None or name not in manifest.weights.tensors:
                raise ManifestError(place, found=f"constant {name!r}", expected="a listed weight")
        _check_guards(variant, manifest.signatures[variant.signature], place)
        _check_outputs(variant, manifest.signatures[variant.signature], place)


def _known(name: str, sections: set[str], where: str) -> None:
    if name not in sections:
        raise ManifestError(where, found=f"section {name!r}", expected=f"one of {sorted(sections)}")


def _check_guards(variant: Variant, signature: Signature, where: str) -> None:
    symbols = {symbol.name for symbol in signature.symbols}
    subjects = {path: leaf for path, leaf in signature.inputs()}
    for guard in variant.guards:
        guards.check(guard, f"{where}: guard {guard.name}")
        leaf = subjects.get(guard.subject)
        if leaf is None and guard.subject not in (guards.DIMS, guards.PROCESS, guards.HOST):
            found = f"a guard on {guard.subject!r}"
            raise ManifestError(where, found=found, expected=f"one of {sorted(subjects)}")
        if guard.axis is not None and not (
            isinstance(leaf, TensorLeaf) and 0 <= guard.axis < len(leaf.shape)
        ):
            raise ManifestError(where, found=f"a guard on {guard.name}", expected="an axis it has")
        if guard.fact in ("size", "relation") and isinstance(guard.expected, str):
            unknown = names(guard.expected) - symbols
            if unknown:
                found = f"{guard.name} in terms of {sorted(unknown)}"
                raise ManifestError(where, found=found, expected=f"dims {sorted(symbols)}")


def _check_signature(signature: Signature, where: str) -> None:
    tensors = signature.tensors()
    if [leaf.index for _, leaf in tensors] != list(range(len(tensors))):
        raise ManifestError(where, found="tensor inputs out of order", expected="0, 1, 2, ...")
    symbols = set()
    for symbol in signature.symbols:
        symbols.add(symbol.name)
        in_range = 0 <= symbol.input < len(tensors)
        if (
            not in_range
            or not 0 <= symbol.axis < len(tensors[symbol.input][1].shape)
            or symbol.scale < 1
        ):
            found = f"dim {symbol.name!r} read from axis {symbol.axis} of tensor {symbol.input}"
            raise ManifestError(where, found=found, expected="an axis that is there")
    for parameter in signature.parameters:
        if parameter.node is not None:
            _check_branches(parameter.node, where)


def _check_outputs(variant: Variant, signature: Signature, where: str) -> None:
    inputs = len(signature.tensors())
    symbols = {symbol.name for symbol in signature.symbols}
    _check_branches(variant.outputs, where)
    for path, leaf in walk(variant.outputs, "output"):
        if isinstance(leaf, InputLeaf) and not 0 <= leaf.index < inputs:
            raise ManifestError(
                where, found=f"{path} is input {leaf.index}", expected=f"below {inputs}"
            )
        if isinstance(leaf, DimLeaf) and names(leaf.size) - symbols:
            raise ManifestError(
                where, found=f"{path} is {leaf.size}", expected=f"dims {sorted(symbols)}"
            )


def _check_branches(node: Node, where: str) -> None:
    if isinstance(node, Branch):
        keyed = node.form in ("dict", "namedtuple", "dataclass")
        if not keyed and node.form not in ("list", "tuple"):
            raise UnknownFeatureError(
                where, found=f"a container of form {node.form!r}", expected="list, tuple, dict, ..."
            )
        if keyed and len(node.keys) != len(node.children):
            found = f"{len(node.keys)} keys for {len(node.children)} items"
            raise ManifestError(where, found=found, expected="a key for each item")
        for child in node.children:
            _check_branches(child, where)


def _no_constant(name: str) -> float:
    raise ValueError(name)
