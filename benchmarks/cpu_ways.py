"""The ways of tune.py to call a model on the CPU: what each builds first, and how it then answers."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cpu_models
from cpu_models import BUCKETS
from gpu_models import Args, Case

Call = Callable[[], object]
WARM_SECONDS: Final = 0.2  # of calls before any is timed
ANSWER: Final = "answer"  # before the number of an output of float64 eager


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model and its call, of which the module is made only where a way needs it.

    Attributes:
        model: its name.
        case: what makes it.
        threads: that it may use.
        folder: where what is built lies.
    """

    model: str
    case: Case
    threads: int
    folder: Path

    def path(self, name: str, *, by_threads: bool = False) -> Path:
        """Return where something built of the model lies; for these threads alone if asked."""
        return self.folder / f"{self.model}{f'.{self.threads}' if by_threads else ''}.{name}"

    def args(self) -> Args:
        """Return the call."""
        return cpu_models.inputs(self.case)

    def module(self) -> torch.nn.Module:
        """Return the module."""
        return cpu_models.module(self.case)


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way.

    Attributes:
        load: gives the call, and is called in a process that has built nothing.
        file: what it loads; None where it compiles in the process.
        make: writes that file, in a process of its own.
        by_threads: whether the number of threads is part of what is built.
        alone: whether it measures while it builds, so that nothing else may be built meanwhile.
        bf16: whether it may multiply in bfloat16; such ways are compared with each other.
    """

    load: Callable[[Subject], Call]
    file: str | None = None
    make: Callable[[Subject, Path], list[str]] | None = None
    by_threads: bool = False
    alone: bool = False
    bf16: bool = False

    def path(self, subject: Subject) -> Path | None:
        """Return the path of the file."""
        return subject.path(self.file, by_threads=self.by_threads) if self.file else None


def tensors(made: object) -> list[Tensor]:
    """Return the outputs of a call."""
    listed: Sequence[Any] = list(made) if isinstance(made, list | tuple) else [made]
    return [one if isinstance(one, Tensor) else torch.from_numpy(one.copy()) for one in listed]


def make_answer(subject: Subject, path: Path) -> list[str]:
    """Write what eager answers in float64."""
    args = [a.double() if a.is_floating_point() else a for a in subject.args()]
    with torch.inference_mode():
        made = tensors(subject.module().double()(*args))
    save_file({f"{ANSWER}{i}": one.contiguous() for i, one in enumerate(made)}, path)
    return []


def off(subject: Subject, made: object) -> float:
    """Return the largest error as a part of the largest value, of the worst output."""
    right = load_file(subject.path("safetensors"))
    answers = tensors(made)
    if len(answers) != len(right):
        return float("inf")
    return max(_distance(answer, right[f"{ANSWER}{i}"]) for i, answer in enumerate(answers))


def _distance(answer: Tensor, right: Tensor) -> float:
    if answer.shape != right.shape or not bool(answer.isfinite().all()):
        return float("inf")
    return float((answer.double() - right).abs().max() / right.abs().max())


def seconds_of(call: Call, calls: int) -> list[float]:
    """Return the seconds of each call, the output of the one before given back."""
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return took


def eager(subject: Subject) -> Call:
    """Call the module."""
    module, args = subject.module(), subject.args()
    return lambda: module(*args)


def compiled(subject: Subject) -> Call:
    """Call the module behind torch.compile."""
    call, args = torch.compile(subject.module()), subject.args()
    return lambda: call(*args)


def tuned(subject: Subject) -> Call:
    """Call the module behind torch.compile in its mode max-autotune, with frozen weights.

    Freezing is set for the process: as an option of torch.compile it does nothing.
    """
    from torch._inductor import config

    config.freezing = True
    call = torch.compile(subject.module(), mode="max-autotune-no-cudagraphs")
    args = subject.args()
    return lambda: call(*args)


def autocast(subject: Subject) -> Call:
    """Call the module behind torch.compile as `tuned` does, under autocast to bfloat16."""
    plain = tuned(subject)

    def call() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            return plain()

    return call


def make_package(**options: object) -> Callable[[Subject, Path], list[str]]:
    """Return what writes a package of torch's own."""

    def make(subject: Subject, path: Path) -> list[str]:
        with torch.no_grad():
            program = torch.export.export(subject.module(), subject.args())
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(path), inductor_configs=options
            )
        return []

    return make


def package(file: str) -> Callable[[Subject], Call]:
    """Return what loads a package of torch's own."""

    def load(subject: Subject) -> Call:
        path = subject.path(file, by_threads=True)
        model: Any = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
        args = subject.args()
        return lambda: model(*args)

    return load


def make_onnx(subject: Subject, path: Path) -> list[str]:
    """Write the model as ONNX, its weights beside it."""
    program = torch.onnx.export(
        subject.module(), subject.args(), dynamo=True, external_data=True, verbose=False
    )
    assert program is not None
    program.save(str(path), external_data=True)
    beside = path.with_name(f"{path.name}.data")
    if beside.exists():  # the file names it, under the name that the file has now
        os.link(beside, beside.with_name(beside.name.removeprefix("new-")))
    return []


def onnxruntime(subject: Subject) -> Call:
    """Run the ONNX file in ONNX Runtime, with all of its optimisations."""
    session, feeds = onnxruntime_session(subject)
    return lambda: session.run(None, feeds)


def onnxruntime_session(subject: Subject, **options: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return a session of ONNX Runtime, and its inputs."""
    import onnxruntime as ort

    asked = ort.SessionOptions()
    asked.intra_op_num_threads = subject.threads
    asked.inter_op_num_threads = 1
    for name, value in options.items():
        setattr(asked, name, value)
    path, providers = str(subject.path("onnx")), ["CPUExecutionProvider"]
    session = ort.InferenceSession(path, asked, providers=providers)
    names = [one.name for one in session.get_inputs()]
    return session, {n: arg.numpy() for n, arg in zip(names, subject.args(), strict=True)}


def openvino(subject: Subject) -> Call:
    """Run the ONNX file in OpenVINO, in float32; inputs and outputs are not copied."""
    return openvino_call(subject, openvino_request(subject))


def openvino_bf16(subject: Subject) -> Call:
    """Run the ONNX file in OpenVINO, in bfloat16 wherever it likes."""
    return openvino_call(subject, openvino_request(subject, INFERENCE_PRECISION_HINT="bf16"))


def openvino_call(subject: Subject, request: Any) -> Call:
    """Return a call of a request of OpenVINO."""
    args = [arg.numpy() for arg in subject.args()]

    def call() -> object:
        found = request.infer(args, share_inputs=True, share_outputs=True)
        return [found[i] for i in range(len(found))]

    return call


def openvino_request(subject: Subject, **options: Any) -> Any:
    """Return a request of OpenVINO."""
    import openvino as ov

    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": subject.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        **options,
    }
    model = ov.Core().compile_model(str(subject.path("onnx")), "CPU", config)
    return model.create_infer_request()


def make_artifact(mode: str, precision: str = "ieee") -> Callable[[Subject, Path], list[str]]:
    """Return what builds an artifact of ours."""

    def make(subject: Subject, path: Path) -> list[str]:
        from tcbuild import aot

        spec = aot.Spec.from_module(
            subject.module(),
            subject.args(),
            name=subject.model,
            mode=mode,
            fp32_precision=precision,
            verify=False,
        )
        return trials(aot.build(spec, path))

    return make


def trials(report: Any) -> list[str]:
    """Return what a search has measured, in words, the chosen one first."""
    found = [trial for job in report.jobs for trial in job.trials]
    return [
        f"{trial.candidate} {trial.microseconds:g} us{trial.problem and f' ({trial.problem})'}"
        for trial in sorted(found, key=lambda trial: not trial.chosen)
    ]


def artifact(file: str) -> Callable[[Subject], Call]:
    """Return what loads an artifact of ours; a call that it does not serve is an error."""

    def load(subject: Subject) -> Call:
        from tcbuild import runtime

        model, args = runtime.load(subject.path(file), on_miss="raise"), subject.args()
        return lambda: model(*args)

    return load


def make_buckets(sizes: Sequence[int]) -> Callable[[Subject, Path], list[str]]:
    """Return what builds an artifact for these sizes of the batch."""

    def make(subject: Subject, path: Path) -> list[str]:
        from tcbuild import aot

        args = batch_of(subject.args(), max(sizes))
        batch = torch.export.Dim("batch", min=1, max=max(sizes))
        spec = aot.Spec.from_module(
            subject.module(),
            args,
            dynamic_shapes=tuple({0: batch} for _ in args),
            buckets={"batch": sizes},
            mode=os.environ.get(BUCKET_MODE, "default"),
            verify=False,
        )
        return trials(aot.build(spec, path))

    return make


def buckets(file: str, sizes: Sequence[int]) -> Callable[[Subject], Call]:
    """Return what loads an artifact, and calls each size of the batch, the largest first."""

    def load(subject: Subject) -> Call:
        from tcbuild import runtime

        model = runtime.load(subject.path(file), on_miss="raise")
        calls = [batch_of(subject.args(), size) for size in sorted(sizes, reverse=True)]
        return lambda: [model(*call) for call in calls]

    return load


def batch_of(args: Args, size: int) -> Args:
    """Return a call with another batch."""
    return tuple(arg[:1].expand(size, *arg.shape[1:]).contiguous() for arg in args)


BUCKET_MODE: Final = "TUNE_BUCKET_MODE"
FROZEN: Final = {"freezing": True, "max_autotune": True}
ANSWERS: Final = Way(load=eager, file="safetensors", make=make_answer)
OURS: Final = ("tcbuild", "tcbuild tuned", "tcbuild bf16", "tcbuild bf16 tuned")
WAYS: Final[Mapping[str, Way]] = {
    "eager": Way(load=eager),
    "compile": Way(load=compiled),
    "max-autotune": Way(load=tuned),
    "aoti": Way(load=package("pt2"), file="pt2", make=make_package(), by_threads=True),
    "aoti frozen": Way(
        load=package("frozen.pt2"),
        file="frozen.pt2",
        make=make_package(**FROZEN),
        by_threads=True,
    ),
    "onnxruntime": Way(load=onnxruntime, file="onnx", make=make_onnx),
    "openvino": Way(load=openvino, file="onnx", make=make_onnx),
    "tcbuild": Way(load=artifact("tcb"), file="tcb", make=make_artifact("default")),
    "tcbuild tuned": Way(
        load=artifact("tuned.tcb"),
        file="tuned.tcb",
        make=make_artifact("max-autotune"),
        alone=True,
    ),
    "autocast": Way(load=autocast, bf16=True),
    "openvino bf16": Way(load=openvino_bf16, file="onnx", make=make_onnx, bf16=True),
    "tcbuild bf16": Way(
        load=artifact("bf16.tcb"),
        file="bf16.tcb",
        make=make_artifact("default", "bf16"),
        bf16=True,
    ),
    "tcbuild bf16 tuned": Way(
        load=artifact("bf16.tuned.tcb"),
        file="bf16.tuned.tcb",
        make=make_artifact("max-autotune", "bf16"),
        alone=True,
        bf16=True,
    ),
}
OTHERS: Final = tuple(way for way in WAYS if way not in OURS)
# What is held in memory by several buckets, against one of the largest size.
HELD: Final[Mapping[str, Way]] = {
    f"{len(sizes)} buckets": Way(
        load=buckets(f"{len(sizes)}.tcb", sizes),
        file=f"{len(sizes)}.tcb",
        make=make_buckets(sizes),
    )
    for sizes in (BUCKETS[-1:], BUCKETS)
}
EVERY: Final[Mapping[str, Way]] = {**WAYS, **HELD, "answers": ANSWERS}
