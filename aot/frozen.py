"""Python values that tracing has turned into constants of the graph."""

from collections.abc import Sequence

import torch

from ..formats import code_values
from ..formats.signature import describe_value

MAX_VALUES = 10_000


def find(module: torch.nn.Module, entries: Sequence[str] = ()) -> dict[str, str]:
    """Return the plain values of a model, as text: what may have become a constant of the graph.

    That is what the module and its submodules hold as attributes (which of them the code reads is not
    known, so all are recorded: `layers.0.eps` is `1e-05`), and what the code of their `forward` reads
    from around it: `globals model.SCALE` is `0.5`. Attributes that start with an underscore are
    torch's own or private, and `training` has a check of its own.

    Args:
        module: the model.
        entries: the methods of it whose code counts, besides `forward`.
    """
    found: dict[str, str] = {}
    for path, submodule in module.named_modules():
        for name, value in vars(submodule).items():
            if name.startswith("_") or name == "training":
                continue
            text = describe_value(value)
            if text is not None and len(found) < MAX_VALUES:
                found[f"{path}.{name}" if path else name] = text
    found |= code_values.find(code_values.functions(module, entries))
    return dict(sorted(found.items()))
