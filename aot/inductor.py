"""The private surface of torch that compiles a graph to a library; nothing else of ours touches it."""

import contextlib
import io
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from ..formats.target import Target
from . import toolchain
from .call_mode import CallMode
from .errors import CompileError
from .targets import march

# What every library is compiled with, and why.
OPTIONS: Final[Mapping[str, object]] = {
    "aot_inductor.package": True,  # return the files, with the list of constants that are needed
    "aot_inductor.package_constants_in_so": False,  # the weights are ours, and shared
    "aot_inductor.package_constants_on_disk_format": "pickle_weights",  # nothing is pickled by us
    "aot_inductor.model_name_for_generated_files": "model",  # the same names each time
    "aot_inductor.enable_line_tables": False,  # debug information of four times the code's size
    # Else the number of threads of the build machine is compiled in: as the number to use, or (torch
    # 2.13, where it equals the number of processors) only as the size of arrays that each thread
    # writes to, which a machine with more processors then writes past.
    "cpp.dynamic_threads": True,
    # Which loops are worth several threads, whatever the build machine has: the same bytes everywhere.
    "cpp.threads": 8,
    # How many elements a thread must get for a loop to be parallel. Inductor's own 512 costs more in
    # waking a thread than it saves.
    "cpp.min_chunk_size": 4096,
    # Without these two, small constants and folded ones are baked in, and new weights ignored.
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
}


CUDA_OPTIONS: Final[Mapping[str, object]] = {
    "aot_inductor.embed_kernel_binary": True,  # the kernels are in the library, not beside it
    # What is left to the host is calling kernels: any processor of the architecture may do that.
    "cpp.simdlen": 1,
}


@dataclass(frozen=True, kw_only=True)
class LibraryFiles:
    """What came out of a compilation.

    Attributes:
        files: the bytes to ship by file name: model.so, and model.json where an operator is called
            back into torch.
        constants: the names of the constants the library needs.
        values: what these were when it was compiled; nothing where that is not known any more.
    """

    files: Mapping[str, bytes]
    constants: tuple[str, ...]
    values: Mapping[str, torch.Tensor] = field(default_factory=dict, compare=False)


def compile_graph(
    graph: torch.fx.GraphModule,
    inputs: tuple[torch.Tensor, ...],
    target: Target,
    folder: Path,
    cache: Path,
    extra: Mapping[str, object],
    where: str,
    rewrite: Callable[[torch.fx.Graph], None] | None = None,
) -> LibraryFiles:
    """Compile a graph of tensors to tensors.

    Args:
        graph: what `partition` gives.
        inputs: the example call's tensors.
        target: what to compile for.
        folder: an empty folder to work in; the caller removes it.
        cache: a folder that stays, for the compiler driver.
        extra: more of Inductor's options, which the spec asks for.
        where: the job's identifier, for messages.
        rewrite: changes the graph once it is decomposed.

    Raises:
        CompileError: Inductor or the C++ compiler fails.
    """
    import torch._inductor as inductor
    from torch._inductor.codecache import CudaKernelParamCache

    options = {
        **_options(target, extra),
        "aot_inductor.output_path": str(folder),
        "cpp.cxx": (str(toolchain.driver(cache, march(target))),),
        # A function of its own, since the options are copied with all that they hold.
        "post_grad_custom_pre_pass": None if rewrite is None else lambda graph: rewrite(graph),
    }
    log = io.StringIO()
    try:
        with (
            CallMode().on(graph),
            toolchain.prefix(folder),
            _serial_where_small(),
            _own_lock(folder),
            _scalar_host(target),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(log),
        ):
            warnings.simplefilter("ignore")
            if target.device == "cuda":
                # Kernels are kept by name for the whole process, and every graph has a
                # `triton_poi_fused_0`.
                CudaKernelParamCache.cache_clear()
            made: Any = inductor.aot_compile(graph, inputs, options=options)
    except Exception as error:
        message = str(error).strip() or "no message"
        raise CompileError(
            where,
            found=f"{type(error).__name__}: {message[-2000:]}",
            expected="a library",
        ) from error
    return _collect(made, where)


@contextlib.contextmanager
def _serial_where_small() -> Iterator[None]:
    """Let Inductor leave a loop with little work on one thread, as it does for a fixed number of them.

    With `dynamic_threads` it makes every loop parallel and leaves the rest to OpenMP, which costs a
    small kernel several times its own run time.
    """
    from torch._inductor import config
    from torch._inductor.codegen import cpp

    kernel: Any = cpp.CppKernel
    decide = kernel.decide_parallel_depth

    def by_work(self: Any, *args: Any, **kwargs: Any) -> Any:
        with config.patch({"cpp.dynamic_threads": False}):
            return decide(self, *args, **kwargs)

    kernel.decide_parallel_depth = by_work
    try:
        yield
    finally:
        kernel.decide_parallel_depth = decide


@contextlib.contextmanager
def _own_lock(folder: Path) -> Iterator[None]:
    """Let the libraries of several processes be compiled at once.

    Inductor compiles a library under a lock by the name of its files. Ours all have the same name, so
    that they have the same bytes, and a folder of their own.
    """
    from torch._inductor import codecache
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    shared: Any = codecache.get_lock_dir
    compiler: Any = codecache.AotCodeCompiler
    method = vars(compiler)["compile"]
    compile_library = compiler.compile
    here = threading.get_ident()

    def own() -> str:
        return str(folder) if threading.get_ident() == here else shared()

    def compile_alone(*args: Any, **kwargs: Any) -> Any:
        pick_vec_isa()  # it compiles under the shared lock what it finds out only once
        codecache.get_lock_dir = own
        try:
            return compile_library(*args, **kwargs)
        finally:
            codecache.get_lock_dir = shared

    compiler.compile = compile_alone
    try:
        yield
    finally:
        compiler.compile = method


@contextlib.contextmanager
def _scalar_host(target: Target) -> Iterator[None]:
    """Let Inductor not find out which vector instructions work here, where none are asked for.

    It does so in each process, by importing torch anew for each set of them, one process at a time.
    """
    from torch._inductor import cpu_vec_isa

    if target.device != "cuda":
        yield
        return
    module: Any = cpu_vec_isa
    find = module.valid_vec_isa_list
    module.valid_vec_isa_list = list
    try:
        yield
    finally:
        module.valid_vec_isa_list = find


def known(options: Mapping[str, object]) -> bool:
    """Return whether this torch has all of the options."""
    from torch._inductor import config

    return options.keys() <= config.get_config_copy().keys()


@contextlib.contextmanager
def measuring(alone: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Let Inductor measure kernels on a GPU within a context, each time it does."""
    from torch._inductor.runtime.benchmarking import benchmarker

    measure: Any = benchmarker.benchmark_gpu
    inside = threading.local()

    def within(*args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "measuring", False):
            return measure(*args, **kwargs)
        inside.measuring = True
        try:
            with alone():
                return measure(*args, **kwargs)
        finally:
            inside.measuring = False

    benchmarker.benchmark_gpu = within  # type: ignore[method-assign]
    try:
        yield
    finally:
        del benchmarker.benchmark_gpu


def vector_flags(target: Target | None = None) -> str:
    """Return the compiler flags of the vector instruction set that Inductor picks here for a target.

    Without one, for this processor.
    """
    if target is not None and target.device == "cuda":
        return ""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    isa = pick_vec_isa()
    return str(isa.build_arch_flags()) if isa else ""


def describe_options(target: Target, extra: Mapping[str, object]) -> dict[str, str]:
    """Return the options as text, for the manifest and for cache keys."""
    options = {name: str(value) for name, value in _options(target, extra).items()}
    return {**options, "march": march(target)}


def _options(target: Target, extra: Mapping[str, object]) -> dict[str, object]:
    """Return all options that this torch has; it is older than some of them."""
    from torch._inductor import config

    known = config.get_config_copy()
    options = {**OPTIONS, **(CUDA_OPTIONS if target.device == "cuda" else {})}
    return {**{name: value for name, value in options.items() if name in known}, **extra}


def _collect(made: list[Any], where: str) -> LibraryFiles:
    paths = [Path(item) for item in made if isinstance(item, str | os.PathLike)]
    libraries = [path for path in paths if path.suffix == ".so"]
    if len(libraries) != 1:
        found = f"{len(libraries)} libraries among {[path.name for path in paths]}"
        raise CompileError(where, found=found, expected="one library")
    files = {"model.so": libraries[0].read_bytes()}
    # How to call back into torch: beside the library, under its name, or not there at all.
    for beside in {path for path in paths if path.suffix == ".json"} | {
        libraries[0].with_suffix(".json")
    }:
        if beside.stem == libraries[0].stem and beside.exists():
            files["model.json"] = beside.read_bytes()
    values: dict[str, torch.Tensor] = {}
    for item in made:
        if not isinstance(item, str | os.PathLike):
            values |= {name: tensor for name, (tensor, _) in item.items()}
    return LibraryFiles(files=files, constants=tuple(sorted(values)), values=values)
