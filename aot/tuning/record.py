"""What was found before: the trials of a search, by all that they depend on."""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from ...formats.errors import FormatError
from ...formats.record import decode, encode
from ...formats.target import Target
from ...formats.trial import Trial
from ..shared_cache import SharedCache

REVISION: Final = 1  # raise it when what is measured changes


class TuningRecord:
    """The trials of one job in a folder that stays; written aside and renamed, so never half there."""

    def __init__(
        self,
        cache: Path,
        target: Target,
        keys: Sequence[str],
        rule: str,
        shared: SharedCache | None = None,
    ) -> None:
        """Name the record.

        Args:
            cache: the folder.
            target: of the job.
            keys: of all its candidates in the job cache.
            rule: by which a candidate is right, and how long was searched.
            shared: where other machines like this one have their records.
        """
        depends = [str(REVISION), _machine(target), rule, *keys]
        digest = hashlib.sha256("\n".join(depends).encode()).hexdigest()
        self._path = cache / "tuned" / f"{digest}.json"
        self._shared = shared

    def read(self) -> tuple[Trial, ...]:
        """Return the trials; none where there is no record, or a damaged one."""
        found = _trials(self._here())
        if not found and self._shared is not None:
            found = _trials(self._shared.get(f"tuned/{self._path.name}") or b"")
        return found

    def write(self, trials: Sequence[Trial]) -> None:
        """Keep the trials."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(f".{os.getpid()}")
        data = json.dumps([encode(trial) for trial in trials]).encode()
        aside.write_bytes(data)
        aside.replace(self._path)
        if self._shared is not None:
            self._shared.put(f"tuned/{self._path.name}", data)

    def _here(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError:
            return b""


def _trials(text: bytes) -> tuple[Trial, ...]:
    """Read a record; one that is damaged has no trials."""
    try:
        trials = tuple(decode(Trial, item, "trial") for item in json.loads(text))
    except (ValueError, TypeError, FormatError):
        return ()
    return trials if sum(trial.chosen for trial in trials) == 1 else ()


def _machine(target: Target) -> str:
    """Return what times on this machine depend on."""
    if target.device == "cuda":
        return torch.cuda.get_device_name()
    return f"{_processor()} {torch.get_num_threads()} threads"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
