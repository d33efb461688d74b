"""What the record of a training step must be: every number in it leads somewhere."""

from collections.abc import Iterable

from .errors import ManifestError
from .step import Step


def check(step: Step, tensors: int, where: str) -> None:
    """Refuse a step with a number that leads nowhere.

    The names of weights are the manifest's to check, and the number of values that the programs return is
    known to these alone: the runtime finds out.

    Args:
        step: the record.
        tensors: how many tensors a call has.
        where: for messages.

    Raises:
        ManifestError: naming the first.
    """
    inputs = tensors + len(step.weights)
    if len(set(step.weights)) != len(step.weights):
        raise ManifestError(f"{where}: weights", found="one twice", expected="different weights")
    views = [result.view_of for result in step.results if result.view_of is not None]
    _within(step.trained, inputs, f"{where}: trained")
    _within(views, inputs, f"{where}: results")
    _within((write.input for write in step.writes), inputs, f"{where}: writes")
    _within((tangent.result for tangent in step.tangents), len(step.results), f"{where}: tangents")
    values = (
        *step.saved,
        *step.watched,
        *(r.value for r in step.results),
        *(w.value for w in step.writes),
    )
    if any(value < 0 for value in values):
        raise ManifestError(f"{where}: values", found="one below 0", expected="at least 0")
    if len(step.shares) != len(step.saved):
        found, expected = (
            f"{len(step.shares)} entries",
            f"{len(step.saved)}, one for each saved value",
        )
        raise ManifestError(f"{where}: shares", found=found, expected=expected)
    _within((i for i in step.shares if i is not None), inputs, f"{where}: shares")
    if len(step.gradients) != inputs:
        found, expected = f"{len(step.gradients)} entries", f"{inputs}, one for each input"
        raise ManifestError(f"{where}: gradients", found=found, expected=expected)


def _within(numbers: Iterable[int], count: int, where: str) -> None:
    for number in numbers:
        if not 0 <= number < count:
            raise ManifestError(where, found=str(number), expected=f"from 0 to {count - 1}")
