"""The mode of a call: whether the model trains, and whether gradients are recorded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..formats.variant import Variant


@dataclass(frozen=True, kw_only=True)
class CallMode:
    """How the model and torch are set when a call is traced or answered.

    Attributes:
        training: whether the model is in training mode, as its own `train()` sets it.
        grad: whether gradients are recorded; none of the model's weights asks for one.
        step: whether it is a training step: gradients are recorded, and computed by a backward.
    """

    training: bool = False
    grad: bool = False
    step: bool = False

    @classmethod
    def of(cls, variant: Variant) -> "CallMode":
        """Return the mode that a variant is for."""
        return cls(training=variant.training, grad=variant.grad, step=variant.step is not None)

    def __str__(self) -> str:
        words = ["train"] * self.training
        return ",".join([*words, *(["step"] if self.step else ["grad"] * self.grad)])

    @contextmanager
    def on(self, module: torch.nn.Module) -> Iterator[None]:
        """Set the model, which is in eval mode, and torch to the mode; put both back at the end.

        Autocast that the caller is in is off for that time: a call under it is none that a variant answers.
        """
        before = [(part, part.training) for part in module.modules()]
        try:
            if self.training:
                module.train()
            with (
                torch.set_grad_enabled(self.grad),
                torch.autocast("cpu", enabled=False),
                torch.autocast("cuda", enabled=False),
            ):
                yield
        finally:
            for part, training in before:
                part.training = training
