"""One cell of gpu.py: what a process of its own builds, or measures, of one model."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

import gpu_models as models
from gpu_gate import Gate
from gpu_models import Args

WARM_CALLS: Final = 10
WARM_SECONDS: Final = 0.3  # for clocks that rise under load
TOLERANCE: Final = 2**-4  # of the largest value: what two ways to round to bfloat16 may differ by
SIDE: Final = 8192  # of the matrices that the rate of products is taken from
COPIED: Final = 2 << 30  # bytes
REPEATED: Final = 20
ROUNDS: Final = 5

Row = dict[str, Any]
Call = Callable[[], Tensor]
Report = Callable[[Row], None]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all cells of a run have in common.

    Attributes:
        device: "cpu", or "cuda:0".
        small: take tiny sizes.
        folder: where the artifacts lie.
        calls: how many are timed.
        mode: that tcbuild builds with.
        gate: of the cell that runs with it.
    """

    device: str
    small: bool
    folder: Path
    calls: int
    mode: str
    gate: Gate = field(default_factory=Gate)

    def case(self, model: str) -> models.Case:
        """Return the model of that name."""
        return models.CASES[model](self.small)

    def artifact(self, model: str) -> Path:
        """Return the path of the model's artifact."""
        return self.folder / f"{model}.tcb"

    def package(self, model: str) -> Path:
        """Return the path of the model's package of torch's own."""
        return self.folder / f"{model}.pt2"

    def made(self, maker: str, model: str) -> Path:
        """Return the path of what a maker writes."""
        return self.package(model) if maker == "make package" else self.artifact(model)

    @property
    def searches(self) -> bool:
        """Whether tcbuild searches, in processes of its own that the gate does not know."""
        return self.mode == "max-autotune"

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device != "cpu":
            torch.cuda.synchronize()


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model that was made, with its call."""

    name: str
    module: nn.Module
    args: Args
    setting: Setting

    @classmethod
    def make(cls, name: str, setting: Setting) -> "Subject":
        """Make the model of that name."""
        case = setting.case(name)
        return cls(
            name=name,
            module=models.module(case, setting.device),
            args=models.inputs(case, setting.device),
            setting=setting,
        )


Way = Callable[[Subject], Call]

# As the modes of torch.compile, said in full: from torch 2.11 on, "max-autotune" includes the
# search by coordinate descent.
SEARCH: Final = {"max_autotune": True, "coordinate_descent_tuning": True}
COMPILED: Final[Mapping[str, dict[str, Any]]] = {
    "compile": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune": {**SEARCH, "triton.cudagraphs": True},
    "max-no-descent": {"max_autotune": True, "triton.cudagraphs": True},
    "max-no-graph": SEARCH,
}


def eager(subject: Subject) -> Call:
    """Call the module."""
    return lambda: subject.module(*subject.args)


def compiled(options: Mapping[str, Any]) -> Way:
    """Return the way that calls the module behind torch.compile."""

    def way(subject: Subject) -> Call:
        call: Callable[..., Tensor] = torch.compile(subject.module, options=dict(options))
        return lambda: call(*subject.args)

    return way


def replayed(inner: Way) -> Way:
    """Return the way that captures a call in a CUDA graph, and replays it and nothing else.

    No input is copied into the graph, and each call overwrites the output of the one before.
    """

    def way(subject: Subject) -> Call:
        call = inner(subject)
        call()
        make: Any = torch.cuda.Stream
        aside = make()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=aside):
            out = call()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay

    return way


def packaged(subject: Subject) -> Call:
    """Load the package of torch's own."""
    path = str(subject.setting.package(subject.name))
    model: Any = torch._inductor.aoti_load_package(path, run_single_threaded=True)
    return lambda: model(*subject.args)


def artifact(**options: Any) -> Way:
    """Return the way that loads the artifact; a call that it does not serve is an error."""

    def way(subject: Subject) -> Call:
        from tcbuild import runtime

        setting = subject.setting
        model = runtime.load(
            setting.artifact(subject.name), device=setting.device, on_miss="raise", **options
        )
        return lambda: model(*subject.args)

    return way


WAYS: Final[Mapping[str, Way]] = {
    "eager": eager,
    "eager graph": replayed(eager),
    **{name: compiled(options) for name, options in COMPILED.items()},
    "aoti": packaged,
    "bare replay": replayed(compiled(SEARCH)),
    "tcbuild": artifact(),
    "tcbuild borrowed": artifact(borrow_inputs=True, borrow_outputs=True),
}
TUNED: Final = (*COMPILED, "bare replay")


def make_package(subject: Subject) -> Row:
    """Compile the model to a package of torch's own.

    Linked as Inductor links by default, the library crashes where C++ is bound to another copy of
    its runtime; tcbuild's compiler driver cures that.
    """
    from tcbuild.aot import toolchain

    setting = subject.setting
    options: dict[str, Any] = {"cpp.cxx": (str(toolchain.driver(setting.folder, "native")),)}
    if setting.device != "cpu":
        # What the processor can do is not tried out: a minute, for nothing that runs there.
        options |= {**SEARCH, "cpp.vec_isa_ok": True}
    path = setting.package(subject.name)
    aside = path.with_name(f"new-{path.name}")  # a process that is ended leaves half a file
    with torch.no_grad():
        program = torch.export.export(subject.module, subject.args)
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(aside), inductor_configs=options
        )
    aside.replace(path)
    return {"file": path.stat().st_size}


def make_artifact(subject: Subject) -> Row:
    """Build the artifact."""
    from tcbuild import aot

    setting = subject.setting
    target = "cpu" if setting.device == "cpu" else "cuda"
    spec = aot.Spec.from_module(
        subject.module,
        subject.args,
        targets=(target,),
        mode=setting.mode,
        verify=False,
        name=subject.name,
    )
    report = aot.build(spec, setting.artifact(subject.name))
    trials = [trial for job in report.jobs for trial in job.trials]
    tuning = [
        f"{trial.candidate}{' + CUDA graph' if trial.cuda_graph else ''} {trial.microseconds:g} us"
        for trial in sorted(trials, key=lambda trial: not trial.chosen)
        if trial.microseconds
    ]
    return {"file": report.bytes, "notes": list(report.notes), "tuning": tuning}


MAKERS: Final[Mapping[str, Callable[[Subject], Row]]] = {
    "make package": make_package,
    "make artifact": make_artifact,
}
# What precompiles the headers that each maker is quick with: a minute, where nothing is kept.
HEADERS: Final[Mapping[str, str]] = {
    "package headers": "make package",
    "artifact headers": "make artifact",
}
NEEDS: Final[Mapping[str, str]] = {
    "aoti": "make package",
    "tcbuild": "make artifact",
    "tcbuild borrowed": "make artifact",
}
ON_CPU: Final = ("eager", "compile", "aoti", "tcbuild", "tcbuild borrowed")


def rates(setting: Setting) -> Row:
    """Return the two ceilings: bytes a second of a copy, operations a second of a product."""
    on_cpu = setting.device == "cpu"
    side, copied = (512, COPIED >> 5) if on_cpu else (SIDE, COPIED)
    with models.placed(setting.device, seed=0):
        source, target = (torch.zeros(copied, dtype=torch.uint8) for _ in range(2))
        left, right, out = (torch.randn(side, side) for _ in range(3))

    def seconds(call: Callable[[], object]) -> float:
        back_to_back(call, REPEATED, setting)
        return back_to_back(call, REPEATED, setting) * 1e-6

    return {
        "copy": 2 * copied / seconds(lambda: target.copy_(source)),
        "product": 2 * side**3 / seconds(lambda: torch.mm(left, right, out=out)),
        "name": "cpu" if on_cpu else torch.cuda.get_device_name(),
        "memory": 0 if on_cpu else torch.cuda.get_device_properties(0).total_memory,
    }


def back_to_back(call: Callable[[], object], calls: int, setting: Setting) -> float:
    """Return the microseconds a call where none waits for the one before: a median of rounds."""
    return statistics.median(one_round(call, calls, setting) for _ in range(ROUNDS))


def one_round(call: Callable[[], object], calls: int, setting: Setting) -> float:
    """Return the microseconds a call of one round; on a GPU by its own clock."""
    setting.synchronize()
    if setting.device == "cpu":
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - began) * 1e6 / calls
    event: Any = torch.cuda.Event
    start, end = (event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    setting.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / calls


def one_by_one(call: Call, setting: Setting) -> list[float]:
    """Return the microseconds of each call, from an idle device to an idle device."""
    times = []
    for _ in range(setting.calls):
        setting.synchronize()
        began = time.perf_counter()
        call()
        setting.synchronize()
        times.append((time.perf_counter() - began) * 1e6)
    return times


def measure(subject: Subject, way: str, report: Report) -> None:
    """Time a way, and hold its last answer against eager's."""
    setting, case = subject.setting, subject.setting.case(subject.name)
    size = models.dtype(setting.device).itemsize
    row: Row = {"bytes": case.values * size, "flops": case.flops}
    report(row)  # for the floor, even if what follows crashes
    before = {name: buffer.clone() for name, buffer in subject.module.named_buffers()}
    with torch.inference_mode():
        expected = subject.module(*subject.args).clone()
        for name, buffer in subject.module.named_buffers():
            buffer.copy_(before[name])  # so that no way finds the cache as this call has left it
        call = prepared(subject, way, row)
        with setting.gate.alone():
            warm_up(call, setting)
            times = one_by_one(call, setting)
            row["back to back"] = back_to_back(call, setting.calls, setting)
            row["off"] = distance(call(), expected)
    row["wrong"] = not row["off"] <= TOLERANCE
    row["quarters"] = statistics.quantiles(times, n=4)
    report({**row, "us": statistics.median(times), "calls": len(times)})


def prepared(subject: Subject, way: str, row: Row) -> Call:
    """Return the call of a way, warm; `row` gets what that took, beside what other cells did."""
    gate = subject.setting.gate
    began = time.perf_counter()
    with gate.tuning() if way in TUNED else nullcontext():
        call = WAYS[way](subject)
        call()
        subject.setting.synchronize()
    row["first"] = time.perf_counter() - began
    warm_up(call, subject.setting)
    row["tuned"] = gate.taken
    return call


def warm_up(call: Call, setting: Setting) -> None:
    """Call until what happens once has happened."""
    end, calls = time.perf_counter() + WARM_SECONDS, 0
    while calls < WARM_CALLS or time.perf_counter() < end:
        call()
        setting.synchronize()
        calls += 1
    gc.collect()


def distance(answer: Tensor, expected: Tensor) -> float:
    """Return the largest error as a part of the largest value; inf for another shape."""
    if answer.shape != expected.shape:
        return float("inf")
    largest = expected.float().abs().max()
    return float((answer.float() - expected.float()).abs().max() / largest)


def made(maker: str, subject: Subject) -> Row:
    """Return the row of what is built."""
    gate = subject.setting.gate
    with gate.tuning():
        row = MAKERS[maker](subject)
    return {**row, "tuned": gate.taken, "made": True}


def tiny(setting: Setting) -> Subject:
    """Return what takes a compiler its least time: its headers are precompiled then, for all."""
    with models.placed(setting.device, seed=0):
        return Subject(
            name="headers", module=nn.PReLU().eval(), args=(torch.ones(8),), setting=setting
        )


def run(model: str, way: str, setting: Setting, report: Report) -> None:
    """Do what one cell takes, and report it, the last report being the whole."""
    if way == "rates":
        report(rates(setting))
        return
    if way in HEADERS:
        report(made(HEADERS[way], tiny(replace(setting, mode="default"))))
        return
    subject = Subject.make(model, setting)
    if way in MAKERS:
        report(made(way, subject))
    else:
        measure(subject, way, report)
