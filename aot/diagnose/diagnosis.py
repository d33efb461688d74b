"""The ladder, from the ground up, until a rung does not hold; then the operators that are at fault."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from .. import own_process
from ..plan import Plan
from ..spec import Spec
from ..writing import write_whole, writing
from . import avoid, search
from .kinds import CRASHES, HANGS
from .ladder import BY_NAME, RUNGS
from .process import Hand, Reply, anew

REPRO_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Climbed:
    """A rung, and what came of it; `kind` is "" where it holds, as in a Reply."""

    rung: str
    adds: str
    kind: str
    said: str
    seconds: float
    peak: int


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator at fault: its name, what it takes and makes, and the user's line."""

    op: str
    takes: tuple[str, ...]
    makes: tuple[str, ...]
    line: str
    code: str


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The first rung that does not hold.

    Attributes:
        rung: its name.
        kind: one of kinds.py.
        said: the error, in words.
        operators: that show it by themselves, the last one makes what is wrong; none where it shows only
            with the whole model.
        line: of the user's, where one is known.
        avoid: options and boundaries that avoid it, each tried or following from the kind.
        repro: the file that shows it.
        reproduces: whether it does so, when it was run.
    """

    rung: str
    kind: str
    said: str
    operators: tuple[Operator, ...]
    line: str
    avoid: tuple[str, ...]
    repro: Path | None
    reproduces: bool


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that was found; `fault` is None where every rung holds."""

    name: str
    job: str
    rungs: tuple[Climbed, ...]
    fault: Fault | None


Watch = Callable[[str, str, float, int], None]


def diagnose(
    path: Path,
    *,
    job: str | None = None,
    out: Path,
    seconds: float = 300.0,
    watch: Watch = lambda rung, kind, seconds, peak: None,
) -> Diagnosis:
    """Climb the ladder for one job of a spec.

    Args:
        path: of the `tcbuild.toml`.
        job: a pattern of the id of the job; the first of those that match it, or of all.
        out: the folder that gets `repro.py` where there is a fault.
        seconds: that a rung, or one trial of a search, may take.
        watch: told the rung, what came of it ("..." while it goes on), its seconds and its peak of memory.

    Raises:
        SpecError: the spec is not valid, or no job is meant.
        OutputError: `out` cannot be written to.
    """
    spec = Spec.load(path)
    chosen = Plan.of(spec).only([] if job is None else [job]).jobs[0]
    rungs: list[Climbed] = []
    with tempfile.TemporaryDirectory(prefix="tcbuild-") as made:
        folder, cache = Path(made), Path(made) / "inductor"
        for rung in RUNGS:
            watch(rung.name, "...", 0.0, 0)
            place = folder / rung.name.replace(" ", "-")
            with Hand(path, chosen.id, place, cache, seconds) as hand:
                reply = hand.ask(
                    {"do": "rung", "rung": rung.name}, partial(watch, rung.name, "...")
                )
            shutil.rmtree(place, ignore_errors=True)
            watch(rung.name, reply.kind or "ok", reply.seconds, reply.peak)
            rungs.append(
                Climbed(
                    rung=rung.name,
                    adds=rung.adds,
                    kind=reply.kind,
                    said=reply.said,
                    seconds=reply.seconds,
                    peak=reply.peak,
                )
            )
            if reply.kind:
                with Hand(path, chosen.id, folder / "search", cache, seconds) as hand:
                    watch("search", "...", 0.0, 0)
                    fault = _Looking(hand, rung.name, reply, out, cache).fault()
                return Diagnosis(name=spec.name, job=chosen.id, rungs=tuple(rungs), fault=fault)
    return Diagnosis(name=spec.name, job=chosen.id, rungs=tuple(rungs), fault=None)


class _Looking:
    """The way from a rung that does not hold to the operators, the repro and what avoids it."""

    def __init__(self, hand: Hand, rung: str, reply: Reply, out: Path, cache: Path) -> None:
        self._hand = hand
        self._rung = rung
        self._reply = reply
        self._out = out
        self._cache = cache

    def fault(self) -> Fault:
        told: Mapping[str, Any] = self._hand.ask({"do": "graph"}).record
        nodes = told.get("nodes", [])
        culprit = self._culprit(nodes) if nodes else None
        reply = self._reply if culprit is None else culprit.reply
        chosen = () if culprit is None else culprit.nodes
        operators = tuple(
            Operator(
                op=node["op"],
                takes=tuple(node["takes"]),
                makes=tuple(node["makes"]),
                line=node["line"],
                code=node["code"],
            )
            for node in (nodes[i] for i in chosen)
        )
        repro, reproduces = None, False
        if culprit is not None:
            repro, reproduces = self._repro(culprit, operators)
        return Fault(
            rung=self._rung,
            kind=self._reply.kind,
            said=reply.said or self._reply.said,
            operators=operators,
            line=reply.record.get("line") or (operators[-1].line if operators else ""),
            avoid=self._ways(culprit, operators),
            repro=repro,
            reproduces=reproduces,
        )

    def _culprit(self, nodes: list[dict[str, Any]]) -> search.Culprit | None:
        if BY_NAME[self._rung].cut:
            return search.search([node["uses"] for node in nodes], self._reply.kind, self._attempt)
        if "node" in self._reply.record and self._reply.kind not in (CRASHES, HANGS):
            found = self._reply
        else:
            found = self._hand.ask({"do": "walk", "kind": self._reply.kind})
        if found.kind != self._reply.kind or "node" not in found.record:
            return None
        return search.Culprit(nodes=(found.record["node"],), outputs=None, reply=found)

    def _attempt(
        self,
        nodes: Any,
        outputs: Any,
        options: Mapping[str, object] | None = None,
    ) -> Reply:
        request: dict[str, Any] = {"do": "window", "rung": self._rung, "nodes": list(nodes)}
        request |= {"outputs": None if outputs is None else list(outputs)}
        return self._hand.ask({**request, "options": dict(options or {})})

    def _repro(
        self, culprit: search.Culprit, operators: tuple[Operator, ...]
    ) -> tuple[Path | None, bool]:
        """Write the repro without the user's code, where that is enough to show the fault."""
        path = self._out / "repro.py"
        headline = f"{operators[-1].op} {self._reply.kind} at the rung {self._rung!r}."
        written = False
        for modules in (False, True):
            made = self._hand.ask(
                {
                    "do": "repro",
                    "nodes": list(culprit.nodes),
                    "outputs": culprit.outputs,
                    "rung": self._rung,
                    "kind": self._reply.kind,
                    "headline": headline,
                    "modules": modules,
                }
            )
            if "source" not in made.record:
                break
            with writing(path):
                self._out.mkdir(parents=True, exist_ok=True)
            write_whole(made.record["source"], path)
            written = True
            if shows(path, self._reply.kind, self._cache):
                return path, True
        return (path if written else None), False

    def _ways(
        self, culprit: search.Culprit | None, operators: tuple[Operator, ...]
    ) -> tuple[str, ...]:
        ways = []
        if culprit is not None and BY_NAME[self._rung].cut:
            for option, value, words in avoid.OPTIONS.get(self._rung, ()):
                if not self._attempt(culprit.nodes, culprit.outputs, {option: value}).kind:
                    ways.append(words)
        if not operators:
            return tuple(ways)
        last = operators[-1]
        form = last.makes[0] if last.makes else ""
        return (*ways, *avoid.boundaries(self._rung, self._reply.kind, last.op, form))


def shows(path: Path, kind: str, cache: Path) -> bool:
    """Run a repro, and return whether it shows the fault: a crash by its signal, others by exit code 1."""
    process = subprocess.Popen(
        [sys.executable, str(path)],
        env=anew(cache),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=REPRO_SECONDS)
    except subprocess.TimeoutExpired:
        own_process.end(process)
        process.communicate()
        return False
    if kind == CRASHES:
        return process.returncode < 0
    return process.returncode == 1 and (kind == HANGS or b"FAULT" in said)
