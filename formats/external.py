"""Weights in a file of their own, beside the artifact."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import section as sections
from .errors import ManifestError
from .strict_json import show
from .text import is_label

FEATURE: Final = "external_weights"  # in the manifest's `requires`: the file alone is not the model
SUFFIX: Final = ".weights.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Digests:
    """What the bytes of one stored tensor must be.

    Attributes:
        digest: `sha256:` and the hex digest.
        checksum: `xxh3_128:` and the hex digest: quick enough to be checked at each load.
    """

    digest: str
    checksum: str


@dataclass(frozen=True, kw_only=True, slots=True)
class External:
    """Which file has the weights, and what must be in it.

    Attributes:
        file: its name; it lies in the artifact's folder, unless the reader is given another path.
        tensors: each stored tensor by name.
    """

    file: str
    tensors: dict[str, Digests]


def file_beside(artifact: Path) -> Path:
    """Return where the weights of an artifact are written: `enc.weights.safetensors` for `enc.tcb`."""
    return artifact.with_name(artifact.name.removesuffix(".tcb") + SUFFIX)


def check(external: External, stored: Collection[str], where: str) -> None:
    """Refuse a record of a file that is none, or has not a digest for each stored tensor.

    Args:
        external: the record.
        stored: the names of the weights that are stored under their own name.
        where: for messages.

    Raises:
        ManifestError: naming the file or the tensor.
    """
    name = external.file
    if not is_label(name) or "/" in name or "\\" in name or name in (".", ".."):
        expected = "the name of a file in the artifact's folder"
        raise ManifestError(f"{where}: file", found=show(name), expected=expected)
    differ = set(stored) ^ external.tensors.keys()
    if differ:
        tensor = min(differ)
        found = "a tensor that is not stored" if tensor in external.tensors else "no digests"
        place = f"{where}: tensor {show(tensor)}"
        raise ManifestError(place, found=found, expected="digests of each stored tensor")
    for tensor, digests in external.tensors.items():
        place = f"{where}: tensor {show(tensor)}"
        if not sections.is_digest(digests.digest):
            expected = "sha256: and 64 hex digits"
            raise ManifestError(place, found=f"digest {show(digests.digest)}", expected=expected)
        if not sections.is_checksum(digests.checksum):
            expected = "xxh3_128: and 32 hex digits"
            raise ManifestError(
                place, found=f"checksum {show(digests.checksum)}", expected=expected
            )
