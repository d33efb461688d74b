"""11 - nested containers in and out.

Source: pytorch/pytorch#118470 and #114392 (dict nodes flatten in insertion order), pytorch/torchtitan#4199;
jax-ml/jax#34140 (pytree mismatch messages had to be rewritten to be understood).
Must hold: dict inputs bind by key at every depth; the output keeps container types and keys; another
structure (extra key, longer list) is a counted fallback when eager takes it, and an error naming the path
(for example inputs['feats'][1]) when it does not.
"""

import torch

BUILD = "ok"
MORE = ["hit", "value", "reject"]


class Nest(torch.nn.Module):
    def forward(self, inputs):
        f0, f1 = inputs["feats"][0], inputs["feats"][1]
        return {
            "diff": f0 - f1,
            "parts": [inputs["meta"]["w"] * f0, (f1,)],
            "extra": sum(inputs["feats"][2:], f0 * 0),
        }


def make():
    w = torch.tensor([1.0, 2.0])
    return (
        Nest().eval(),
        ({"feats": [torch.ones(2), torch.zeros(2)], "meta": {"w": w, "v": w + 1}},),
        {},
        None,
    )


def more_inputs():
    a, b, w = torch.tensor([3.0, 4.0]), torch.tensor([7.0, 1.0]), torch.tensor([2.0, 2.0])
    return [
        (({"meta": {"v": w, "w": w * 3}, "feats": [a, b]},), {}),  # keys reordered at two depths
        (({"feats": [a, b, w], "meta": {"w": w, "v": w}},), {}),  # longer list
        (({"feats": [a, b], "meta": {"v": w}},), {}),
    ]  # key missing
