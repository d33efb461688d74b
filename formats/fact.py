"""The facts that guards are about: of which subject each is, and what an observed value must be."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .bucket import Range
from .errors import ManifestError
from .expression import evaluate
from .layout import is_dense, layout_of

# Subjects. The paths of inputs start with a letter or an underscore, so they are none of these.
DIMS: Final = "@dims"
PROCESS: Final = "@process"
MODULE: Final = "@module"
HOST: Final = "@host"
TENSOR: Final = "tensor"  # any input that is a tensor
VALUE: Final = "value"  # any input that is a Python value

Dims = Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """What values of a fact look like, and how the expected one is held against the observed one.

    Attributes:
        text: what the expected value is, in words.
        well_formed: whether a value can be the expected one.
        accepts: whether the observed value will do; takes expected, observed, and the call's sizes.
        words: the expected value as a message shows it.
        show: the observed value as a message shows it.
    """

    text: str
    well_formed: Callable[[Any], bool]
    accepts: Callable[[Any, Any, Dims], bool]
    words: Callable[[Any], str] = str
    show: Callable[[Any], str] = str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One kind of fact.

    Attributes:
        subject: DIMS, PROCESS, MODULE, HOST, TENSOR or VALUE: what it is a fact of.
        form: of its value.
        meaning: what is observed, in words.
    """

    subject: str
    form: Form
    meaning: str


def _same(expected: object, actual: object, _: Dims) -> bool:
    return type(expected) is type(actual) and bool(expected == actual)


def _value(expression: str, dims: Dims) -> int | bool | None:
    """Return None where the expression has no value: a size is unknown, or it divides by zero."""
    try:
        return evaluate(expression, dims)
    except ManifestError:
        return None


def _is_size(expected: Any) -> bool:
    if isinstance(expected, dict):
        low, high = expected.get("min"), expected.get("max")
        bounded = high is None or (type(high) is int and type(low) is int and low <= high)
        return expected.keys() <= {"min", "max"} and _is_count(low) and bounded
    return _is_count(expected) or type(expected) is str


def _size(expected: Any, actual: int, dims: Dims) -> bool:
    if isinstance(expected, int):
        return actual == expected
    if isinstance(expected, str):
        return actual == _value(expected, dims)
    return actual in Range(**expected)


def _size_words(expected: Any) -> str:
    return str(Range(**expected)) if isinstance(expected, dict) else str(expected)


def _layout(expected: str, actual: tuple[Any, Any], _: Dims) -> bool:
    try:
        return is_dense(expected, *actual)
    except ManifestError:  # it has not as many axes as the layout
        return False


def _layout_words(actual: tuple[Any, Any]) -> str:
    return layout_of(*actual) or f"strides {tuple(actual[1])} for shape {tuple(actual[0])}"


def _is_names(expected: Any) -> bool:
    return isinstance(expected, list | tuple) and all(type(item) is str for item in expected)


def _is_version(expected: Any) -> bool:
    return (
        type(expected) is str and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", expected) is not None
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isascii() and part.isdigit())


def _is_count(expected: Any) -> bool:
    return type(expected) is int and expected >= 0


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda expected: type(expected) is kind


TEXT: Final = Form(text="a string, equal", well_formed=_is(str), accepts=_same)
FLAG: Final = Form(text="true or false, equal", well_formed=_is(bool), accepts=_same)
COUNT: Final = Form(text="an integer of at least 0, equal", well_formed=_is_count, accepts=_same)
SIZE: Final = Form(
    text='an integer, an expression, or `{"min": 2, "max": 512}`; `max` may be null or left out',
    well_formed=_is_size,
    accepts=_size,
    words=_size_words,
)
LAYOUT: Final = Form(
    text='`"contiguous"`, or the axes from the outermost to the innermost: `"0,2,3,1"`',
    well_formed=_is(str),
    accepts=_layout,
    show=_layout_words,
)
RELATION: Final = Form(
    text="an expression that must be true",
    well_formed=_is(str),
    accepts=lambda expected, _, dims: _value(expected, dims) is True,
)
NAMES: Final = Form(
    text="a list of strings, all of which must be there",
    well_formed=_is_names,
    accepts=lambda expected, actual, _: set(expected) <= set(actual),
    words=" ".join,
)
AT_LEAST: Final = Form(
    text="a version, that or a newer one",
    well_formed=_is_version,
    accepts=lambda expected, actual, _: _version(actual) >= _version(expected),
    words=lambda expected: f"at least {expected}",
)


def _fact(subject: str, form: Form, meaning: str) -> Fact:
    return Fact(subject=subject, form=form, meaning=meaning)


FACTS: Final[Mapping[str, Fact]] = {
    "type": _fact(TENSOR, TEXT, "its class; `Tensor` for plain tensors and parameters"),
    "dtype": _fact(TENSOR, TEXT, "its dtype as torch prints it, without the module"),
    "device": _fact(
        TENSOR,
        TEXT,
        "the type of its device, `cpu` or `cuda`; of CUDA the one that the artifact is loaded for",
    ),
    "rank": _fact(TENSOR, COUNT, "how many axes it has"),
    "size": _fact(TENSOR, SIZE, "the size of axis `axis`"),
    "layout": _fact(TENSOR, LAYOUT, "it is dense, with its axes in this order in memory"),
    "neg": _fact(TENSOR, FLAG, "whether it is a lazy negative (`is_neg`)"),
    "conj": _fact(TENSOR, FLAG, "whether it is a lazy conjugate (`is_conj`)"),
    "requires_grad": _fact(TENSOR, FLAG, "whether it asks for a gradient"),
    "shared": _fact(TENSOR, FLAG, "whether it overlaps in memory with another input"),
    "value": _fact(VALUE, TEXT, "its Python `repr`: `None`, `True`, `3`, `0.5`, `'mean'`"),
    "relation": _fact(DIMS, RELATION, "the sizes of the call, by dimension name"),
    "grad_mode": _fact(PROCESS, FLAG, "whether gradients are recorded in the calling thread"),
    "autocast": _fact(PROCESS, FLAG, "whether autocast is on for any device type"),
    "default_dtype": _fact(PROCESS, TEXT, "torch's default dtype"),
    "deterministic": _fact(PROCESS, FLAG, "whether deterministic algorithms are asked for"),
    "modes": _fact(
        PROCESS,
        COUNT,
        "how many torch modes, function transforms and levels of forward AD are active; a default "
        "device is a mode, but for the CPU and the device that the artifact is loaded for",
    ),
    "matmul_precision": _fact(PROCESS, TEXT, "how float32 matrix products round: `highest`"),
    "training": _fact(
        MODULE,
        TEXT,
        "which parts of the fallback module are in training mode: `none`, `all`, `all but NAMES`",
    ),
    "trainable": _fact(
        MODULE, FLAG, "whether gradients are recorded and one of its weights asks for one"
    ),
    "python": _fact(
        HOST, TEXT, "the ABI of its Python, by its name: `cpython-311-x86_64-linux-gnu`"
    ),
    "torch": _fact(HOST, TEXT, "torch's version without its local part: `2.13.0`"),
    "os": _fact(HOST, TEXT, "the system in lower case: `linux`"),
    "arch": _fact(HOST, TEXT, "the processor, as `platform.machine()` names it"),
    "isa": _fact(HOST, NAMES, "the processor's features, as Linux names them"),
    "onednn": _fact(HOST, FLAG, "whether its torch has oneDNN, which packs weights"),
    "glibc": _fact(HOST, AT_LEAST, "the C library's version"),
    "gpu": _fact(
        HOST, TEXT, "the architecture of the GPU that the artifact is loaded for: `sm_90`"
    ),
    "cuda": _fact(HOST, TEXT, "the CUDA version that torch was built with: `13.0`"),
    "driver": _fact(HOST, AT_LEAST, "the newest CUDA version that the GPU's driver supports"),
}
