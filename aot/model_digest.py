"""What a model answers to given calls, as one digest: it tells models apart that capture alike."""

import copy
import hashlib
from collections.abc import Iterable

import torch
from torch.utils import _pytree as pytree

from .call_mode import CallMode
from .spec import Call
from .weight_table import tensor_bytes


def model_digest(module: torch.nn.Module, calls: Iterable[tuple[str, CallMode, Call]]) -> str:
    """Run a copy of the model on the calls and return the digest of all that it returns.

    Random numbers are drawn from the same seed each time.

    Args:
        module: the model.
        calls: the method of each, "" for the model's own call; and how it is made.
    """
    module = copy.deepcopy(module)
    digest = hashlib.sha256()
    for entry, mode, call in calls:
        args, kwargs = copy.deepcopy(call)
        with mode.on(module), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            result = (getattr(module, entry) if entry else module)(*args, **kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                digest.update(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
                digest.update(tensor_bytes(leaf.detach().contiguous().cpu()))
            else:
                digest.update(repr(leaf).encode())
    return digest.hexdigest()
