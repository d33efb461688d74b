"""The artifact, written aside and renamed into place: it is whole under its name, or not there."""

import glob
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..formats import entries, shards
from ..formats import external as externals
from ..formats import packing as packings
from ..formats.bucket import Bucket
from ..formats.container import Content, write
from ..formats.extension import Extension
from ..formats.external import External
from ..formats.guard import Guard
from ..formats.manifest import Check, Manifest
from ..formats.packing import Packing
from ..formats.precision import IEEE
from ..formats.section import RAW, sha256
from ..formats.shards import Shard
from ..formats.signature import Branch, Node, Sample, Signature, TensorLeaf
from ..formats.step import Step
from ..formats.target import Target
from ..formats.trial import Trial
from ..formats.variant import Variant
from .tensor_check import LIBRARY, TensorCheck
from .weight_table import WeightTable
from .writing import writing

WEIGHTS = "weights"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One variant with its bytes.

    Attributes:
        id, entry, form, bucket, guards, outputs, target, device, cuda_graph, options, trials: as in Variant.
        signature: what it takes.
        files: the bytes of its files by name.
        constants: its slots, with the names of the weights in the table.
        packed, fp32_precision, step, state, written, pad, fill, operators: as in Variant.
        reference: the source of the graph it was compiled from.
    """

    id: str
    entry: str = ""
    form: str
    signature: Signature
    bucket: Bucket
    guards: tuple[Guard, ...]
    outputs: Node
    files: dict[str, bytes]
    constants: dict[str, str]
    packed: dict[str, Packing] = field(default_factory=dict)
    fp32_precision: str = IEEE
    step: Step | None = None
    state: tuple[str, ...] = ()
    written: tuple[int, ...] = ()
    pad: dict[str, int] = field(default_factory=dict)
    fill: dict[str, float] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)
    reference: str | None = None
    target: Target | None = None
    device: str = "cpu"
    cuda_graph: bool = False
    options: dict[str, str]
    trials: tuple[Trial, ...] = ()


def package(
    path: Path,
    name: str,
    parts: Sequence[Part],
    weights: WeightTable,
    *,
    source: str,
    producer: str,
    environment: dict[str, str],
    frozen: dict[str, str],
    tensor_check: TensorCheck | None = None,
    checks: tuple[Check, ...] = (),
    shard: Shard | None = None,
    external: External | None = None,
) -> None:
    """Write an artifact to `path`, which is not its final name: see `aside`.

    Its weights are those of `weights`, in the artifact or, where `external` is given, in that file.
    """
    contents: dict[str, Content] = {}
    signatures: list[Signature] = []
    variants = []
    forms: list[Signature] = []
    for part in parts:
        form = _without_samples(part.signature)
        if form not in forms:
            forms.append(form)
            signatures.append(part.signature)
        variants.append(_variant(part, forms.index(form), contents))
    extension = None
    if tensor_check is not None:
        section = _add(LIBRARY, tensor_check.library, contents)
        extension = Extension(section=section, guards=tensor_check.guards)
    manifest = Manifest(
        name=name,
        producer=producer,
        signatures=tuple(signatures),
        variants=tuple(variants),
        sections=(),
        weights=weights.record(WEIGHTS, external),
        environment=environment,
        frozen=frozen,
        checks=checks,
        model=source,
        tensor_check=extension,
        requires=(
            *([] if external is None else [externals.FEATURE]),
            *([entries.FEATURE] if any(part.entry for part in parts) else []),
            *([packings.FEATURE] if any(part.packed for part in parts) else []),
            *([] if shard is None else [shards.FEATURE]),
        ),
        shard=shard,
    )
    if manifest.weights is not None and external is None:
        contents[WEIGHTS] = Content(name=WEIGHTS, parts=weights.section(), encoding=RAW)
    write(path, manifest, list(contents.values()))


def _without_samples(signature: Signature) -> Signature:
    """Return what a signature accepts, whatever the values were that it was read from."""

    def strip(node: Node) -> Node:
        if isinstance(node, Branch):
            return replace(node, children=tuple(map(strip, node.children)))
        return replace(node, sample=Sample()) if isinstance(node, TensorLeaf) else node

    return replace(
        signature,
        parameters=tuple(
            replace(parameter, node=strip(parameter.node)) if parameter.node else parameter
            for parameter in signature.parameters
        ),
    )


@contextmanager
def aside(out: Path) -> Iterator[Path]:
    """Give a path beside `out`; what was written there is renamed to `out` when the block ends well.

    Raises:
        OutputError: it cannot be written; what was under that name before is still there.
    """
    with writing(out):
        _remove_left_over(out)
        descriptor, made = tempfile.mkstemp(
            dir=out.parent, prefix=f".{out.name}.{os.getpid()}.", suffix=".new"
        )
        os.close(descriptor)
    path = Path(made)
    try:
        yield path
        with writing(out):
            path.chmod(0o644)
            path.replace(out)
            folder = os.open(out.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        path.unlink(missing_ok=True)


def _add(file: str, data: bytes, contents: dict[str, Content]) -> str:
    """Add a section named by its content, so that equal files are stored once; return its name."""
    section = f"{file}-{sha256(data).removeprefix('sha256:')[:16]}"
    contents.setdefault(section, Content(name=section, parts=[data]))
    return section


def _variant(part: Part, signature: int, contents: dict[str, Content]) -> Variant:
    reference = None
    if part.reference is not None:
        reference = _add("graph.py", part.reference.encode(), contents)
    return Variant(
        id=part.id,
        entry=part.entry,
        form=part.form,
        signature=signature,
        bucket=part.bucket,
        guards=part.guards,
        outputs=part.outputs,
        files={file: _add(file, data, contents) for file, data in part.files.items()},
        constants=part.constants,
        packed=part.packed,
        fp32_precision=part.fp32_precision,
        step=part.step,
        state=part.state,
        written=part.written,
        pad=part.pad,
        fill=part.fill,
        operators=part.operators,
        reference=reference,
        target=part.target,
        device=part.device,
        cuda_graph=part.cuda_graph,
        options=part.options,
        trials=part.trials,
    )


def _remove_left_over(out: Path) -> None:
    """Remove what builds that were killed have left beside `out`."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.*.new"):
        pid = path.name.removeprefix(f".{out.name}.").split(".")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)
