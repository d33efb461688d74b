"""How the two programs of a training step fit together: forward, and the backward that follows it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A tensor that a forward call returns.

    Attributes:
        value: which of the step's values it is.
        differentiable: whether a gradient flows back from it.
        view_of: the input that it shares memory with; None where it has memory of its own.
    """

    value: int
    differentiable: bool = True
    view_of: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Write:
    """An input that the model writes to.

    Attributes:
        input: which one.
        value: what it holds after the call.
    """

    input: int
    value: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Tangent:
    """The gradient of a result, as the backward program takes it.

    Attributes:
        result: which one.
        layout: that it is in, as in a TensorLeaf.
    """

    result: int
    layout: str = "contiguous"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A forward program, and the backward program for the values it has saved.

    The forward takes the call's tensors, then the weights; the backward takes what was saved, then the
    gradients of results. Values are numbered through: the inputs of the forward come first, then what it
    returns.

    Attributes:
        weights: the names of the weights that the forward takes behind the call's tensors.
        trained: the inputs that a gradient is asked for, calls' tensors and weights.
        results: what the model returns, in the numbering of the variant's `outputs`.
        writes: what the model writes to.
        saved: the values that the backward takes.
        shares: for each of them, the input that it shares memory with; None where it has its own.
        watched: further values that the backward does not take, but that must not be written to before
            it runs: what is saved shares memory with them.
        tangents: the gradients that it takes behind them.
        gradients: for each input of the forward, which of the backward's outputs is its gradient; None
            where it has none.
        backward_constants: the backward's name for each of its constants, with the name of the weight
            bound to it; the forward's are the variant's `constants`.
    """

    weights: tuple[str, ...]
    trained: tuple[int, ...]
    results: tuple[Result, ...]
    writes: tuple[Write, ...] = ()
    saved: tuple[int, ...] = ()
    shares: tuple[int | None, ...] = ()
    watched: tuple[int, ...] = ()
    tangents: tuple[Tangent, ...] = ()
    gradients: tuple[int | None, ...] = ()
    backward_constants: dict[str, str] = field(default_factory=dict)
