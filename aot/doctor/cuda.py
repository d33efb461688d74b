"""The GPU: torch's CUDA, the driver, Triton and its assembler, the headers."""

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...formats import gpu
from . import process
from .finding import Check, Finding, note, ok, problem
from .packages import RANGE, version

# What a library for a GPU cannot be compiled without.
NEEDED_TO_COMPILE: Final = ("GPU", "Triton", "ptxas", "Triton kernel")

_DRIVER: Final = (
    "install the driver from nvidia.com/drivers; in a container: docker run --gpus all, with "
    "the NVIDIA container toolkit on the host"
)

# Run as a file: Triton reads a kernel's source.
_KERNEL: Final = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


x = torch.arange(100.0, device="cuda")
y = torch.empty_like(x)
double[(1,)](x, y, 100, block=128)
assert torch.equal(y, 2 * x), "a wrong answer"
"""


def available() -> bool:
    """Say whether torch can use a GPU; asked in a fresh process, as torch may be missing or crash."""
    done = process.python("import torch; print('cuda', torch.cuda.is_available())")
    return not done.failure and "cuda True" in done.output


def checks(folder: Path) -> Iterator[Check]:
    """Yield the checks; they work in `folder`."""
    cuda, compiles = "CUDA in torch", ("GPU", "Triton", "ptxas", "temporary files")
    yield Check(name=cuda, run=built, needs=("torch",))
    yield Check(name="libcuda.so.1", run=libcuda)
    yield Check(name="CUDA driver", run=driver, needs=(cuda, "libcuda.so.1"))
    yield Check(name="GPU", run=gpus, needs=(cuda, "CUDA driver"))
    yield Check(name="Triton", run=triton)
    yield Check(name="ptxas", run=ptxas, needs=("Triton",))
    yield Check(name="cuda.h", run=lambda: headers(header_folders()))
    yield Check(name="Triton kernel", run=lambda: kernel(folder), needs=compiles)


def built() -> Finding:
    """Say whether torch is built with CUDA."""
    import torch

    if torch.version.cuda:
        return ok(torch.version.cuda)
    where = "https://download.pytorch.org/whl/cu130"
    return problem(
        f"torch {torch.__version__}, a build without CUDA",
        expected="a build with CUDA",
        cure=f"{sys.executable} -m pip install --force-reinstall 'torch{RANGE}' --index-url {where}",
    )


def libcuda() -> Finding:
    """Say whether the system's loader finds the driver's library."""
    done = process.python("import ctypes; ctypes.CDLL('libcuda.so.1')", lines=1)
    if done.failure:
        return problem(done.failure, expected="a library that loads", cure=_DRIVER)
    return ok("loads")


def driver() -> Finding:
    """Hold the driver's version against the one that torch is built with."""
    import torch

    has = gpu.driver_version()
    needs = tuple(map(int, str(torch.version.cuda).split(".")[:2]))
    found = f"CUDA {has[0]}.{has[1]}" if any(has) else "no driver"
    expected = f"one for CUDA {torch.version.cuda}, as torch is built with, or later"
    if has >= needs:
        return ok(found)
    if has[0] == needs[0]:  # minor versions are compatible, but PTX of a newer one is not
        return note(found, expected=expected, cure=_DRIVER)
    return problem(found, expected=expected, cure=f"{_DRIVER}; or install torch for {found}")


def gpus() -> Finding:
    """Say which GPUs there are, with architecture and memory."""
    import torch

    lines = []
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        memory = f"{about.total_memory / 2**30:.0f} GiB"
        lines.append(f"{about.name} sm_{about.major}{about.minor} {memory}")
    if lines:
        return ok("; ".join(lines))
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    masked = "" if hidden is None else f", with CUDA_VISIBLE_DEVICES={hidden!r}"
    cure = "nvidia-smi shows the GPUs; unset CUDA_VISIBLE_DEVICES" if masked else _DRIVER
    return problem(f"none{masked}", expected="one", cure=cure)


def triton() -> Finding:
    """Say whether Triton can be imported."""
    cure = f"{sys.executable} -m pip install --force-reinstall 'triton>=3.6'"
    if importlib.util.find_spec("triton") is None:
        return problem("none", expected="3.6 or later", cure=cure)
    done = process.python("import triton", lines=1)
    if done.failure:
        return problem(f"import triton: {done.failure}", expected="one to import", cure=cure)
    return ok(version("triton"))


def ptxas() -> Finding:
    """Run the assembler that Triton uses: $TRITON_PTXAS_PATH, else its own."""
    own = os.environ.get("TRITON_PTXAS_PATH")
    found = Path(own) if own else _package("triton") / "backends" / "nvidia" / "bin" / "ptxas"
    done = process.run([found, "--version"])
    if not done.failure:
        words = [line for line in done.output.splitlines() if "release" in line] or [""]
        return ok(f"{words[0].strip()} at {found}")
    again = f"{sys.executable} -m pip install --force-reinstall triton"
    return problem(
        f"{found}: {done.failure}",
        expected="an assembler that runs",
        cure="unset TRITON_PTXAS_PATH, or set it to a ptxas that runs" if own else again,
    )


def header_folders() -> list[Path]:
    """Return where cuda.h may be: $CUDA_HOME, the packages of NVIDIA, the usual folder, nvcc's."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    wheels = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include"))
    nvcc = shutil.which("nvcc")
    beside = [Path(nvcc).resolve().parent.parent / "include"] if nvcc else []
    return [
        *(Path(home) / "include" for home in homes),
        *wheels,
        *beside,
        Path("/usr/local/cuda/include"),
    ]


def headers(folders: list[Path]) -> Finding:
    """Say which of the folders has cuda.h."""
    for folder in folders:
        if (folder / "cuda.h").is_file():
            return ok(folder / "cuda.h")
    return problem(
        "none in CUDA_HOME, in packages of NVIDIA or in /usr/local/cuda",
        expected="one: a library for a GPU is compiled with it",
        cure=f"{sys.executable} -m pip install nvidia-cuda-runtime, or export CUDA_HOME=DIR, "
        "the folder of a CUDA toolkit",
    )


def kernel(folder: Path) -> Finding:
    """Compile a Triton kernel and run it, in a fresh process."""
    script = folder / "kernel.py"
    script.write_text(_KERNEL, encoding="utf-8")
    done = process.run([sys.executable, script])
    if not done.failure:
        return ok("compiles and runs")
    return problem(
        done.failure,
        expected="a kernel that compiles and runs",
        cure="apt-get install gcc python3-dev, with which Triton makes what starts a kernel; "
        "then rm -r ~/.triton/cache",
    )


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    return Path(next(iter(spec.submodule_search_locations or ["."]))) if spec else Path()
