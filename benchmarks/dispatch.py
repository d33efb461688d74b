"""What a call costs beyond the compiled code: guards, argument binding, bookkeeping.

Tiny models, so that next to nothing is computed. All ways take turns in one process. The bare
runner is the compiled library behind no checks at all, called with a ready list of tensors; `over
bare` is the median difference to it in the same round, and `noise` how far off that may be. Times
are medians in microseconds a call.
"""

import logging
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import torch

import measure
from measure import Row
from tcbuild import aot, runtime
from tcbuild.formats.container import Artifact
from tcbuild.runtime import program, weights
from tcbuild.runtime.packing import PackedWeights
from tcbuild.runtime.state import State

BATCH: Final = torch.export.Dim("batch", min=2, max=64)
SIZES: Final = range(2, 65)
TOO_LARGE: Final = 65
SAMPLE_SECONDS: Final = 0.001  # a sample is as many calls as take about this long

CPU: Final = torch.device("cpu")
MODES: Final[dict[str, Callable[[], Any]]] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
}

Args = tuple[Any, ...]
Pairs = dict[str, list[tuple[torch.Tensor, torch.Tensor]]]


class Three(torch.nn.Module):
    """Three tensors, float32 [batch, 8]."""

    count = 3
    shapes: ClassVar[Any] = {name: {0: BATCH} for name in "xyz"}

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x * self.weight + y + z

    @staticmethod
    def arguments(tensors: Sequence[torch.Tensor]) -> Args:
        """Return the arguments of a call with these tensors."""
        return tuple(tensors)


class Nested(torch.nn.Module):
    """64 tensors, float32 [batch, 8], in a dict of 8 lists of 4 pairs."""

    count = 64
    shapes: ClassVar[Any] = {
        "groups": {f"group {i}": [({0: BATCH}, {0: BATCH})] * 4 for i in range(8)}
    }

    def forward(self, groups: Pairs) -> torch.Tensor:
        sums = [x + y for pairs in groups.values() for x, y in pairs]
        return torch.stack(sums).sum(0)

    @staticmethod
    def arguments(tensors: Sequence[torch.Tensor]) -> Args:
        """Return the arguments of a call with these tensors."""
        pairs = list(zip(tensors[::2], tensors[1::2], strict=True))
        return ({f"group {i}": pairs[4 * i : 4 * i + 4] for i in range(8)},)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, and the batch sizes of the calls that are timed one after the other."""

    name: str
    model: type[Three] | type[Nested]
    sizes: Sequence[int]

    def tensors(self) -> list[list[torch.Tensor]]:
        """Return the tensors of each call."""
        return [[torch.randn(size, 8) for _ in range(self.model.count)] for size in self.sizes]

    def artifact(self) -> Path:
        """Return the artifact of the model."""

        def build(path: Path) -> None:
            module, args = self.model().eval(), self.model.arguments(self.tensors()[0])
            shapes = self.model.shapes
            aot.build(aot.Spec.from_module(module, args, dynamic_shapes=shapes, verify=False), path)

        return self._kept(".tcb", build, *measure.BUILDER)

    def package(self) -> Path:
        """Return a package of torch's own, of the same graph."""

        def build(path: Path) -> None:
            module, args = self.model().eval(), self.model.arguments(self.tensors()[0])
            with torch.no_grad():
                graph = torch.export.export(module, args, dynamic_shapes=self.model.shapes)
                torch._inductor.aoti_compile_and_package(graph, package_path=str(path))

        return self._kept(".pt2", build)

    def _kept(self, suffix: str, build: Callable[[Path], None], *sources: Path) -> Path:
        name = self.model.__name__.lower() + suffix
        return measure.kept(name, build, *sources, Path(__file__))


HITS: Final = (
    Case(name="3 tensors", model=Three, sizes=(4,)),
    Case(name="3 tensors, 4 sizes in turn", model=Three, sizes=(4, 5, 6, 7)),
    Case(name="64 tensors in containers", model=Nested, sizes=(4,)),
)


KEPT: Final[list[program.Program]] = []


def bare_runner(path: Path, variant: str | None) -> program.Run:
    """Load one variant, and return what runs it."""
    with Artifact(path) as artifact:
        records = {record.id: record for record in artifact.manifest.variants}
        record = records[str(variant)]
        packed = PackedWeights(weights.load(artifact))
        loaded = program.load(record, artifact, packed, State([], {}), CPU)
        KEPT.append(loaded)  # it holds the weights that the library reads
        return loaded.run


def timer(function: Callable[..., Any], calls: Sequence[Args]) -> Callable[[], float]:
    """Return what times the calls, made one after the other, in microseconds a call."""
    timed = timeit.Timer(
        "for args in calls: function(*args)", globals={"function": function, "calls": calls}
    )
    timed.timeit(20)
    number = max(1, int(SAMPLE_SECONDS / (timed.timeit(20) / 20)))
    return lambda: timed.timeit(number) / number / len(calls) * 1e6


def time_hits(case: Case, mode: str, threads: int, rounds: int) -> list[Row]:
    """Time each way to answer the case's calls."""
    torch.compiler.reset()
    tensors, module = case.tensors(), case.model().eval()
    calls = [case.model.arguments(each) for each in tensors]
    model = runtime.load(case.artifact(), on_miss="raise")
    with MODES[mode]():
        bare = bare_runner(case.artifact(), model.explain(*calls[0]).variant)
        package = torch._inductor.aoti_load_package(str(case.package()))
        ways = {
            "bare runner": timer(bare, [(each,) for each in tensors]),
            "tcbuild": timer(model, calls),
            "aoti_load_package": timer(package, calls),
            "torch.compile": timer(torch.compile(module), calls),
            "eager": timer(module, calls),
        }
        took = measure.in_turn(ways, rounds)
    bare_times = took["bare runner"]
    over = {name: measure.difference(times, bare_times) for name, times in took.items()}
    return [
        {
            "table": "hits",
            "case": case.name,
            "mode": mode,
            "threads": threads,
            "way": name,
            "us": measure.median(times),
            "over bare": over[name],
            "noise": measure.noise(times, bare_times),
            "x tcbuild": over[name] / over["tcbuild"],
        }
        for name, times in took.items()
    ]


def time_slow_paths(threads: int, rounds: int) -> list[Row]:
    """Time the calls that are not like one before, and those that miss."""
    seen = Case(name="", model=Three, sizes=SIZES)
    module, missing = Three().eval(), [tuple(torch.randn(TOO_LARGE, 8) for _ in range(3))]
    calls = [Three.arguments(each) for each in seen.tensors()]
    path = seen.artifact()

    def first_calls() -> float:
        model = runtime.load(path, on_miss="raise")
        once = timeit.Timer(
            "for args in calls: model(*args)", globals={"model": model, "calls": calls}
        )
        return once.timeit(1) / len(calls) * 1e6

    with torch.inference_mode():
        ways = {
            "first call of a size": first_calls,
            "miss, answered by the fallback module": timer(
                runtime.load(path, fallback=module), missing
            ),
            "miss, answered by the embedded graph": timer(runtime.load(path), missing),
            "the call that misses, eager": timer(module, missing),
        }
        took = measure.in_turn(ways, rounds)
    return [
        {"table": "slow", "case": name, "threads": threads, "us": measure.median(times)}
        for name, times in took.items()
    ]


def promises(rows: Sequence[Row], threads: int) -> list[Row]:
    """Hold the cost over the bare runner, under inference_mode, against what is promised."""
    timed = {
        (row["case"], row["way"]): row
        for row in rows
        if (row["mode"], row["threads"]) == ("inference_mode", threads)
    }
    few, many = (timed[HITS[i].name, "tcbuild"] for i in (0, 2))

    def over_bare(row: Row, limit: float) -> Row:
        what = f"{row['case']}: us over bare"
        return measure.promise(what, threads, row["over bare"], limit, row["noise"])

    def part_of(way: str) -> Row:
        other = timed[HITS[0].name, way]["over bare"]
        noise = few["noise"] / abs(other)
        what = f"{few['case']}: part of {way}'s"
        return measure.promise(what, threads, few["over bare"] / other, 1 / 3, noise)

    return [
        over_bare(few, 3),
        part_of("aoti_load_package"),
        part_of("torch.compile"),
        over_bare(many, 8),
    ]


def main() -> None:
    options = measure.options(__doc__, rounds=101)
    logging.getLogger("tcbuild.runtime").setLevel(logging.ERROR)  # the misses are intended
    torch._inductor.config.compile_threads = 1  # else workers start up while calls are timed
    rows: list[Row] = []
    with measure.own_folder():
        for threads in options.threads:
            torch.set_num_threads(threads)
            hits = [
                row
                for mode in MODES
                for case in HITS
                for row in time_hits(case, mode, threads, options.rounds)
            ]
            rows += [*hits, *time_slow_paths(threads, options.rounds), *promises(hits, threads)]
    columns = {"case": "", "mode": "", "threads": "d", "way": ""}
    times = {"us": ".2f", "over bare": ".2f", "noise": ".2f", "x tcbuild": ".1f"}
    measure.show("Calls like one before, us", rows, "hits", {**columns, **times})
    measure.show("Other calls, us", rows, "slow", {"case": "", "threads": "d", "us": ".1f"})
    measure.show("Promises", rows, "promises", measure.PROMISES)
    measure.save(options.json, "dispatch", rows)


if __name__ == "__main__":
    main()
