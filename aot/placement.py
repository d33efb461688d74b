"""The model on the kind of device that a job is for."""

import copy
import itertools

import torch

from ..formats.signature import Node, Signature, TensorLeaf
from ..formats.tree import arguments
from . import examples, method, structure
from .plan import Job
from .spec import Call, Spec


class Placement:
    """A module, and copies of it on other kinds of devices, each made when it is first asked for."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._copies: dict[str, torch.nn.Module] = {}
        self._views: dict[tuple[str, str], torch.nn.Module] = {}

    def on(self, device: str, entry: str = "") -> torch.nn.Module:
        """Return the module with its parameters and buffers on a device; itself where they are.

        Args:
            device: "cpu" or "cuda": the current GPU.
            entry: the method that is to be its `forward`.

        Raises:
            ModelError: it has no such method.
        """
        if entry:
            if (device, entry) not in self._views:
                self._views[device, entry] = method.view(self.on(device), entry)
            return self._views[device, entry]
        if device not in self._copies:
            tensors = itertools.chain(self._module.parameters(), self._module.buffers())
            there = all(tensor.device.type == device for tensor in tensors)
            self._copies[device] = self._module if there else copy.deepcopy(self._module).to(device)
        return self._copies[device]


def example_call(spec: Spec, module: torch.nn.Module, job: Job) -> Call:
    """Return the call that a job is traced with, on the job's device.

    Args:
        spec: of the job's entry.
        module: the model, or its method, on that device.
        job: for its sizes, and for the values of parameters.
    """
    call = spec.inputs(spec.example_sizes(job.bucket))
    return call_on(examples.chosen(module.forward, call, job.choices), module, job.target.device)


def call_on(call: Call, module: torch.nn.Module, device: str) -> Call:
    """Return a call of the module with its tensors on a kind of device."""
    if device == "cpu":
        return call
    leaves: list[object] = []

    def leaf(_: str, value: object) -> Node:
        leaves.append(moved(value, device) if isinstance(value, torch.Tensor) else value)
        return TensorLeaf(dtype="", shape=(), index=len(leaves) - 1)

    parameters = structure.parameters(module.forward, call, leaf)
    return arguments(Signature(parameters=parameters), leaves)


def moved(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Return a tensor on a kind of device; itself where it is, else a copy with the same strides."""
    if tensor.device.type == device:
        return tensor
    copied = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return copied.copy_(tensor)
