"""What a variant must be, beyond the types of its fields: complete, and about its own signature."""

from collections.abc import Iterator, Mapping
from typing import Final

from . import expression, fact, guard, layout, step_check
from .bucket import Bucket, Range
from .errors import ManifestError, TooLargeError, UnknownFeatureError
from .guard import Guard
from .precision import PRECISIONS
from .signature import Signature, TensorLeaf, ValueLeaf
from .signature_check import check_leaf, check_tree
from .strict_json import show
from .text import is_file_name, is_label
from .variant import COMPILED, FILES, GRAPH, LIBRARY, STEP, Variant

MAX_GUARDS: Final = 1 << 16  # of one variant
DEVICES: Final = ("cpu", "cuda")

# A library takes what it gets: whatever is not guarded is read wrongly, or beyond its end.
REQUIRED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    LIBRARY: {
        fact.TENSOR: ("type", "dtype", "device", "rank", "size", "layout", "neg", "conj"),
        fact.VALUE: ("value",),
        fact.HOST: ("torch", "os", "arch"),
    },
    STEP: {
        fact.TENSOR: (
            *("type", "dtype", "device", "rank", "size", "layout", "neg", "conj"),
            "requires_grad",
        ),
        fact.VALUE: ("value",),
        fact.HOST: ("torch", "os", "arch"),
    },
    GRAPH: {
        fact.TENSOR: ("type", "dtype", "device", "rank", "size"),
        fact.VALUE: ("value",),
    },
}


class About:
    """What the variants of one signature are held against; a guard that many of them share, once.

    Attributes:
        signature: what they take.
        leaves: its inputs by path.
        dims: the names of its dimensions.
        inputs: how many tensors there are.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.leaves = dict(signature.inputs())
        self.dims = frozenset(symbol.name for symbol in signature.symbols)
        self.inputs = len(signature.tensors())
        self._required: dict[str, tuple[Guard, ...]] = {}
        self._good: dict[int, Guard] = {}

    def required(self, form: str) -> tuple[Guard, ...]:
        """Return the guards that a variant must have; their expected values are left open."""
        if form not in self._required:
            self._required[form] = tuple(_required(form, self.leaves))
        return self._required[form]

    def check(self, item: Guard, where: str) -> None:
        """Refuse a guard of a variant, `where`, that cannot be evaluated or contradicts the signature.

        Raises:
            ManifestError, UnknownFeatureError, TooLargeError: as `check` below.
        """
        if id(item) not in self._good:
            place = _place(item, where)
            guard.check(item, place)
            _check_subject(item, self.leaves, self.dims, place)
            self._good[id(item)] = item


def check(variant: Variant, about: About, where: str) -> None:
    """Refuse a variant that could answer a call it was not built for.

    References to sections and weights are the manifest's to check.

    Raises:
        ManifestError: a guard is missing or contradicts the signature, or a name or size cannot be.
        UnknownFeatureError: it is of a form, or has a guard, that this version does not know.
        TooLargeError: it has too many guards, or too long an expression.
    """
    if variant.form not in FILES:
        expected = f"one of {', '.join(FILES)}"
        raise UnknownFeatureError(where, found=f"form {show(variant.form)}", expected=expected)
    if not is_label(variant.id):
        raise ManifestError(where, found=f"id {show(variant.id)}", expected="printable text")
    for name in (*FILES[variant.form], *variant.files):
        if name not in variant.files or not is_file_name(name):
            found = "no such file" if name not in variant.files else f"file {show(name)}"
            expected = f"{', '.join(FILES[variant.form])}, and plain file names"
            raise ManifestError(f"{where}: files", found=found, expected=expected)
    if (variant.form in COMPILED) != (variant.target is not None):
        found = "no target" if variant.target is None else "a target"
        raise ManifestError(where, found=found, expected="a target for a library or a step only")
    if (variant.form == STEP) != (variant.step is not None):
        found = "none" if variant.step is None else "one"
        raise ManifestError(f"{where}: step", found=found, expected=f"one in a {STEP!r} only")
    if variant.fp32_precision not in PRECISIONS:
        found, expected = f"fp32_precision {show(variant.fp32_precision)}", " or ".join(PRECISIONS)
        raise ManifestError(where, found=found, expected=expected)
    _check_device(variant, where)
    _check_bucket(variant.bucket, about.dims, f"{where}: bucket")
    _check_guards(variant, about, where)
    _check_state(variant, about.inputs, where)
    _check_padding(variant, about.signature, where)
    if variant.step is not None:
        step_check.check(variant.step, about.inputs, f"{where}: step")
    for path, leaf in check_tree(variant.outputs, "output", where):
        check_leaf(leaf, about.dims, about.inputs, f"{where}: {path}")


def _check_device(variant: Variant, where: str) -> None:
    device = variant.target.device if variant.target is not None else variant.device
    if variant.device != device or device not in DEVICES:
        found, expected = f"device {show(variant.device)}", " or ".join(map(show, DEVICES))
        if variant.target is not None:
            expected = f"{expected}, as its target"
        raise ManifestError(where, found=found, expected=expected)
    if variant.cuda_graph and device != "cuda":
        found = f"a CUDA graph on device {show(device)}"
        raise ManifestError(where, found=found, expected='"cuda"')
    if variant.form in COMPILED and device == "cuda":
        facts = {item.fact for item in variant.guards if item.subject == fact.HOST}
        if "gpu" not in facts:
            raise ManifestError(where, found="no guard on host.gpu", expected="one")


def _check_state(variant: Variant, inputs: int, where: str) -> None:
    for i in variant.written:
        if not 0 <= i < inputs:
            found, expected = f"writes to input {i}", f"below {inputs}"
            raise ManifestError(f"{where}: written", found=found, expected=expected)
    if len(set(variant.state)) != len(variant.state):
        found = show(list(variant.state))
        raise ManifestError(f"{where}: state", found=found, expected="different weights")


def _check_padding(variant: Variant, signature: Signature, where: str) -> None:
    fixed = variant.bucket.fixed()
    for name, low in variant.pad.items():
        if not 1 <= low <= fixed.get(name, 0):
            found, expected = f"{show(name)} from {low}", "a dim of one size, from 1 up to it"
            raise ManifestError(f"{where}: pad", found=found, expected=expected)
    paths = {path for path, _ in signature.tensors()}
    for path in variant.fill.keys() - paths:
        expected = f"one of {show(sorted(paths))}"
        raise ManifestError(f"{where}: fill", found=show(path), expected=expected)


def _check_bucket(bucket: Bucket, dims: frozenset[str], where: str) -> None:
    missing = dims - bucket.dims.keys()
    if missing:
        expected = "a size or a range for each"
        raise ManifestError(where, found=f"nothing for {sorted(missing)}", expected=expected)
    for name, size in bucket.dims.items():
        span = size if isinstance(size, Range) else Range(min=size, max=size)
        if span.min < 0 or (span.max is not None and span.max < span.min):
            found, expected = f"{show(name)} in {span}", "0 <= min <= max"
            raise ManifestError(where, found=found, expected=expected)


def _check_guards(variant: Variant, about: About, where: str) -> None:
    if len(variant.guards) > MAX_GUARDS:
        found = f"{len(variant.guards)} guards"
        raise TooLargeError(where, found=found, expected=f"at most {MAX_GUARDS}")
    there = set()
    for item in variant.guards:
        about.check(item, where)
        if item.fact == "device" and item.expected != variant.device:
            found = f"{show(item.expected)} in the guard"
            expected = f"{show(variant.device)}, the variant's device"
            raise ManifestError(_place(item, where), found=found, expected=expected)
        there.add((item.subject, item.fact, item.axis))
    for needed in about.required(variant.form):
        if (needed.subject, needed.fact, needed.axis) not in there:
            expected = f"one in each variant of form {variant.form!r}"
            raise ManifestError(where, found=f"no guard on {needed.name}", expected=expected)


def _place(item: Guard, where: str) -> str:
    return f"{where}: guard {show(item.name)}"


def _required(form: str, leaves: Mapping[str, TensorLeaf | ValueLeaf]) -> Iterator[Guard]:
    for name in REQUIRED[form].get(fact.HOST, ()):
        yield Guard(subject=fact.HOST, fact=name, expected=None)
    for path, leaf in leaves.items():
        if isinstance(leaf, TensorLeaf):
            for name in REQUIRED[form][fact.TENSOR]:
                axes = range(len(leaf.shape)) if name == "size" else (None,)
                for axis in axes:
                    yield Guard(subject=path, fact=name, expected=None, axis=axis)
        else:
            for name in REQUIRED[form][fact.VALUE]:
                yield Guard(subject=path, fact=name, expected=None)


def _check_subject(
    item: Guard, leaves: Mapping[str, TensorLeaf | ValueLeaf], dims: frozenset[str], where: str
) -> None:
    """Refuse a guard whose subject has no such fact, or has another value for it."""
    leaf = leaves.get(item.subject)
    subject = fact.FACTS[item.fact].subject
    if leaf is None:
        fits = item.subject == subject and subject in (
            fact.DIMS,
            fact.PROCESS,
            fact.MODULE,
            fact.HOST,
        )
    else:
        fits = subject == (fact.TENSOR if isinstance(leaf, TensorLeaf) else fact.VALUE)
    if not fits:
        expected = f"a subject for {item.fact!r}, which is a fact of {subject}"
        raise ManifestError(where, found=f"subject {show(item.subject)}", expected=expected)
    if item.fact == "relation":
        expression.check(item.expected, bool, dims, where)
    if isinstance(leaf, ValueLeaf):
        _agree(item, leaf.text, where)
    elif isinstance(leaf, TensorLeaf):
        match item.fact:
            case "dtype":
                _agree(item, leaf.dtype, where)
            case "rank":
                _agree(item, len(leaf.shape), where)
            case "layout":
                layout.axes(item.expected, len(leaf.shape), where)
            case "size":
                _check_size(item, leaf, dims, where)


def _check_size(item: Guard, leaf: TensorLeaf, dims: frozenset[str], where: str) -> None:
    if item.axis is None or not 0 <= item.axis < len(leaf.shape):
        expected = f"one of {len(leaf.shape)} axes"
        raise ManifestError(where, found=f"axis {item.axis}", expected=expected)
    size = leaf.shape[item.axis]
    if isinstance(size, int):
        _agree(item, size, where)
    elif isinstance(item.expected, str):
        expression.check(item.expected, int, dims, where)


def _agree(item: Guard, expected: object, where: str) -> None:
    if item.expected != expected:
        found = f"{show(item.expected)} in the guard"
        raise ManifestError(where, found=found, expected=f"{show(expected)}, as in the signature")
