"""Finished compilations, by digest. Nothing in it is ever half-written, and all of it may be deleted."""

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..formats.cache import cache_folder
from ..formats.errors import FormatError
from ..formats.record import decode, encode
from ..formats.text import is_file_name
from .inductor import LibraryFiles
from .packing import Packed
from .shared_cache import SharedCache, pack, unpack


@dataclass(frozen=True, kw_only=True)
class FinishedJob:
    """What a compilation comes to.

    Attributes:
        library: what was compiled.
        relations: what the sizes must satisfy for it to be right.
        packed: the constants that it takes packed, by its name for each.
    """

    library: LibraryFiles
    relations: tuple[str, ...]
    packed: Mapping[str, Packed] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return all but the files, as JSON values."""
        return {
            "constants": list(self.library.constants),
            "relations": list(self.relations),
            "packed": encode(dict(self.packed)),
        }

    @classmethod
    def of(cls, record: Mapping[str, Any], files: Mapping[str, bytes]) -> "FinishedJob":
        """Return what was recorded.

        Raises:
            KeyError, TypeError, ManifestError: it is no record of a finished job.
        """
        return cls(
            library=LibraryFiles(files=files, constants=tuple(record["constants"])),
            relations=tuple(record["relations"]),
            packed=decode(dict[str, Packed], record["packed"], "packed"),
        )


_ASIDE: Final = ".new-"
STALE: Final = 24 * 3600.0  # seconds: what has been written aside for longer, nobody is writing


class JobCache:
    """A folder with one folder for each finished job: its files, and `job.json` with their digests.

    Attributes:
        path: of the folder.
        jobs: of the finished jobs.
        shared: where other machines find the jobs, too, and theirs are found; None for nowhere.
    """

    def __init__(
        self,
        path: Path | None = None,
        shared: SharedCache | None = None,
        jobs: Path | None = None,
    ) -> None:
        """Name the folder, and where in it the jobs are, if they are to be elsewhere.

        Raises:
            ToolError: $TCBUILD_SHARED_CACHE names something that cannot be a shared cache.
        """
        self.path = (path or cache_folder()).resolve()
        self.shared = shared or SharedCache.of_user()
        self.jobs = jobs or self.path / "jobs"

    def get(self, key: str) -> FinishedJob | None:
        """Return a finished job's files, or None; one that is damaged is removed."""
        found = self._here(key)
        if found is None and self.shared is not None:
            found = _read(self.shared, key)
            if found is not None:
                self._keep(key, found)
        return found

    def put(self, key: str, made: FinishedJob) -> None:
        """Keep a finished job."""
        self._keep(key, made)
        if self.shared is not None:
            record = {**made.record(), "key": [key]}
            self.shared.put(f"jobs/{key}", pack(record, made.library.files))

    def _here(self, key: str) -> FinishedJob | None:
        job = self.jobs / key
        try:
            record = json.loads((job / "job.json").read_text(encoding="utf-8"))
            files = {name: (job / name).read_bytes() for name in record["files"]}
            if all(_digest(data) == record["files"][name] for name, data in files.items()):
                return FinishedJob.of(record, files)
        except (
            FileNotFoundError,
            NotADirectoryError,
            ValueError,
            KeyError,
            TypeError,
            FormatError,
        ):
            pass
        if job.is_dir():
            shutil.rmtree(job, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # whoever writes there next says so
                job.unlink()
        return None

    def _keep(self, key: str, made: FinishedJob) -> None:
        """Keep a finished job in the folder: written aside, then renamed into place."""
        self.jobs.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=self.jobs, prefix=_ASIDE))
        try:
            self._sweep(aside.stat().st_mtime)
            files = made.library.files
            for name, data in files.items():
                (aside / name).write_bytes(data)
            record = {
                "files": {name: _digest(data) for name, data in files.items()},
                **made.record(),
            }
            (aside / "job.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
            try:
                aside.rename(self.jobs / key)
            except OSError:
                if not (self.jobs / key).exists():
                    raise  # not the case that another process was first
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _sweep(self, now: float) -> None:
        """Remove what builds that were killed have left.

        Args:
            now: the time by the clock of the file system, which may not be this machine's.
        """
        for left in self.jobs.glob(f"{_ASIDE}*"):
            with contextlib.suppress(OSError):  # another build was first
                if now - left.stat().st_mtime > STALE:
                    shutil.rmtree(left, ignore_errors=True)


def _read(shared: SharedCache, key: str) -> FinishedJob | None:
    """Return what others have finished; an entry of something else is told, and not used."""
    name = f"jobs/{key}"
    body = shared.get(name)
    if body is None:
        return None
    try:
        record, files = unpack(body)
        if record["key"] != [key] or not all(map(is_file_name, files)) or "job.json" in files:
            raise ValueError(record["key"])
        return FinishedJob.of(record, files)
    except (ValueError, KeyError, TypeError, FormatError) as error:
        shared.notes.append(
            f"{shared.url}/{name}: not used: found the entry of something else: {error}"
        )
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
