"""`python -m tests.conformance --cases DIR`: build each case, play its calls, compare with eager.

A case is a file `case_*.py` with:

- `make() -> (module in eval mode, args, kwargs, dynamic_shapes or None)`: what the builder gets;
- `more_inputs() -> [(args, kwargs), ...]` and `MORE`, a word for each: `hit` (a compiled variant must
  answer, as eager does), `value` (whoever answers, as eager does, counted if it is a fallback),
  `reject` (eager raises, and so must the artifact);
- `BUILD`: `ok`, or `ok_or_error` where the build may refuse with an error that names the cause;
- optional: `TOL` (for torch.testing.assert_close), `BUCKETS` (sizes to specialise for),
  `MODE = "train"`, `NEW_STATE() -> state_dict` for a swap of weights, and `check(run, ref)`;
- optional: `DEVICES`, the devices that the case is about; all where left out.

A case makes all its tensors on the CPU. With `--device cuda` they and the model are moved to the GPU,
and `check` gets models that move what they are called with there and their results back.
"""

import argparse
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tcbuild.formats import TcbuildError

from .play import CPU, CUDA, LeftOutError, run_case

ROOT = Path(__file__).parents[2]
DEVICES = {"cpu": CPU, "cuda": CUDA}
OK, FAILED, LEFT_OUT = "ok", "FAILED", "left out"
Line = tuple[str, str]  # one of the three, and the line to print


def main(argv: list[str] | None = None) -> int:
    """Run every case; print a line each and the totals; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--cases", required=True, type=Path, help="folder of case_*.py")
    parser.add_argument("--only", default="*", help="glob over the names of cases")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where the models run")
    parser.add_argument("--jobs", type=int, default=0, help="cases at once, each its own process")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a process")
    options = parser.parse_args(argv)
    paths = sorted(options.cases.glob(f"case_{options.only}.py"))
    counts = dict.fromkeys((OK, FAILED, LEFT_OUT), 0)
    if options.jobs:
        lines = _apart(paths, options.device, options.jobs, options.limit)
    else:
        lines = (_here(path, options.device) for path in paths)
    for outcome, line in lines:
        counts[outcome] += 1
        print(line, flush=True)
    left_out = f", {counts[LEFT_OUT]} left out" if counts[LEFT_OUT] else ""
    print(f"{counts[OK]} passed, {counts[FAILED]} failed{left_out}")
    return int(counts[FAILED] > 0)


def _here(path: Path, device: str) -> Line:
    """Run a case in this process."""
    try:
        return OK, f"{path.stem} {OK}: {run_case(path, DEVICES[device])}"
    except LeftOutError as error:
        return LEFT_OUT, f"{path.stem} {LEFT_OUT}: {error}"
    except Exception as error:
        if not isinstance(error, AssertionError | TcbuildError):
            traceback.print_exc()
        return FAILED, f"{path.stem} {FAILED}: {type(error).__name__}: {str(error)[:600]}"


def _apart(paths: list[Path], device: str, jobs: int, limit: float) -> Iterator[Line]:
    """Run each case in a process of its own, `jobs` at once; yield their lines as they end."""
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_process, path, device, jobs, limit) for path in paths]
        for done in as_completed(running):
            yield done.result()


def _process(path: Path, device: str, jobs: int, limit: float) -> Line:
    """Run a case in a process, and say what became of it."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    folders = filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])
    only = ["--cases", str(path.parent.resolve()), "--only", path.stem.removeprefix("case_")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance", *only, "--device", device],
        env={"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the compilers that it started, too
        process.communicate()
        return FAILED, f"{path.stem} {FAILED}: no end within {limit:g} s"
    *lines, _ = said.rstrip("\n").split("\n")
    line = "\n".join(lines)
    for outcome in (OK, LEFT_OUT, FAILED):
        if line.startswith(f"{path.stem} {outcome}: "):
            if outcome == FAILED:
                sys.stderr.write(errors)
            return outcome, line
    sys.stderr.write(errors)
    code = process.returncode
    ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return FAILED, f"{path.stem} {FAILED}: its process ended with {ended}"


if __name__ == "__main__":
    sys.exit(main())
