"""10 - keyword order, defaults, positional-or-keyword.

Source: pytorch/pytorch#118470 (compiled AOT function depends on the insertion order of kwargs),
pytorch/torchtitan#4199 (precompiled artifact swapped two tensors because a dict was built in another order).
Must hold: inputs bind by NAME. Swapped keyword order, positional use of the same parameters and left-out
defaults all give eager's result; an unknown or missing name is refused with the name in the message.
"""

import torch

BUILD = "ok"
MORE = ["hit", "hit", "value", "reject", "reject"]


class Sub(torch.nn.Module):
    def forward(self, a, b, scale=None):
        out = a - b
        return out if scale is None else out * scale


def make():
    a, b, s = torch.full((3,), 5.0), torch.full((3,), 2.0), torch.full((3,), 10.0)
    return Sub().eval(), (), {"a": a, "b": b, "scale": s}, None


def more_inputs():
    a, b, s = torch.arange(3.0), torch.arange(3.0) * 4, torch.arange(3.0) + 1
    return [
        ((), {"scale": s, "b": b, "a": a}),  # reversed order
        ((a, b, s), {}),  # positional
        ((a,), {"b": b}),  # default left out
        ((), {"a": a, "bb": b, "scale": s}),  # unknown name
        ((a,), {"scale": s}),
    ]  # missing name
