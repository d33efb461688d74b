"""The safetensors file with the weights of an artifact, open for reading."""

import os
import stat
from pathlib import Path
from typing import Final

from . import section as sections
from . import weights
from .errors import DigestError, MissingWeightsError, WeightsError
from .external import External
from .private_map import map_private
from .safetensors_header import Entry, read_header
from .strict_json import show
from .weights import Weights

TIP: Final = (
    "use the file that was written with the artifact, beside it or as weights=PATH, or rebuild both"
)


class WeightsFile:
    """A file that has been found to have the tensors of a record: by name, dtype and shape.

    It may hold more than these, and in any order. It must be replaced by renaming another one over it.

    Attributes:
        path: of the file.
        view: its bytes, privately mapped; see `private_map`. It stays when the file is closed.
        entries: where the tensors of the record are in it.
    """

    def __init__(self, path: str | os.PathLike[str], record: Weights, external: External) -> None:
        """Open and map the file, and read its header.

        Raises:
            MissingWeightsError: there is no such file, or it cannot be read.
            WeightsError: it is not what safetensors prescribes, or a tensor is missing, or has another
                dtype or shape.
        """
        self.path = Path(path)
        self._external = external
        where = str(self.path)
        try:
            # To open a pipe would wait for its writer.
            regular = stat.S_ISREG(self.path.stat().st_mode)
            file = self.path.open("rb") if regular else None
        except OSError as error:
            found = error.strerror or str(error)
            raise MissingWeightsError(where, found=found, expected=_wanted(external)) from None
        if file is None:
            found = "no regular file"
            raise MissingWeightsError(where, found=found, expected=_wanted(external))
        with file:
            self.view = map_private(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        try:
            entries = read_header(self.view, where)
            weights.check_external(record, entries, where)
        except WeightsError as error:
            raise WeightsError(
                error.where, found=error.found, expected=error.expected, tip=TIP
            ) from None
        self.entries = {name: entries[name] for name in external.tensors}

    def check(self, name: str, *, thorough: bool = False) -> None:
        """Read a tensor and hold it against its checksum.

        Args:
            name: of a stored tensor.
            thorough: also against its digest, which takes ten times as long.

        Raises:
            DigestError: its bytes are not the ones that were recorded.
        """
        entry, digests = self.entries[name], self._external.tensors[name]
        data = self.bytes(entry)
        pairs = [(sections.xxh3(data), digests.checksum)]
        if thorough:
            pairs.append((sections.sha256(data), digests.digest))
        for found, expected in pairs:
            if found != expected:
                place = f"{self.path}: tensor {show(name)}"
                raise DigestError(place, found=found, expected=expected, tip=TIP)

    def bytes(self, entry: Entry) -> memoryview:
        """Return the bytes of a tensor, in row-major order."""
        return self.view[entry.start : entry.end]


def _wanted(external: External) -> str:
    return f"the weights that were written as {external.file}"
