"""The parts of a build, made by several machines, as the one artifact that a single machine makes."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import torch

from ..formats.container import Artifact
from ..formats.layout import strides_of
from ..formats.manifest import Check, Manifest
from ..formats.safetensors_header import read_header
from ..formats.shards import Shard
from ..formats.variant import GRAPH, Variant
from .errors import MergeError
from .package import Part, aside, package
from .report import JobReport, Report
from .tensor_check import TensorCheck
from .weight_table import WeightTable, place, same
from .weights_file import beside
from .writing import need_folder, writing

# What a part and the record of its variant both have, and have alike; the rest is by name or number.
_NAMED: Final = frozenset(["signature", "files", "constants", "state", "step", "reference"])
_ALIKE: Final = tuple(f.name for f in fields(Part) if f.name not in _NAMED)


@dataclass(frozen=True, kw_only=True)
class _Given:
    """One part: the file, what it says of itself, and its weights by the names that it stores."""

    artifact: Artifact
    shard: Shard
    weights: Mapping[str, torch.Tensor]

    @property
    def manifest(self) -> Manifest:
        return self.artifact.manifest


@dataclass(frozen=True, kw_only=True)
class _Held:
    """What a variant of a part holds, by the model's own names."""

    constants: Mapping[str, str]
    state: tuple[str, ...]
    weights: Mapping[str, torch.Tensor]
    roles: Mapping[str, str]


def merge(parts: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Report:
    """Join the parts that `build` has made into one artifact: the bytes of a build in one piece.

    Args:
        parts: the paths of all the parts, in any order.
        out: path of the `.tcb` file; replaced as a whole when the new one is complete.

    Raises:
        FormatError: a part is malformed.
        MergeError: one is missing, there twice, no part at all, or made of something else than the others.
        OutputError: the artifact cannot be written.
    """
    began = time.perf_counter()
    path = Path(out)
    need_folder(path)
    with ExitStack() as opened:
        given = [_open(opened.enter_context(Artifact(part))) for part in parts]
        given = _complete(given)
        _agree(given)
        given = _unified(given)
        weights = WeightTable()
        made = list(_parts(given, weights))
        for one in given:
            record = one.manifest.weights
            for name, weight in record.tensors.items() if record is not None else ():
                if name not in one.shard.renamed:
                    weights.add_name(name, one.weights[name], weight.role)
        first = given[0].manifest
        external = given[0].shard.external
        with aside(path) as new, beside(path, weights, external=external) as kept:
            with writing(path):
                package(
                    new,
                    first.name,
                    made,
                    weights,
                    source=first.model,
                    producer=first.producer,
                    environment={
                        k: v for one in given for k, v in one.manifest.environment.items()
                    },
                    frozen=first.frozen,
                    tensor_check=_tensor_check(given[0]),
                    checks=tuple(_checks(given)),
                    external=None if kept is None else kept.record,
                )
            size = new.stat().st_size
    return Report(
        artifact=path,
        bytes=size,
        weight_bytes=weights.bytes(),
        weights_file=None if kept is None else kept.final,
        jobs=tuple(
            JobReport(
                id=part.id,
                compiled=False,
                seconds={},
                library_bytes=sum(map(len, part.files.values())),
                trials=part.trials,
            )
            for part in made
            if part.form != GRAPH
        ),
        seconds=time.perf_counter() - began,
    )


def _open(artifact: Artifact) -> _Given:
    """Read a part, every byte of it.

    Raises:
        MergeError: it is a whole artifact.
        FormatError: it is malformed.
    """
    shard = artifact.manifest.shard
    if shard is None:
        found = "a whole artifact"
        raise MergeError(artifact.path, found=found, expected="a part, of a build with --shard")
    artifact.check()
    return _Given(artifact=artifact, shard=shard, weights=_weights(artifact))


def _weights(artifact: Artifact) -> dict[str, torch.Tensor]:
    record = artifact.manifest.weights
    if record is None:
        return {}
    if record.section is None:
        found, expected = "a part with its weights in another file", "a part that is one file"
        raise MergeError(artifact.path, found=found, expected=expected)
    view = artifact.map_private(record.section)
    entries = read_header(view, str(artifact.path))
    storage = torch.frombuffer(view, dtype=torch.uint8).untyped_storage()
    tensors: dict[str, torch.Tensor] = {}
    for name, entry in entries.items():
        weight = record.tensors[name]
        dtype: torch.dtype = getattr(torch, entry.dtype)
        strides = strides_of(weight.layout, weight.shape)
        tensor = torch.empty(0, dtype=dtype)
        tensors[name] = tensor.set_(storage, entry.start // dtype.itemsize, weight.shape, strides)
    return tensors | {name: tensors[stored] for name, stored in record.aliases.items()}


def _complete(given: Sequence[_Given]) -> list[_Given]:
    """Return the parts in order, all there, each once.

    Raises:
        MergeError: they are not.
    """
    if not given:
        raise MergeError("merge", found="no parts", expected="all parts of a build")
    count = given[0].shard.count
    by_index: dict[int, _Given] = {}
    for one in given:
        path = one.artifact.path
        if one.shard.count != count:
            expected = f"one of {count}, as {given[0].artifact.path}"
            raise MergeError(path, found=str(one.shard), expected=expected)
        other = by_index.setdefault(one.shard.index, one)
        if other is not one:
            found = f"{one.shard}, as {other.artifact.path} is"
            raise MergeError(path, found=found, expected="each part once")
    missing = [str(index) for index in range(1, count + 1) if index not in by_index]
    if missing:
        found = f"no part {', '.join(missing)} of {count}"
        tip = f"build it: tcbuild build SPEC --shard {missing[0]}/{count} -o PART"
        raise MergeError("merge", found=found, expected="all parts", tip=tip)
    return [by_index[index] for index in sorted(by_index)]


def _agree(given: Sequence[_Given]) -> None:
    """Refuse parts that are made of other things.

    Raises:
        MergeError: naming the part, and what is another.
    """
    first = given[0]
    for one in given[1:]:
        _same_values(one, first, "plan", _numbered(one), _numbered(first))
        _same_values(one, first, "", one.shard.origin, first.shard.origin)
        common = one.manifest.environment.keys() & first.manifest.environment.keys()
        mine, others = (
            {name: side.manifest.environment[name] for name in sorted(common)}
            for side in (one, first)
        )
        _same_values(one, first, "environment", mine, others)
        _same_values(one, first, "the model's value of", one.manifest.frozen, first.manifest.frozen)
        _same_values(one, first, "", _named(one), _named(first))


def _same_values(
    one: _Given, other: _Given, what: str, mine: Mapping[str, str], others: Mapping[str, str]
) -> None:
    for name in sorted({**mine, **others}):
        if mine.get(name) != others.get(name):
            raise MergeError(
                f"{one.artifact.path}: {f'{what} {name}'.strip()}",
                found=mine.get(name, "nothing"),
                expected=f"{others.get(name, 'nothing')}, as in {other.artifact.path}",
                tip="build all parts from the same spec, sources, weights and environment",
            )


def _numbered(one: _Given) -> dict[str, str]:
    return {f"job {i + 1}": id for i, id in enumerate(one.shard.jobs)}


def _named(one: _Given) -> dict[str, str]:
    manifest = one.manifest
    check = manifest.tensor_check
    return {
        "name": manifest.name,
        "producer": manifest.producer,
        "model": manifest.model,
        "tensor check": one.artifact.section(check.section).digest if check else "none",
        "verified": "yes" if manifest.checks else "no",
    }


def _unified(given: Sequence[_Given]) -> list[_Given]:
    """Return the parts with weights that are equal, and of one name in the model, as one tensor."""
    known: dict[object, torch.Tensor] = {}
    result = []
    for one in given:
        record = one.manifest.weights
        kept: dict[object, torch.Tensor] = {}
        for name, tensor in one.weights.items():
            for key in (name, ("tied", one.shard.tied.get(name, name))):
                other = known.get(key)
                if other is not None and tensor.numel() and same(other, tensor):
                    kept.setdefault(place(tensor), other)
        weights = {name: kept.get(place(t), t) for name, t in one.weights.items()}
        for name, tensor in weights.items():
            known.setdefault(name, tensor)
            if record is not None and record.tensors[name].role != "constant":
                known.setdefault(("tied", one.shard.tied.get(name, name)), tensor)
        result.append(_Given(artifact=one.artifact, shard=one.shard, weights=weights))
    return result


def _parts(given: Sequence[_Given], weights: WeightTable) -> list[Part]:
    """Return the variants of all parts in the order of the plan, and what is embedded."""
    where = {v.id: (one, v) for one in given for v in one.manifest.variants if v.form != GRAPH}
    jobs = [where[id] for id in given[0].shard.jobs]
    found = [_part(one, variant, weights) for one, variant in jobs]
    # As a build has them: by device, and by method, in the order of their first jobs.
    devices = [variant.device for _, variant in jobs]
    entries = [variant.entry for _, variant in jobs]
    graphs = sorted(
        ((one, v) for one in given for v in one.manifest.variants if v.form == GRAPH),
        key=lambda found: (devices.index(found[1].device), entries.index(found[1].entry)),
    )
    return [*found, *(_part(one, variant, weights) for one, variant in graphs)]


def _part(one: _Given, variant: Variant, weights: WeightTable) -> Part:
    artifact, renamed = one.artifact, one.shard.renamed
    stored = [*variant.constants.values(), *variant.state]
    step = variant.step
    if step is not None:
        stored += [*step.weights, *step.backward_constants.values()]
        own = {slot: renamed.get(name, name) for slot, name in step.backward_constants.items()}
        taken = tuple(renamed.get(name, name) for name in step.weights)
        step = replace(step, weights=taken, backward_constants=own)
    record = one.manifest.weights
    held = _Held(
        constants={slot: renamed.get(name, name) for slot, name in variant.constants.items()},
        state=tuple(renamed.get(name, name) for name in variant.state),
        weights={renamed.get(name, name): one.weights[name] for name in stored},
        roles={renamed.get(name, name): record.tensors[name].role for name in stored if record},
    )
    alike = {name: getattr(variant, name) for name in _ALIKE}
    return Part(
        **alike,
        signature=one.manifest.signatures[variant.signature],
        files={file: bytes(artifact.read(name)) for file, name in variant.files.items()},
        constants=weights.add(held),
        step=None if step is None else weights.add_step(held, step),
        state=weights.add_state(held),
        reference=None if variant.reference is None else artifact.text(variant.reference),
    )


def _tensor_check(one: _Given) -> TensorCheck | None:
    record = one.manifest.tensor_check
    if record is None:
        return None
    return TensorCheck(library=bytes(one.artifact.read(record.section)), guards=record.guards)


def _checks(given: Sequence[_Given]) -> list[Check]:
    by_variant: dict[str, list[Check]] = {}
    for one in given:
        for check in one.manifest.checks:
            by_variant.setdefault(check.variant, []).append(check)
    return [check for id in given[0].shard.jobs for check in by_variant.get(id, [])]
