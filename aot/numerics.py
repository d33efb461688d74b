"""When an answer is as good as eager's.

The rule: the error against a float64 reference is at most twice eager's own error, plus a few rounding
steps of the output's dtype at the size of its largest value (STEPS). Errors are largest absolute
differences over an output. Integers and booleans must be eager's or the reference's.
"""

from dataclasses import dataclass
from typing import Final

import torch

# Eager adds long sums pairwise; Inductor's C++ adds up to 4,096 terms one behind the other before it
# does, which is right and rounds more: a mean over 512 tokens was 5 steps off where eager was 1. In 16
# bits one step is much more than that, since both add in float32.
STEPS: Final = {torch.float32: 16, torch.float64: 16, torch.complex64: 16, torch.complex128: 16}

# A gradient of a weight is a sum over all rows of a batch. Of 4,096 numbers that are added one behind
# the other, the rounding adds up to some 64 steps: a random walk.
SUMMED: Final = 4


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How an answer compares.

    Attributes:
        error: its largest absolute difference to float64.
        eager: the same of eager.
        allowed: what the rule allows.
        problem: empty where it passes, else what is wrong, in words.
    """

    error: float = 0.0
    eager: float = 0.0
    allowed: float = 0.0
    problem: str = ""


def judge(
    made: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    tolerance: float = 2.0,
    steps: int = 1,
    rounded: torch.Tensor | None = None,
) -> Verdict:
    """Hold an answer against eager's and the float64 reference.

    Args:
        made, eager: of the same dtype and shape, else there is a problem.
        exact: of the same shape.
        tolerance: how many times eager's own error is allowed.
        steps: how many times STEPS are allowed.
        rounded: what eager answers where products of float32 are made in bfloat16, if the answer is made
            so: its error is then eager's, and a step is one of bfloat16.
    """
    if made.shape != eager.shape or made.dtype != eager.dtype:
        found = f"{made.dtype} {list(made.shape)}, eager {eager.dtype} {list(eager.shape)}"
        return Verdict(problem=found)
    if not made.dtype.is_floating_point and not made.dtype.is_complex:
        good = equal(made, eager) or equal(made, exact.to(made.dtype))
        found = f"{int((made != eager).sum())} values differ from eager's"
        return Verdict(problem="" if good else found)
    wide = torch.complex128 if exact.dtype.is_complex else torch.float64
    mine, own, exact = (tensor.detach().to(wide) for tensor in (made, eager, exact))
    if not torch.equal(mine.isnan(), own.isnan()) or not torch.equal(mine.isinf(), own.isinf()):
        return Verdict(problem="nan or inf where eager has none, or the reverse")
    finite = own.isfinite() & exact.isfinite()
    error, by_eager = _largest((mine - exact)[finite]), _largest((own - exact)[finite])
    step = STEPS.get(eager.dtype, 1) * torch.finfo(eager.dtype).eps
    if rounded is not None:
        by_eager = max(by_eager, _largest((rounded.to(wide) - exact)[finite]))
        step = max(step, torch.finfo(torch.bfloat16).eps)
    allowed = tolerance * by_eager + steps * step * _largest(exact[finite])
    problem = ""
    if not error <= allowed:
        problem = f"an error of {error:.3g} against float64, eager has {by_eager:.3g}"
    return Verdict(error=error, eager=by_eager, allowed=allowed, problem=problem)


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same dtype, shape and values; nan equals nan."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or bool(
        torch.all((one == other) | (one.isnan() & other.isnan()))
    )


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
