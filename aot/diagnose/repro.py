"""A program of one file that shows a fault: a few operators, weights and inputs drawn at random."""

import inspect
import sys
from typing import Final

import torch

from .. import graph_source, operators
from . import walk
from .kinds import DIFFERS, HANGS, OVERFLOWS, WRONG_BACKWARD, WRONG_FAKE
from .ladder import BY_NAME
from .subject import Subject, Window

_HEAD: Final = '''\
"""{headline}

Takes: {takes}
Run it with `python repro.py`: the exit code is 1 where the fault shows, or the signal of a crash.
"""

import copy
import faulthandler
import importlib.util
import sys

import torch

OPTIONS = {options!r}
SECONDS = {seconds}  # until a kernel counts as one that hangs
GRADIENTS = {gradients!r}

torch.manual_seed(0)


def drawn(shape, strides, dtype, low, high, asks=False):
    made = torch.empty_strided(shape, strides, dtype=dtype)
    wide = torch.rand(shape, dtype=torch.float64) * (high - low) + low
    made.copy_(wide if dtype.is_floating_point else wide.round())
    return made.requires_grad_(asks)

'''

_MODULE: Final = """
def bring_in(name, path):
    sys.path.insert(0, path.rpartition("/")[0])
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


"""

_COMMON: Final = """

def widened(value):
    return value.detach().double().requires_grad_(value.requires_grad) if value.is_floating_point() else value


def answers(model, inputs, how=lambda model, inputs: model):
    model, inputs = copy.deepcopy(model), [one.detach().clone().requires_grad_(one.requires_grad) for one in inputs]
    with torch.set_grad_enabled(GRADIENTS):
        torch.manual_seed(0)
        made = list(how(model, inputs)(*inputs))
        asked = [one for one in [*model.parameters(), *inputs] if one.requires_grad]
        outputs = [one for one in made if one.requires_grad]
        if outputs and asked:
            noise = torch.Generator().manual_seed(0)
            tangents = [torch.randn(one.shape, generator=noise).to(one) for one in outputs]
            made += torch.autograd.grad(outputs, asked, tangents, allow_unused=True)
    return [one.detach() for one in made if one is not None]


def ahead_of_time(model, inputs):
    program = torch.export.export(model, tuple(inputs), strict=False).module()
    path = torch._inductor.aot_compile(program, tuple(inputs), options=OPTIONS)
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)
    return lambda *given: runner.run(list(given))


def artifact(model, inputs):
    import tempfile

    from tcbuild import aot, runtime

    path = tempfile.mkdtemp() + "/model.tcb"
    aot.build(aot.Spec.from_module(model, tuple(inputs), verify=False), path)
    return runtime.load(path, on_miss="raise")


def compiled(model, inputs):
    return {python}


def worst(made, exact):
    good = made.isfinite() & exact.isfinite()
    return float((made.double() - exact.double())[good].abs().max()) if good.any() else 0.0

"""

_CALL: Final = """
def main():
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        answers(Model().eval(), inputs(), compiled)
    except Exception as error:
        print(f"FAULT: {type(error).__name__}: {error}")
        return 1
    return 0
"""

_COMPARE: Final = """
def main():
    model, given, bad = Model().eval(), inputs(), False
    eager = answers(model, given)
    try:
        exact = answers(copy.deepcopy(model).double(), [widened(one) for one in given])
    except Exception:  # an operator that has no float64
        exact = eager
    for i, made in enumerate(answers(model, given, compiled)):
        error, own = worst(made, exact[i]), worst(eager[i], exact[i])
        step = 16 if made.dtype in (torch.float32, torch.float64) else 1
        top = float(exact[i].double().abs().max()) if made.numel() else 0.0
        eps = torch.finfo(made.dtype).eps if made.is_floating_point() else 0.0
        finite = torch.equal(made.isfinite(), eager[i].isfinite())
        good = finite and error <= 2 * own + 4 * step * eps * top
        bad |= not good
        print(f"result {i}: error {error:.3g}, eager {own:.3g}", "" if good else "FAULT")
    return int(bad)
"""

_OVERFLOW: Final = """
def main():
    model, given = Model().eval(), inputs()
    eager = answers(model, given)
    exact = answers(copy.deepcopy(model).double(), [widened(one) for one in given])
    lost = sum(int((~a.isfinite() & b.isfinite()).sum()) for a, b in zip(eager, exact))
    print(f"{lost} numbers are inf or nan where float64 has a number", "FAULT" if lost else "")
    return int(lost > 0)
"""

_FAKE: Final = """
def form(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def main():
    from torch._subclasses import FakeTensorMode

    model, given = Model().eval(), inputs()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        told = model(*[mode.from_tensor(one) for one in given])
    bad = False
    for one, other in zip(told, model(*given)):
        bad |= form(one) != form(other)
        print("fake", *form(one), "kernel", *form(other), "FAULT" if form(one) != form(other) else "")
    return int(bad)
"""

_BACKWARD: Final = """
def main():
    model, given = Model().eval().double(), [widened(one) for one in inputs()]
    try:
        torch.autograd.gradcheck(model, given)
    except RuntimeError as error:
        print(f"FAULT: {error}")
        return 1
    return 0
"""

_MAIN: Final = '\n\nif __name__ == "__main__":\n    sys.exit(main())\n'

_SECONDS: Final = {True: 6, False: 50}

_CHECKS: Final = {
    DIFFERS: _COMPARE,
    OVERFLOWS: _OVERFLOW,
    WRONG_FAKE: _FAKE,
    WRONG_BACKWARD: _BACKWARD,
}


def source(
    window: Window, subject: Subject, *, rung: str, kind: str, headline: str, modules: bool
) -> str:
    """Return the text of a repro.

    Args:
        window: the operators.
        subject: the whole model, for the mode of the call and the file of the model.
        rung: the name of the rung that does not hold.
        kind: of the fault.
        headline: its first line.
        modules: whether to import the user's module though no operator needs it: for what it changes.
    """
    layer = BY_NAME[rung]
    takes = ", ".join(walk.form(one) for one in window.inputs)
    options = subject.spec.compiler_options()
    text = _HEAD.format(
        headline=headline,
        takes=takes,
        options=options,
        gradients=subject.mode.grad,
        seconds=_SECONDS[kind == HANGS],
    )
    files = _files(window, subject, modules=modules)
    if files:
        text += _MODULE + "".join(f"bring_in({name!r}, {path!r})\n" for name, path in files)
    code = window.module.graph.python_code("self")
    imports = {graph_source.line_of(name, value, "repro") for name, value in code.globals.items()}
    text += "".join(sorted(imports))
    text += (
        "\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    )
    for name, weight in window.module.named_parameters():
        ask = f"torch.nn.Parameter({_drawn(weight.detach())}, requires_grad={weight.requires_grad})"
        text += f"        self.{name} = {ask}\n"
    for name, buffer in window.module.named_buffers():
        text += f'        self.register_buffer("{name}", {_drawn(buffer)})\n'
    text += "\n" + "".join(f"    {line}\n" for line in code.src.strip().splitlines())
    drawn = "".join(f"        {_drawn(one)},\n" for one in window.inputs)
    text += f"\n\ndef inputs():\n    return [\n{drawn}    ]\n"
    text += _COMMON.replace("{python}", layer.python or "model")
    return text + _CHECKS.get(kind, _CALL) + _MAIN


def _drawn(tensor: torch.Tensor) -> str:
    """Return the expression that draws a tensor of the same form and range."""
    values = tensor.detach().double()
    values = values[values.isfinite()]
    low, high = (float(values.min()), float(values.max())) if values.numel() else (0.0, 1.0)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    asks = ", True" if tensor.requires_grad else ""
    return f"drawn({shape}, {strides}, {tensor.dtype}, {low!r}, {high!r}{asks})"


def _files(window: Window, subject: Subject, *, modules: bool) -> list[tuple[str, str]]:
    """Return the user's modules that are needed, each with its file."""
    found = {one.module: one.file for one in operators.find(window.module).values() if one.file}
    if modules and not found:
        for name in (type(part).__module__ for part in subject.module.modules()):
            file = inspect.getsourcefile(sys.modules[name]) if name in sys.modules else None
            if file and not name.startswith("torch"):
                found.setdefault(name, file)
    return sorted(found.items())
