"""One case: build it, play its calls, compare with eager; see __main__.py for the form of a case."""

import copy
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tcbuild import aot, runtime
from tcbuild.formats import TcbuildError

from .placed import Mover, Placed

CPU, CUDA = "cpu", "cuda:0"


class LeftOutError(Exception):
    """The case is not for this device."""


def run_case(path: Path, device: str = CPU) -> str:
    """Build one case and play it; return what happened in a few words.

    Args:
        path: of the case.
        device: CPU or CUDA: the model, its calls and its new weights are moved there.

    Raises:
        LeftOutError: the case says that it is for other devices.
        AssertionError: the artifact did not do what the case says.
        TcbuildError: the build refused a case that must build.
    """
    case = import_file(path)
    kind = device.partition(":")[0]
    devices = getattr(case, "DEVICES", (kind,))
    if kind not in {name.partition(":")[0] for name in devices}:
        message = f"only for {', '.join(devices)}"
        raise LeftOutError(message)
    module, args, kwargs, dynamic_shapes = case.make()
    if device != CPU:
        module = module.to(device)
        args, kwargs = Mover(device)((args, kwargs))
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
                targets=(kind,),
            )
            aot.build(spec, out)
        except TcbuildError as error:
            if case.BUILD == "ok_or_error":
                return f"refused: {str(error).splitlines()[0]}"
            raise
        with _whole_float32():
            said = _Player(case, out, eager, device).play()
        return ", ".join(said) or "built"


class _Player:
    """Plays what a case says on its artifact, each call on a model that is loaded for it."""

    def __init__(self, case: ModuleType, out: Path, eager: torch.nn.Module, device: str) -> None:
        self._case = case
        self._out = out
        self._eager = eager
        self._device = device

    def play(self) -> list[str]:
        """Do all that the case asks for; return a word for each."""
        case = self._case
        said = []
        for number, (call, wanted) in enumerate(zip(self._calls(), self._more(), strict=True)):
            self._call(self._load(), copy.deepcopy(self._eager), call, wanted, f"call {number}")
            said.append(wanted)
        done = [" ".join(said)] if said else []
        if hasattr(case, "check"):
            with torch.set_grad_enabled(getattr(case, "MODE", "") == "train"):
                case.check(self._near(self._load()), self._near(copy.deepcopy(self._eager)))
            done.append("check")
        if hasattr(case, "NEW_STATE"):
            self._swap()
            done.append("swap")
        return done

    def _swap(self) -> None:
        state = self._case.NEW_STATE()
        if self._device != CPU:
            state = Mover(self._device)(state)
        other = copy.deepcopy(self._eager)
        other.load_state_dict(state)
        for number, call in enumerate(self._calls()):
            model = self._load()
            model.load_weights(state)
            self._call(model, other, call, "value", f"swapped, call {number}")

    def _calls(self) -> list[tuple[Any, Any]]:
        calls = self._case.more_inputs() if hasattr(self._case, "more_inputs") else []
        return calls if self._device == CPU else [Mover(self._device)(call) for call in calls]

    def _more(self) -> list[str]:
        words: list[str] = getattr(self._case, "MORE", [])
        return words

    def _load(self) -> runtime.Dispatcher:
        return runtime.load(self._out, device=self._device, fallback=copy.deepcopy(self._eager))

    def _near(self, model: Any) -> Any:
        """Return a model that a case can call with what it makes: tensors on the CPU."""
        return model if self._device == CPU else Placed(model, self._device)

    def _call(
        self, model: runtime.Dispatcher, eager: torch.nn.Module, call: Any, wanted: str, where: str
    ) -> None:
        args, kwargs = call
        with torch.no_grad():
            try:
                expected = eager(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            except Exception as error:
                _must_raise(model, args, kwargs, wanted, f"{where}: eager raised {error!r}")
                return
            answer = model(*args, **kwargs)
        torch.testing.assert_close(
            answer, expected, msg=lambda text: f"{where}: {text}", **getattr(self._case, "TOL", {})
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


@contextmanager
def _whole_float32() -> Iterator[None]:
    """Let convolutions on CUDA keep all of float32, as products do: else each algorithm rounds anew.

    Not while a case is built: its verification compares with what a fresh process computes.
    """
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def import_file(path: Path) -> ModuleType:
    """Import a module from its file, under the file's name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
