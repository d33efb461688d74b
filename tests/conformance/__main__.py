"""`python -m tests.conformance --cases DIR`: build each case, play its calls, compare with eager.

A case is a file `case_*.py` with:

- `make() -> (module in eval mode, args, kwargs, dynamic_shapes or None)`: what the builder gets;
- `more_inputs() -> [(args, kwargs), ...]` and `MORE`, a word for each: `hit` (a compiled variant must
  answer, as eager does), `value` (whoever answers, as eager does, counted if it is a fallback),
  `reject` (eager raises, and so must the artifact);
- `BUILD`: `ok`, or `ok_or_error` where the build may refuse with an error that names the cause;
- optional: `TOL` (for torch.testing.assert_close), `BUCKETS` (sizes to specialise for),
  `MODE = "train"`, `NEW_STATE() -> state_dict` for a swap of weights, and `check(run, ref)`.
"""

import argparse
import copy
import importlib.util
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tcbuild import aot, runtime
from tcbuild.formats import TcbuildError


def main(argv: list[str] | None = None) -> int:
    """Run every case; print a line each and the totals; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--cases", required=True, type=Path, help="folder of case_*.py")
    parser.add_argument("--only", default="*", help="glob over the names of cases")
    options = parser.parse_args(argv)
    passed = failed = 0
    for path in sorted(options.cases.glob(f"case_{options.only}.py")):
        try:
            said = run_case(path)
            passed += 1
            print(f"{path.stem} ok: {said}", flush=True)
        except Exception as error:
            failed += 1
            print(f"{path.stem} FAILED: {type(error).__name__}: {str(error)[:600]}", flush=True)
            if not isinstance(error, AssertionError | TcbuildError):
                traceback.print_exc()
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


def run_case(path: Path) -> str:
    """Build one case and play it; return what happened in a few words.

    Raises:
        AssertionError: the artifact did not do what the case says.
        TcbuildError: the build refused a case that must build.
    """
    case = import_file(path)
    module, args, kwargs, dynamic_shapes = case.make()
    eager = copy.deepcopy(module)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / f"{path.stem}.tcb"
        try:
            spec = aot.Spec.from_module(
                module,
                args,
                kwargs,
                dynamic_shapes=dynamic_shapes,
                buckets=getattr(case, "BUCKETS", None),
            )
            aot.build(spec, out)
        except TcbuildError as error:
            if case.BUILD == "ok_or_error":
                return f"refused: {str(error).splitlines()[0]}"
            raise
        train = getattr(case, "MODE", "") == "train"
        said = [_play(case, out, eager)]
        if hasattr(case, "check"):
            with torch.set_grad_enabled(train):
                reference = copy.deepcopy(eager)
                case.check(runtime.load(out, fallback=copy.deepcopy(eager)), reference)
            said.append("check")
        if hasattr(case, "NEW_STATE"):
            _swap(case, out, eager)
            said.append("swap")
        return ", ".join(filter(None, said)) or "built"


def _play(case: ModuleType, out: Path, eager: torch.nn.Module) -> str:
    calls = case.more_inputs() if hasattr(case, "more_inputs") else []
    for number, ((args, kwargs), wanted) in enumerate(zip(calls, case.MORE, strict=True)):
        model = runtime.load(out, fallback=copy.deepcopy(eager))
        _call(case, model, copy.deepcopy(eager), args, kwargs, wanted, f"call {number}")
    return " ".join(case.MORE)


def _call(
    case: ModuleType,
    model: runtime.Dispatcher,
    eager: torch.nn.Module,
    args: Any,
    kwargs: Any,
    wanted: str,
    where: str,
) -> None:
    with torch.no_grad():
        try:
            expected = eager(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        except Exception as error:
            _must_raise(model, args, kwargs, wanted, f"{where}: eager raised {error!r}")
            return
        answer = model(*args, **kwargs)
    torch.testing.assert_close(
        answer, expected, msg=lambda text: f"{where}: {text}", **getattr(case, "TOL", {})
    )
    stats = model.stats()
    assert stats.calls == 1, f"{where}: {stats.calls} calls counted"
    if wanted == "hit":
        assert not sum(stats.misses.values()), f"{where}: {model.explain(*args, **kwargs)}"


def _must_raise(model: runtime.Dispatcher, args: Any, kwargs: Any, wanted: str, where: str) -> None:
    assert wanted == "reject", where
    try:
        made = model(*args, **kwargs)
    except Exception:
        return
    message = f"{where}, the artifact returned {made}"
    raise AssertionError(message)


def _swap(case: ModuleType, out: Path, eager: torch.nn.Module) -> None:
    state = case.NEW_STATE()
    model = runtime.load(out, fallback=copy.deepcopy(eager))
    model.load_weights(state)
    other = copy.deepcopy(eager)
    other.load_state_dict(state)
    for number, (args, kwargs) in enumerate(case.more_inputs()):
        _call(case, model, other, args, kwargs, "value", f"swapped, call {number}")
        model = runtime.load(out, fallback=copy.deepcopy(eager))
        model.load_weights(state)


def import_file(path: Path) -> ModuleType:
    """Import a module from its file, under the file's name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
