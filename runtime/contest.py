"""`python -m tcbuild.runtime.contest FOLDER`: variants of one artifact, timed in turn on one call.

The builder asks for it, in a process of its own, to learn which of several ways to compile a graph is
the fastest. What is being done is written down before it is begun, so that after a crash it is known
which variant was at work.
"""

import fcntl
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file

from ..formats.container import Artifact
from ..formats.provider import bring_in
from . import devices, samples, weights
from .alert import Alert, Alerter
from .cuda_graphs import GraphOptions
from .host import usable
from .packing import PackedWeights
from .program import Program
from .program import load as load_program
from .state import State

FEWEST: Final = 8  # calls of each before anyone is out
MOST: Final = 200
CLEAR: Final = 0.01  # how likely it may be that a difference is chance
CLOSE: Final = 1.01  # as good as the fastest: the earlier one is taken
_POLL: Final = 0.05  # seconds
_TOLD: Final = 0.3  # seconds from one standing to the next


@dataclass
class Contestant:
    """A variant, called in one of two ways.

    Attributes:
        name: as the request has it.
        program: loaded.
        seconds: of each call so far.
    """

    name: str
    program: Program
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of its calls."""
        return statistics.median(self.seconds)


def main(argv: list[str]) -> int:
    """Time what FOLDER/request.json asks for; write FOLDER/result.json."""
    folder = Path(argv[0])
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    bring_in(request["imports"])
    with Artifact(request["artifact"]) as artifact, (folder / "at").open("w") as at:
        contest = _Contest(artifact, request, folder, at)
        contest.prepare()
        with contest.alone(Path(request["lock"])):
            contest.run(time.monotonic() + request["seconds"])
        result = {
            "seconds": {one.name: one.seconds for one in contest.all},
            "problems": contest.problems,
            "slower": [one.name for one in contest.slower],
        }
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return 0


class _Contest:
    """All contestants on one device, with one set of weights and one call."""

    def __init__(
        self, artifact: Artifact, request: Mapping[str, Any], folder: Path, at: Any
    ) -> None:
        manifest = artifact.manifest
        self._artifact = artifact
        self._request = request
        self._folder = folder
        self._at = at
        self._device = devices.choose(manifest, request["device"])
        variants = usable(manifest, self._device, str(artifact.path))
        self._variants = {variant.id: variant for variant in variants}
        self._weights = weights.load(artifact, self._device, check=False)
        self._packed = PackedWeights(self._weights)
        self._state = State(variants, self._weights)
        saved = load_file(folder / "inputs.safetensors")
        signature = manifest.signatures[variants[0].signature]
        self._tensors = [
            samples.in_layout(saved[str(leaf.index)], leaf.layout).to(self._device)
            for _, leaf in signature.tensors()
        ]
        self._mode: Callable[[], AbstractContextManager[Any]] = (
            torch.enable_grad if variants[0].grad else torch.inference_mode
        )
        self.all: list[Contestant] = []
        self.slower: list[Contestant] = []
        self.problems: dict[str, str] = {}

    def prepare(self) -> None:
        """Load every contestant, and call each until nothing happens for the first time."""
        for entry in self._request["contestants"]:
            name = entry["name"]
            self._note(name)
            alerts: list[Alert] = []
            graphs = GraphOptions(alerter=Alerter(name, alerts.append))
            program = load_program(
                self._variants[entry["variant"]],
                self._artifact,
                self._packed,
                self._state,
                self._device,
                graphs if entry["cuda_graph"] else None,
            )
            one = Contestant(name, program)
            try:
                for _ in range(3):
                    self._call(one)
            except Exception as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                self.problems[name] = f"its call fails: {lines[0]}"
                if "CUDA" in str(error):
                    raise  # nothing works any more in this process
                continue
            if alerts:
                self.problems[name] = alerts[0].reason
                continue
            one.seconds.clear()
            self.all.append(one)

    @contextmanager
    def alone(self, lock: Path) -> Iterator[None]:
        """Let no other build measure on the device; the wait for it is a sign of life."""
        with lock.open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._note("")
                    time.sleep(_POLL)
                else:
                    break
            yield

    def run(self, end: float) -> None:
        """Call everyone in turn until it is clear who is the fastest, or the time is over."""
        alive, told = list(self.all), time.monotonic()
        for number in range(MOST):
            if len(alive) < 2 and number >= FEWEST:
                return
            shift = number % max(1, len(alive))
            for one in alive[shift:] + alive[:shift]:
                self._note(one.name)
                self._call(one)
            if number + 1 >= FEWEST:
                left = contenders(alive)
                self.slower += [one for one in alive if one not in left]
                alive = left
            if time.monotonic() - told > _TOLD:
                self._stand()
                told = time.monotonic()
            if time.monotonic() > end:
                return

    def _call(self, one: Contestant) -> None:
        """Time a call, from an idle device to an idle device; it leaves everything as it was."""

        def timed() -> None:
            given = [tensor.clone() if i in written else tensor for i, tensor in inputs]
            devices.synchronize(self._device)
            began = time.perf_counter()
            made = one.program.run(given)
            devices.synchronize(self._device)
            one.seconds.append(time.perf_counter() - began)
            del made

        written = set(one.program.variant.written)
        inputs = list(enumerate(self._tensors))
        with self._mode():
            self._state.preserved(timed)

    def _stand(self) -> None:
        """Write down how all stand, for whoever watches; by rename."""
        standing = {
            "microseconds": {one.name: one.median * 1e6 for one in self.all},
            "slower": [one.name for one in self.slower],
        }
        path = self._folder / self._request["standing"]
        aside = path.with_name(f"new-{path.name}")
        aside.write_text(json.dumps(standing), encoding="utf-8")
        aside.replace(path)

    def _note(self, name: str) -> None:
        self._at.seek(0)
        self._at.truncate()
        self._at.write(name)
        self._at.flush()


def contenders(alive: Sequence[Contestant]) -> list[Contestant]:
    """Return who is still in the running: not clearly slower, call for call, than the fastest."""
    fastest = min(alive, key=lambda one: one.median)
    return [one for one in alive if one is fastest or not is_slower(one.seconds, fastest.seconds)]


def is_slower(seconds: Sequence[float], than: Sequence[float]) -> bool:
    """Return whether a sign test over calls made in turn says so, of a difference that matters."""
    if statistics.median(seconds) < CLOSE * statistics.median(than):
        return False
    pairs = list(zip(seconds, than, strict=True))
    lost = sum(one > other for one, other in pairs)
    chance = sum(math.comb(len(pairs), k) for k in range(lost, len(pairs) + 1)) / 2 ** len(pairs)
    return bool(chance < CLEAR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
