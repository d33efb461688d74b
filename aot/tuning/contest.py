"""Variants timed against each other in a fresh process; one that crashes or hangs is out, the rest go on."""

import json
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file

from ...formats.target import Target
from .. import measuring, operators, own_process
from .standings import Standings

HANG: Final = 120.0  # seconds without a sign of life
STANDING: Final = "standing.json"  # what the calls so far have taken, written down meanwhile
_POLL: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A variant of the artifact, and how it is called."""

    name: str
    variant: str
    cuda_graph: bool


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a contest found, by the names of its entries.

    Attributes:
        seconds: of each call, for those that could be called.
        problems: why the others could not.
    """

    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def run(
    artifact: Path,
    tensors: Sequence[torch.Tensor],
    entries: Sequence[Entry],
    target: Target,
    seconds: float,
    standings: Standings | None = None,
) -> Result:
    """Time entries in turn.

    Args:
        artifact: with all the variants.
        tensors: of the call, in order.
        entries: in the order in which ties are decided.
        target: whose device to use; nothing else of any build is measured on it meanwhile.
        seconds: that the timing may take.
        standings: told how they do, some times a second.
    """
    standings = standings or Standings()
    problems: dict[str, str] = {}
    left = list(entries)
    while left:
        with tempfile.TemporaryDirectory(prefix="tcbuild-") as made:
            folder = Path(made)
            saved = {str(i): t.detach().cpu().contiguous().clone() for i, t in enumerate(tensors)}
            save_file(saved, folder / "inputs.safetensors")
            modules = operators.files()
            request = {
                "artifact": str(artifact),
                "contestants": [vars(entry) for entry in left],
                "device": target.device,
                "imports": modules,
                "lock": str(measuring.lock(target)),
                "seconds": seconds,
                "standing": STANDING,
            }
            (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
            ended = _process(folder, standings)
            if not ended:
                result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
                problems |= result["problems"]
                for name in problems:
                    standings.out(name, problems[name])
                times = {n: statistics.median(s) * 1e6 for n, s in result["seconds"].items() if s}
                standings.measured(times, result["slower"])
                return Result(seconds=result["seconds"], problems=problems)
            at = (folder / "at").read_text(encoding="utf-8") if (folder / "at").exists() else ""
        if at not in {entry.name for entry in left}:  # not the fault of one of them
            return Result(problems={**problems, **{entry.name: ended for entry in left}})
        problems[at] = ended
        standings.out(at, ended)
        left = [entry for entry in left if entry.name != at]
    return Result(problems=problems)


def _process(folder: Path, standings: Standings) -> str:
    """Run the process; return how it failed, in words, or nothing."""
    environment = own_process.environment()
    command = own_process.command("runtime.contest", str(folder))
    said, at = folder / "said", folder / "at"
    with said.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    seen, since = -1, time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(_POLL)
            _tell(folder / STANDING, standings)
            sign = at.stat().st_mtime_ns if at.exists() else 0
            if sign != seen:
                seen, since = sign, time.monotonic()
            elif time.monotonic() - since > HANG:
                return f"its call hangs: no answer within {HANG:.0f} s"
    finally:
        own_process.end(process)
    code = process.returncode
    if code < 0:
        return f"its call ends the process with {signal.Signals(-code).name}"
    lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"its call fails: {(lines or ['no output'])[-1][:300]}" if code else ""


def _tell(path: Path, standings: Standings) -> None:
    """Tell what the process has written down last."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    standings.measured(said["microseconds"], said["slower"])
