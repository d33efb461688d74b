"""The record of one compiled program: what it is right for, and which sections it is made of."""

from dataclasses import dataclass, field
from typing import Final

from .bucket import Bucket
from .guard import MODULE, PROCESS, Guard
from .packing import Packing
from .precision import IEEE
from .signature import Node
from .step import Step
from .target import Target
from .training import NONE
from .trial import Trial

LIBRARY: Final = "library"
GRAPH: Final = "graph"
STEP: Final = "step"
COMPILED: Final = (LIBRARY, STEP)
BACKWARD: Final = "backward.so"
# What a variant of each form must have.
FILES: Final = {LIBRARY: ("model.so",), GRAPH: ("graph.py",), STEP: ("model.so", BACKWARD)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One program that answers calls.

    Attributes:
        id: names it in plans, logs and counters: `batch=8,seq=2..512@cpu-x86-64-v4`.
        entry: the entry point of the model that it answers: the name of a method; empty for an artifact
            that has one only, the model's `forward`.
        form: "library" (native code, made by AOTInductor) or "graph" (the captured graph as Python
            source that runs eagerly; it serves misses and never counts as a hit), or "step" (native
            code of a training step: forward and backward).
        signature: index of its signature in the manifest.
        bucket: the sizes it serves.
        guards: everything that must hold for a call, and for the host.
        outputs: what a call returns; its tensors are numbered as the program returns them.
        files: the program's files by name, each with the name of the section that holds it:
            model.so (and model.json where an operator is called back into torch), or graph.py; of
            a step backward.so, too.
        constants: the program's name for each of its constants, with the name of the weight bound
            to it.
        packed: how the weights in some of its slots are packed for it, by slot.
        fp32_precision: in which precision it multiplies float32: "ieee", or "bf16", where factors and
            results of products are rounded to bfloat16. It is held against eager that does the same.
        step: how forward and backward fit together; None for the other forms.
        state: the weights that it takes behind the call's tensors and writes to in place: the state of
            the model, which all variants share.
        written: the indices of the call's tensors that it writes to in place.
        pad: for each dimension along which a smaller call is padded up to the bucket, the smallest
            size for which that is done. The outputs are then cut back along the axes whose size is
            that dimension.
        fill: what the padding of an input holds, by path; 0 where nothing is said.
        operators: the custom operators that it calls, each with the Python module that
            registers it, or "" where that is not known.
        reference: name of the section with the graph this variant was compiled from, as source; it
            is what `tcbuild verify` holds the variant against. It takes the same constants
            and more.
        target: where it may run; None for a graph.
        device: the type of device that its tensors are on: "cpu" or "cuda"; a library's target's.
        cuda_graph: whether its calls are captured into CUDA graphs and replayed.
        options: the compiler's options it was made with, as text, for people to read.
        trials: what the search for these options measured, in the order in which they were tried;
            empty where nothing was searched.
    """

    id: str
    form: str
    signature: int
    bucket: Bucket
    guards: tuple[Guard, ...]
    outputs: Node
    files: dict[str, str]
    constants: dict[str, str]
    packed: dict[str, Packing] = field(default_factory=dict)
    fp32_precision: str = IEEE
    step: Step | None = None
    state: tuple[str, ...] = ()
    written: tuple[int, ...] = ()
    pad: dict[str, int] = field(default_factory=dict)
    fill: dict[str, int | float] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)
    reference: str | None = None
    target: Target | None = None
    device: str = "cpu"
    cuda_graph: bool = False
    options: dict[str, str] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    entry: str = ""

    @property
    def training(self) -> bool:
        """Whether it is for a model in training mode."""
        return self._expects(MODULE, "training") not in (None, NONE)

    @property
    def grad(self) -> bool:
        """Whether it is for calls while gradients are recorded."""
        return self._expects(PROCESS, "grad_mode") is True

    def _expects(self, subject: str, fact: str) -> object:
        found = (g.expected for g in self.guards if g.subject == subject and g.fact == fact)
        return next(found, None)
