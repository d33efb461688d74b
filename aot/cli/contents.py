"""A manifest as text for people."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from ...formats.manifest import Manifest
from ...formats.variant import Variant
from . import words
from .columns import amount, columns


def lines(
    manifest: Manifest, file: Path, size: int, *, guards: bool, trials: bool
) -> Iterator[str]:
    """Yield the lines: what the artifact is, takes, returns and consists of.

    Args:
        manifest: of the artifact.
        file: where it is.
        size: of the file, in bytes.
        guards: whether to list what each variant requires.
        trials: whether to list what the search for each variant's options measured.
    """
    source = f" from {manifest.model}" if manifest.model else ""
    yield f"{file}: {manifest.name}{source}, {amount(size)}, written by {manifest.producer}"
    if manifest.shard is not None:
        yield f"{manifest.shard}, for tcbuild merge"
    yield from _signatures(manifest)
    yield from _variants(manifest, guards, trials)
    yield from _weights(manifest)
    if manifest.tensor_check is not None:
        needs = [str(item).removeprefix("host.") for item in manifest.tensor_check.guards]
        yield from _part("tensor check", iter([f"compiled, for {', '.join(needs)}"]))
    yield from _part("sections", _sections(manifest))
    yield from _part("environment", columns(list(manifest.environment.items())))


def _part(title: str, body: Iterator[str]) -> Iterator[str]:
    yield ""
    yield title
    for line in body:
        yield from textwrap.wrap(
            line, 80, initial_indent="  ", subsequent_indent="      ", break_long_words=False
        )


def _signatures(manifest: Manifest) -> Iterator[str]:
    several = len(manifest.signatures) > 1
    for i, signature in enumerate(manifest.signatures):
        variants = [variant for variant in manifest.variants if variant.signature == i]
        of = f" ({', '.join(variant.id for variant in variants)})" if several else ""
        yield from _part(f"takes{of}", words.parameters(signature))
        inputs = [path for path, _ in signature.tensors()]
        by_text: dict[str, list[str]] = {}
        for variant in variants:
            by_text.setdefault(words.node(variant.outputs, inputs), []).append(variant.id)
        for text, ids in by_text.items():
            of = f" ({', '.join(ids)})" if several or len(by_text) > 1 else ""
            yield from _part(f"returns{of}", iter([text]))


def _variants(manifest: Manifest, guards: bool, trials: bool) -> Iterator[str]:
    yield from _part("variants", iter(()))
    for variant in manifest.variants:
        yield f"  {variant.id}"
        yield from (f"    {line}" for line in columns(_facts(manifest, variant)))
        yield from (f"      {line}" for line in _trials(variant) if trials)
        for guard in variant.guards if guards else ():
            yield from textwrap.wrap(
                str(guard), 80, initial_indent="      ", subsequent_indent="          "
            )


def _facts(manifest: Manifest, variant: Variant) -> list[tuple[str, str]]:
    files = (
        f"{name} {amount(manifest.section(section).size)}"
        for name, section in variant.files.items()
    )
    facts = [
        ("form", variant.form),
        ("sizes", str(variant.bucket) or "all fixed"),
        ("target", str(variant.target) if variant.target else "any"),
        ("files", ", ".join(files)),
        ("guards", str(len(variant.guards))),
    ]
    if variant.pad:
        spans = variant.bucket.fixed()
        facts.append(
            ("pads", ", ".join(f"{name}={low}..{spans[name]}" for name, low in variant.pad.items()))
        )
    if variant.state:
        facts.append(("state", ", ".join(variant.state)))
    if variant.operators:
        facts.append(("operators", ", ".join(variant.operators)))
    if variant.trials:
        facts.append(("tuned", tuned(variant)))
    checks = [check for check in manifest.checks if check.variant == variant.id]
    if checks:
        worst = max(checks, key=lambda check: check.error / (check.allowed or 1))
        facts.append(
            (
                "checks",
                f"{len(checks)} outputs; worst error {worst.error:.2g} of {worst.allowed:.2g} "
                f"allowed, eager {worst.eager:.2g}",
            )
        )
    return facts


def _trials(variant: Variant) -> Iterator[str]:
    """Yield a line for each way that was tried; the one that was chosen has a star."""
    rows = [
        (
            "*" if trial.chosen else "",
            f"{trial.candidate}{' + CUDA graph' if trial.cuda_graph else ''}",
            f"{trial.microseconds:g} us" if trial.microseconds else "-",
            trial.problem,
        )
        for trial in variant.trials
    ]
    return columns(rows, right=(2,))


def tuned(variant: Variant) -> str:
    """Return what the search has chosen, against the compiler's own choice: one line."""
    timed = [trial for trial in variant.trials if trial.microseconds]
    chosen = next((trial for trial in timed if trial.chosen), None)
    if chosen is None:
        return f"nothing among {len(variant.trials)} ways that is right"
    own = next((f"; default {t.microseconds:g}" for t in timed if t.candidate == "default"), "")
    graphs = " with CUDA graphs" if chosen.cuda_graph else ""
    said = f"{chosen.candidate}{graphs}, {chosen.microseconds:g} us a call{own}"
    return f"{said}; the fastest that is right of {len(timed)} that ran"


def _weights(manifest: Manifest) -> Iterator[str]:
    weights = manifest.weights
    if weights is None:
        yield from _part("weights", iter(["none"]))
        return
    size = amount(weights.nbytes())
    where = "" if weights.external is None else f", in another file: {weights.external.file}"
    if weights.section is not None:
        size = amount(manifest.section(weights.section).size)
    tied = (f"{name} is tied to {stored_as}" for name, stored_as in weights.aliases.items())
    yield from _part("weights", iter([f"{len(weights.stored())} tensors, {size}{where}", *tied]))


def _sections(manifest: Manifest) -> Iterator[str]:
    rows = [
        (section.name, section.encoding, amount(section.length), f"of {amount(section.size)}")
        for section in manifest.sections
    ]
    return columns(rows, right=(2, 3))
