"""The layers between a model and its artifact, each of which adds something to the one before."""

import contextlib
import copy
import glob
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from .. import operators, sizes
from ..build import build, calls_of
from ..job_cache import JobCache
from ..plan import Plan
from ..spec import EMBEDDED
from ..step_graphs import step_graphs
from ..training import Training
from ..verify import verify
from . import walk
from .answers import Difference, Expected, Flat, How, Model, answers, named
from .subject import Graph, Subject
from .walk import Stop

Found = Difference | Stop | None
Run = Callable[[Subject, Path, Mapping[str, object]], Found]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One layer.

    Attributes:
        name: of it.
        adds: what a call goes through here that it did not on the rung before.
        run: calls a subject through it, in a folder of its own and with more options of Inductor; returns
            what is wrong with the answer, and raises what the layer raises.
        cut: whether it is looked into by cutting the graph, and not by walking along it.
        python: for a repro, an expression that makes what is called of `model`; empty where it is the
            model itself.
    """

    name: str
    adds: str
    run: Run
    cut: bool = True
    python: str = ""


def _eager(subject: Subject, folder: Path, _: Mapping[str, object]) -> Found:
    expected = Expected(subject.module, subject.call, subject.mode)
    lost = expected.overflow()
    if lost is not None:
        return lost
    if subject.mode.step:
        with contextlib.suppress(Exception):  # what cannot be captured is said a rung further up
            return walk.backwards(Graph(subject), folder / "at")
    return None


def _export(subject: Subject, folder: Path, _: Mapping[str, object]) -> Found:
    captured = subject.capture()
    wrong = walk.fakes(Graph(subject), folder / "at")
    if wrong is not None:
        return wrong
    program: Any = captured.program.module(check_guards=False)

    def how(module: torch.nn.Module) -> Model:
        if subject.mode.step:  # the copy's own weights, whose gradients are asked for
            own = dict(module.named_parameters()) | dict(module.named_buffers())
            for name, tensor in [*program.named_parameters(), *program.named_buffers()]:
                _set(program, name, own.get(name.removeprefix("model."), tensor))
        return _flat(lambda *tensors: program(*tensors))

    return _compare(subject, how)


def _compiled(options: Callable[[Mapping[str, object]], Mapping[str, Any]]) -> Run:
    """Return what runs a subject through torch.compile with these arguments."""

    def run(subject: Subject, _: Path, extra: Mapping[str, object]) -> Found:
        def how(module: torch.nn.Module) -> Model:
            torch._dynamo.reset()
            compiled: Any = torch.compile(module, dynamic=False, **options(extra))

            def call(*args: Any, **kwargs: Any) -> Any:
                for tensor, axis in _axes(subject, module, args, kwargs):
                    torch._dynamo.maybe_mark_dynamic(tensor, axis)
                return compiled(*args, **kwargs)

            return call

        return _compare(subject, how)

    return run


def _axes(
    subject: Subject, module: torch.nn.Module, args: Any, kwargs: Any
) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield the axes of a call of a subject's module that vary."""
    own = Subject(spec=subject.spec, job=subject.job, module=module, call=(args, kwargs))
    return own.varying() if subject.job.bucket.ranges() else iter(())


def _backend(name: str) -> Run:
    return _compiled(lambda _: {"backend": name})


UNFUSED: Final[Mapping[str, object]] = {
    "max_fusion_size": 1,
    "epilogue_fusion": False,
    "pattern_matcher": False,
}


def _unfused(subject: Subject, folder: Path, extra: Mapping[str, object]) -> Found:
    """Let Inductor write out the result of every operator, each by a kernel of its own."""
    from torch._inductor.graph import GraphLowering
    from torch._inductor.ir import TensorBox

    lowering: Any = GraphLowering
    lower = lowering.run_node

    def realized(self: Any, node: torch.fx.Node) -> Any:
        made = lower(self, node)
        if isinstance(made, TensorBox):
            made.realize()
        return made

    lowering.run_node = realized
    try:
        return _inductor(subject, folder, {**UNFUSED, **extra})
    finally:
        lowering.run_node = lower


def _inductor(subject: Subject, folder: Path, extra: Mapping[str, object]) -> Found:
    options = {**subject.spec.compiler_options(), **extra}
    return _compiled(lambda _: {"options": options})(subject, folder, {})


def _aotinductor(subject: Subject, folder: Path, extra: Mapping[str, object]) -> Found:
    options = {**subject.spec.compiler_options(), **extra}
    device = subject.job.target.device
    captured = subject.capture()
    if not subject.mode.step:
        program: Any = captured.program.module(check_guards=False)
        library = _library(program, captured.tensors, folder / "forward", options, device)
        return _compare(subject, lambda _: _flat(library))
    names = sizes.Names.of(captured, subject.job.id)
    graphs = step_graphs(captured, names, subject.spec.step or Training(), subject.job.id)
    halves = [
        _library(half.graph, half.inputs(), folder / place, options, device)
        for half, place in ((graphs.forward, "forward"), (graphs.backward, "backward"))
    ]
    step = graphs.step

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: torch.Tensor) -> Any:
            values = [*given, *halves[0](*(one.detach() for one in given))]
            ctx.saved = [values[i] for i in step.saved]
            return tuple(values[result.value].clone() for result in step.results)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            made = halves[1](*ctx.saved, *(grads[t.result].contiguous() for t in step.tangents))
            return tuple(None if i is None else made[i] for i in step.gradients)

    def how(module: torch.nn.Module) -> Model:
        held = dict(module.named_parameters()) | dict(module.named_buffers())
        weights = [held[name] for name in step.weights]
        return _flat(lambda *tensors: Function.apply(*tensors, *weights))  # type: ignore[no-untyped-call]

    return _compare(subject, how, buffers=False)


def _artifact(subject: Subject, folder: Path, _: Mapping[str, object]) -> Found:
    path = folder / "model.tcb"
    # The very weights of the subject: a model that is made anew may draw others. The check is made here.
    spec = replace(
        subject.spec,
        model=lambda: copy.deepcopy(subject.module),
        verify=False,
        embed_graph=False,
        weights=EMBEDDED,
    )
    build(spec, path, only=[glob.escape(subject.job.id)], cache=JobCache(jobs=folder / "jobs"))
    rows = verify(
        path,
        module=subject.module,
        inputs=calls_of(spec, Plan.of(spec), subject.module),
        tolerance=spec.tolerance,
        imports=operators.files(),
    )
    bad = next((row for row in rows if row.problem), None)
    return (
        None if bad is None else Difference(f"{bad.output} ({bad.sizes or 'static'})", bad.problem)
    )


def _library(
    graph: Any,
    tensors: tuple[torch.Tensor, ...],
    folder: Path,
    options: Mapping[str, object],
    device: str,
) -> Model:
    """Compile a graph ahead of time by torch alone, and load it."""
    folder.mkdir(parents=True, exist_ok=True)
    extra = {**options, "aot_inductor.output_path": str(folder / "model.so")}
    path: Any = torch._inductor.aot_compile(graph, tensors, options=extra)
    aoti: Any = torch._C._aoti
    if device == "cuda":
        runner = aoti.AOTIModelContainerRunnerCuda(path, 1, "cuda", str(folder))
    else:
        runner = aoti.AOTIModelContainerRunnerCpu(path, 1)
    return lambda *given: runner.run([one.contiguous() if one.dim() == 0 else one for one in given])


def _flat(run: Model) -> Model:
    """Let what takes tensors in order take a call."""

    def call(*args: Any, **kwargs: Any) -> Flat:
        tensors = (
            one
            for one in torch.utils._pytree.tree_leaves((args, kwargs))
            if isinstance(one, torch.Tensor)
        )
        return Flat(one for one in run(*tensors) if isinstance(one, torch.Tensor))

    return call


def _compare(subject: Subject, how: How, *, buffers: bool = True) -> Difference | None:
    expected = Expected(subject.module, subject.call, subject.mode)
    made = answers(subject.module, subject.call, subject.mode, how)
    made = named(made, expected.eager)
    if not buffers:  # which the call gives back beside its results
        made |= {k: v for k, v in expected.eager.items() if k.startswith(("buffer", "input"))}
    return expected.difference(made, subject.spec.tolerance)


def _set(module: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Put a tensor in the place of a module's parameter or buffer."""
    path, _, last = name.rpartition(".")
    holder = module.get_submodule(path)
    kind = holder._parameters if last in holder._parameters else holder._buffers
    kind[last] = tensor  # type: ignore[assignment]


RUNGS: Final = (
    Rung(
        name="eager",
        adds="the model itself: finite where float64 is, its own operators' gradients right",
        run=_eager,
        cut=False,
    ),
    Rung(
        name="export",
        adds="one captured graph, run by eager kernels; what its operators' fakes say",
        run=_export,
        cut=False,
    ),
    Rung(
        name="dynamo",
        adds="torch.compile's own trace of the Python code, run by eager kernels",
        run=_backend("eager"),
        python='torch.compile(model, backend="eager", dynamic=False)',
    ),
    Rung(
        name="aot_eager",
        adds="no writes in place; forward and backward as two graphs",
        run=_backend("aot_eager"),
        python='torch.compile(model, backend="aot_eager", dynamic=False)',
    ),
    Rung(
        name="decompositions",
        adds="operators written as simpler ones; what the backward computes anew",
        run=_backend("aot_eager_decomp_partition"),
        python='torch.compile(model, backend="aot_eager_decomp_partition", dynamic=False)',
    ),
    Rung(
        name="inductor without fusion",
        adds="Inductor's lowerings and generated code, a kernel for each operator",
        run=_unfused,
        python=f"torch.compile(model, dynamic=False, options={dict(UNFUSED)!r})",
    ),
    Rung(
        name="inductor",
        adds="fusion, and patterns replaced by faster ones",
        run=_inductor,
        python="torch.compile(model, dynamic=False, options=OPTIONS)",
    ),
    Rung(
        name="aotinductor",
        adds="a library compiled ahead of time, from the captured graph",
        run=_aotinductor,
        python="ahead_of_time(model, inputs)",
    ),
    Rung(
        name="artifact",
        adds="tcbuild's options, packed weights and guards; the runtime, in a fresh process",
        run=_artifact,
        python="artifact(model, inputs)",
    ),
)

BY_NAME: Final = {rung.name: rung for rung in RUNGS}
