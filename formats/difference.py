"""What two artifacts have that is not the same, in words; without torch."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from .container import Artifact
from .record import encode
from .safetensors_header import read_header
from .section import sha256
from .signature import Signature
from .trial import Trial
from .variant import Variant
from .weights import Weights

# Of a variant, what is told by parts and not as a whole.
_BY_PART: Final = frozenset(
    ["id", "signature", "guards", "files", "options", "trials", "reference"]
)
_LONG: Final = 60  # characters of a value that is shown
_ORDERED: Final = "of a layout"  # in place of a digest of bytes in another order than row-major


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing that is not the same.

    Attributes:
        part: of the artifact: "environment", "weights", "variants", "guards", "kernels", ...
        subject: which of them: the id of a variant, the name of a weight or of a package.
        first, second: what either has, in words; None where it has no such thing.
    """

    part: str
    subject: str
    first: str | None
    second: str | None

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.subject}: only in the second{_also(self.second)}"
        if self.second is None:
            return f"{self.subject}: only in the first{_also(self.first)}"
        return f"{self.subject}: {self.first} -> {self.second}"


def _also(said: str | None) -> str:
    return f" ({said})" if said else ""


def between(first: Artifact, second: Artifact) -> list[Difference]:
    """Return what is not the same in two artifacts, in the order of a manifest; nothing where all is.

    Raises:
        FormatError: the weights of one are malformed, or a section of it is damaged.
    """
    one, two = first.manifest, second.manifest
    found = [
        Difference(part=name, subject=name, first=getattr(one, name), second=getattr(two, name))
        for name in ("name", "model", "producer")
        if getattr(one, name) != getattr(two, name)
    ]
    found += _values("environment", one.environment, two.environment)
    found += _values("model's values", one.frozen, two.frozen)
    found += _variants(first, second)
    found += _weights(first, second)
    checks = [{f"{c.variant} {c.sizes} {c.output}": c for c in m.checks} for m in (one, two)]
    errors = [{k: f"error {c.error:g}" for k, c in side.items()} for side in checks]
    found += _values("checks", errors[0], errors[1])
    found += _values("tensor check", _tensor_check(first), _tensor_check(second))
    parts = [{"part": str(m.shard)} if m.shard is not None else {} for m in (one, two)]
    found += _values("parts", parts[0], parts[1])
    if not found and encode(one) != encode(two):
        found.append(_rest(encode(one), encode(two)))
    return found


def _rest(one: Any, two: Any) -> Difference:
    """Return what is different though nothing above is: a field of the manifest."""
    names = sorted(name for name in {*one, *two} if one.get(name) != two.get(name))
    return Difference(part="manifest", subject=", ".join(names), first="one", second="another")


def _values(
    part: str, one: Mapping[str, str], two: Mapping[str, str], prefix: str = ""
) -> Iterator[Difference]:
    for name in dict.fromkeys((*one, *two)):
        if one.get(name) != two.get(name):
            yield Difference(
                part=part, subject=f"{prefix}{name}", first=one.get(name), second=two.get(name)
            )


def _variants(first: Artifact, second: Artifact) -> Iterator[Difference]:
    ones = {variant.id: variant for variant in first.manifest.variants}
    twos = {variant.id: variant for variant in second.manifest.variants}
    for id in dict.fromkeys((*ones, *twos)):
        one, two = ones.get(id), twos.get(id)
        if one is None or two is None:
            words = [None if v is None else f"{v.form}, {v.bucket}" for v in (one, two)]
            yield Difference(part="variants", subject=id, first=words[0], second=words[1])
            continue
        yield from _variant(first, second, one, two)
    common = [id for id in ones if id in twos]
    if common != [id for id in twos if id in ones]:
        words = [", ".join(id for id in side if id in common) for side in (ones, twos)]
        yield Difference(part="variants", subject="their order", first=words[0], second=words[1])


def _variant(first: Artifact, second: Artifact, one: Variant, two: Variant) -> Iterator[Difference]:
    signatures = first.manifest.signatures[one.signature], second.manifest.signatures[two.signature]
    inputs = [_inputs(signature) for signature in signatures]
    yield from _values("inputs", inputs[0], inputs[1], f"{one.id}: ")
    yield from _guards(one, two)
    for file in dict.fromkeys((*one.files, *two.files)):
        sides = [_file(a, v.files.get(file)) for a, v in ((first, one), (second, two))]
        if sides[0] != sides[1]:
            subject = f"{one.id}: {file}"
            yield Difference(part="kernels", subject=subject, first=sides[0], second=sides[1])
    yield from _values("options", one.options, two.options, f"{one.id}: ")
    yield from _tuning(one, two)
    references = [_file(a, v.reference) for a, v in ((first, one), (second, two))]
    if references[0] != references[1]:
        subject = f"{one.id}: the graph it was compiled from"
        yield Difference(part="graphs", subject=subject, first=references[0], second=references[1])
    for field in fields(Variant):
        sides = [encode(getattr(variant, field.name)) for variant in (one, two)]
        if field.name not in _BY_PART and sides[0] != sides[1]:
            words = [_short(side) for side in sides]
            subject = f"{one.id}: {field.name}"
            yield Difference(part="variants", subject=subject, first=words[0], second=words[1])


def _inputs(signature: Signature) -> dict[str, str]:
    return {path: _short(encode(leaf)) for path, leaf in signature.inputs()}


def _guards(one: Variant, two: Variant) -> Iterator[Difference]:
    texts = [Counter(map(str, variant.guards)) for variant in (one, two)]
    gone, new = texts[0] - texts[1], texts[1] - texts[0]
    names = {str(guard): guard.name for guard in (*one.guards, *two.guards)}
    for text in gone:
        pair = [other for other in new if names[other] == names[text]]
        name = names[text]
        first = text.removeprefix(f"{name}: ")
        second = pair[0].removeprefix(f"{name}: ") if len(pair) == 1 else None
        if second is not None:
            del new[pair[0]]
        yield Difference(part="guards", subject=f"{one.id}: {name}", first=first, second=second)
    for text in new:
        second = text.removeprefix(f"{names[text]}: ")
        subject = f"{one.id}: {names[text]}"
        yield Difference(part="guards", subject=subject, first=None, second=second)


def _tuning(one: Variant, two: Variant) -> Iterator[Difference]:
    chosen = [next((t for t in variant.trials if t.chosen), None) for variant in (one, two)]
    words = [_trial(trial) for trial in chosen]
    if words[0] != words[1]:
        yield Difference(part="tuning", subject=one.id, first=words[0], second=words[1])
    elif one.trials != two.trials:
        subject = f"{one.id}: what was measured"
        counts = [f"{len(variant.trials)} ways" for variant in (one, two)]
        yield Difference(part="tuning", subject=subject, first=counts[0], second=counts[1])


def _trial(trial: Trial | None) -> str | None:
    if trial is None:
        return None
    return f"{trial.candidate}{' + CUDA graph' if trial.cuda_graph else ''}"


def _file(artifact: Artifact, name: str | None) -> str | None:
    """Return size and digest of a section, in words."""
    if name is None:
        return None
    section = artifact.manifest.section(name)
    return f"{section.size:,} bytes {section.digest[:19]}"


def _weights(first: Artifact, second: Artifact) -> Iterator[Difference]:
    records = [artifact.manifest.weights for artifact in (first, second)]
    described = [
        {n: f"{w.dtype} {list(w.shape)}" for n, w in r.tensors.items()} if r is not None else {}
        for r in records
    ]
    yield from _values("weights", described[0], described[1])
    tied = [r.aliases if r is not None else {} for r in records]
    yield from _values("tied weights", tied[0], tied[1])
    one, two = records
    if one is None or two is None:
        return
    places = [_place(r) for r in (one, two)]
    if places[0] != places[1]:
        yield Difference(part="weights", subject="where", first=places[0], second=places[1])
    if one.section is not None and two.section is not None:
        if (
            first.manifest.section(one.section).digest
            == second.manifest.section(two.section).digest
        ):
            return
        values: list[Mapping[str, object]] = [
            _bytes(artifact, section)
            for artifact, section in ((first, one.section), (second, two.section))
        ]
    else:
        values = [_digests(artifact, r) for artifact, r in ((first, one), (second, two))]
    for name in one.tensors:
        a, b = (
            side.get(r.aliases.get(name, name)) for side, r in zip(values, (one, two), strict=True)
        )
        same_form = described[0].get(name) == described[1].get(name)
        if same_form and a is not None and b is not None and a != b:
            words = ("some values", "other values")
            if _ORDERED in (a, b):
                words = ("not compared", "stored in another order")
            yield Difference(part="weights", subject=name, first=words[0], second=words[1])


def _place(record: Weights) -> str:
    return "in the artifact" if record.external is None else f"in {record.external.file}"


def _bytes(artifact: Artifact, section: str) -> dict[str, memoryview]:
    """Return the bytes of each stored weight."""
    view = artifact.map_private(section)
    entries = read_header(view, f"{os.fspath(artifact.path)}: section {section!r}")
    return {name: view[entry.start : entry.end] for name, entry in entries.items()}


def _digests(artifact: Artifact, record: Weights) -> dict[str, object]:
    """Return the digest of each stored weight in row-major order."""
    if record.external is not None:
        return {name: digests.digest for name, digests in record.external.tensors.items()}
    assert record.section is not None
    return {
        name: sha256(data) if record.tensors[name].layout == "contiguous" else _ORDERED
        for name, data in _bytes(artifact, record.section).items()
    }


def _tensor_check(artifact: Artifact) -> dict[str, str]:
    record = artifact.manifest.tensor_check
    if record is None:
        return {}
    needs = ", ".join(map(str, record.guards))
    return {"compiled": _file(artifact, record.section) or "", "for": needs}


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."
