"""What the user asks for."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..formats.bucket import Bucket
from ..formats.precision import BF16, IEEE, PRECISIONS
from ..formats.text import is_dim
from .dims import Dim, Pad
from .errors import SpecError
from .method import Method, check_name
from .training import Training
from .tune import Tune

if TYPE_CHECKING:
    import torch

Call = tuple[tuple[Any, ...], dict[str, Any]]

MAX_AUTOTUNE = "max-autotune"
MODES = ("default", "reduce-overhead", MAX_AUTOTUNE)
OFF, ON = "off", "on"
EMBEDDED, EXTERNAL = "embedded", "external"
VALUE_TYPES = (type(None), bool, int, float, str)


def no_inputs(_: Mapping[str, int]) -> Call:
    """Stand for the example calls of a model whose methods have their own."""
    raise SpecError("model.inputs", found="none", expected="a function that makes an example call")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A model, the calls it must answer, and how to compile it.

    Attributes:
        name: of the model; part of log lines.
        model: makes the module, in eval mode; called once a build.
        inputs: makes an example call `(args, kwargs)` for sizes by dimension name.
        methods: of the model, in place of its `forward`: each has inputs, shapes, values and optional
            parameters of its own, and the model then none; the dimensions are common to all.
        dims: the policy of each dimension that varies.
        shapes: for each tensor input, by path (`ids`, `inputs['feats'][0]`), the dimension of each
            axis; None for an axis that is as in the example. Axes left out at the end are, too.
        values: for a parameter that takes a Python value which decides what the model computes, the
            values to compile for; one variant for each.
        optional: the parameters to compile for both what the example has and None.
        training: the modes of the model to build variants for: False is eval mode, True training mode.
        grad: the modes of the calling thread to build variants for: "off" where no gradients are
            recorded; "on" where they are, which is right for a model none of whose weights asks for
            one.
        step: how training steps are built, forward and backward, for the model in training mode; there
            are none where left out.
        source: where the model came from, for the manifest.
        targets: where the variants are to run: "cpu", "cuda" for the GPU of the machine that builds, or
            "cuda-sm_90" for that architecture only. For CUDA the model and the example calls are moved
            to the GPU.
        mode: how hard to search for fast code: "default" takes the compiler's own choices;
            "reduce-overhead" lets CUDA variants replay CUDA graphs, and changes nothing on the CPU;
            "max-autotune" compiles each variant in several ways, and keeps the fastest that is right.
        tune: the limits of that search.
        emulate_precision_casts: round bfloat16 and float16 results after every operator, as eager does,
            instead of once for a fused kernel: nearer to eager, and slower.
        pack_weights: whether CPU variants may take weights packed for oneDNN: faster, for a copy of such
            weights in memory in place of the pages of the file. Never where there are variants for
            training, whose weights change in place.
        fp32_precision: in which precision CPU variants may multiply float32: "ieee", or "bf16": linear
            layers, convolutions and attention round what they take and return to bfloat16, where the
            machine that builds is faster at that. As `torch.backends.fp32_precision`.
        weights: where the weights are: "embedded" in the artifact, or "external", in a safetensors file
            beside it: `model.weights.safetensors` for `model.tcb`.
        embed_graph: whether the artifact carries the captured graph for calls that no variant accepts.
        verify: whether the build ends with the check of every variant against the model.
        tolerance: how many times eager's own error against float64 a variant may have.
    """

    name: str
    model: Callable[[], torch.nn.Module]
    inputs: Callable[[Mapping[str, int]], Call] = no_inputs
    methods: Mapping[str, Method] = field(default_factory=dict)
    dims: Mapping[str, Dim] = field(default_factory=dict)
    shapes: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    training: tuple[bool, ...] = (False,)
    grad: tuple[str, ...] = (OFF,)
    step: Training | None = None
    source: str = ""
    targets: tuple[str, ...] = ("cpu",)
    mode: str = "default"
    tune: Tune = field(default_factory=Tune)
    emulate_precision_casts: bool = False
    pack_weights: bool = True
    fp32_precision: str = IEEE
    weights: str = EMBEDDED
    embed_graph: bool = True
    verify: bool = True
    tolerance: float = 2.0

    def __post_init__(self) -> None:
        for name, dim in self.dims.items():
            if not is_dim(name):
                raise SpecError(f"dims.{name}", found=name, expected="a name like batch or seq_len")
            dim.check(f"dims.{name}")
        if self.methods:
            self._check_methods()
        elif self.inputs is no_inputs:
            raise SpecError("model.inputs", found="none", expected="inputs, or methods")
        used = set()
        every: Mapping[str, Spec | Method] = self.methods or {"": self}
        for entry, asked in every.items():
            used |= self._check_calls(f"methods.{entry}." if entry else "", asked)
        for name in sorted(self.dims.keys() - used):
            raise SpecError(f"dims.{name}", found="used by no input", expected="a use in [shapes]")
        if self.mode not in MODES:
            raise SpecError("build.mode", found=self.mode, expected=f"one of {', '.join(MODES)}")
        if self.weights not in (EMBEDDED, EXTERNAL):
            expected = f"{EMBEDDED} or {EXTERNAL}"
            raise SpecError("build.weights", found=self.weights, expected=expected)
        if self.fp32_precision not in PRECISIONS:
            expected = " or ".join(PRECISIONS)
            raise SpecError("build.fp32_precision", found=self.fp32_precision, expected=expected)
        if self.fp32_precision == BF16:
            self._check_rounding()
        self.tune.check("tune")
        if self.step is not None:
            self.step.check("training")
            for name, dim in self.dims.items():
                if isinstance(dim, Pad):
                    expected = "dims that are specialized or dynamic: training steps are not padded"
                    raise SpecError(f"dims.{name}", found="policy 'pad'", expected=expected)
        for target in self.targets or ("none",):
            if not (target in ("cpu", "cuda") or re.fullmatch(r"cuda-sm_[0-9]+", str(target))):
                expected = "cpu, cuda or cuda-sm_XX"
                raise SpecError("build.targets", found=target, expected=expected)
        _check_modes("model.training", self.training, (False, True))
        _check_modes("model.grad", self.grad, (OFF, ON))
        if not 0 <= self.tolerance < math.inf:
            expected = "a number, at least 0"
            raise SpecError("verify.tolerance", found=self.tolerance, expected=expected)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Spec:
        """Read a `tcbuild.toml`.

        Raises:
            SpecError: it is not TOML, or a key is unknown, missing or of another type.
            ModelError: the module of the model or of the inputs cannot be imported.
        """
        from .spec_file import read

        return read(path)

    @classmethod
    def from_module(
        cls,
        model: torch.nn.Module,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        dynamic_shapes: Any = None,
        buckets: Mapping[str, Sequence[int] | Mapping[int, Sequence[int]]] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Spec:
        """Make a spec of a module and one example call.

        Args:
            model: in eval mode.
            args, kwargs: the example call.
            dynamic_shapes: as `torch.export.export` takes them, with named `Dim`s; each becomes a
                dynamic dimension of that name.
            buckets: for a dimension by name, or for the axes of an input, the sizes to specialise it
                for instead.
            name: of the model; its class name where left out.
            options: any other attribute of a Spec.

        Raises:
            SpecError: the parts do not fit together.
        """
        from .spec_module import from_module

        return from_module(model, args, kwargs, dynamic_shapes, buckets, name, options)

    def _check_methods(self) -> None:
        """Refuse what a spec with methods says of the model as a whole."""
        for name in self.methods:
            check_name(name)
        own = {
            "model.inputs": self.inputs is not no_inputs,
            "shapes": self.shapes,
            "values": self.values,
            "model.optional": self.optional,
        }
        for where, given in own.items():
            if given:
                key = where.rpartition(".")[2]
                expected = f"methods.NAME.{key} instead, for methods have their own"
                tip = "the call of the model itself is [methods.forward]"
                raise SpecError(where, found=f"{key}, and methods", expected=expected, tip=tip)
        if self.trains() or ON in self.grad:
            expected = "calls in eval mode that record no gradients"
            raise SpecError("methods", found="training or gradients, too", expected=expected)

    def _check_calls(self, where: str, asked: Spec | Method) -> set[str]:
        """Check what is said of the calls of the model or of one method; return the dims in use."""
        used = {name for axes in asked.shapes.values() for name in axes if name is not None}
        for name in sorted(used - self.dims.keys()):
            expected = f"one of {', '.join(self.dims) or 'no dims at all'}"
            raise SpecError(f"{where}shapes", found=f"the dim {name!r}", expected=expected)
        for name, values in asked.values.items():
            if not values or any(type(value) not in VALUE_TYPES for value in values):
                expected = "a list of None, bool, int, float or str"
                raise SpecError(f"{where}values.{name}", found=repr(values), expected=expected)
        for name in asked.optional:
            if not isinstance(name, str):
                place, found = f"{where or 'model.'}optional", repr(name)
                raise SpecError(place, found=found, expected="names of parameters")
        for name in asked.values.keys() & set(asked.optional):
            place = f"{where}values.{name}"
            raise SpecError(place, found="optional, too", expected="one of the two")
        return used

    def _check_rounding(self) -> None:
        """Refuse it for what it would change nothing of."""
        where, found = "build.fp32_precision", BF16
        if "cpu" not in self.targets:
            expected = f"{IEEE} without cpu among targets; on CUDA, give the model in bfloat16"
            raise SpecError(where, found=found, expected=expected)
        if not self.pack_weights:
            raise SpecError(
                where, found=f"{found}, and pack_weights = false", expected="packed weights"
            )
        if self.trains():
            raise SpecError(where, found=f"{found}, and training", expected=f"{IEEE} with training")

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the methods; "" alone for a model that is called itself."""
        return tuple(self.methods) or ("",)

    def of(self, entry: str) -> Spec:
        """Return the spec of one method, as if the model had no other; itself for ""."""
        if not entry:
            return self
        method = self.methods[entry]
        used = {name for axes in method.shapes.values() for name in axes}
        return replace(
            self,
            methods={},
            dims={name: dim for name, dim in self.dims.items() if name in used},
            inputs=method.inputs,
            shapes=method.shapes,
            values=method.values,
            optional=method.optional,
        )

    def trains(self) -> bool:
        """Return whether there are variants for the model in training mode."""
        return True in self.training or self.step is not None

    def compiler_options(self) -> dict[str, object]:
        """Return the options of Inductor that the spec asks for."""
        return {"emulate_precision_casts": True} if self.emulate_precision_casts else {}

    def example_sizes(self, bucket: Bucket) -> dict[str, int]:
        """Return the sizes to trace a bucket with: different ones for different dimensions.

        Sizes that are equal by chance would be traced as equal by design.
        """
        sizes = bucket.fixed()
        for name, size in bucket.ranges().items():
            taken = set(sizes.values())
            top = (
                size.max if size.max is not None else max(self.dims[name].example(), size.min) + 64
            )
            start = min(max(self.dims[name].example(), size.min), top)
            free = (s for s in (*range(start, top + 1), *range(start - 1, size.min - 1, -1)))
            sizes[name] = next((s for s in free if s not in taken), start)
        return sizes


def _check_modes(where: str, modes: Sequence[object], known: tuple[object, ...]) -> None:
    """Refuse a list of modes that is empty, or has one that is unknown or there twice."""
    good = [mode for mode in known if mode in modes]
    alike = all(type(item) is type(known[0]) for item in modes)
    if not modes or not alike or len(good) != len(modes):
        expected = f"one or both of {', '.join(map(repr, known))}"
        raise SpecError(where, found=list(modes), expected=expected)
