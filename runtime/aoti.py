"""The private surface of torch that runs AOTInductor's libraries; nothing else of ours touches it."""

import functools
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .errors import LibraryError

Run = Callable[[list[torch.Tensor]], list[torch.Tensor]]

# A constant that is bound, and what takes the place of its memory in the end.
_Held = tuple[torch.Tensor, torch.Tensor]

_NOTHING = torch.empty(0, device="cpu")
_CPU = torch.device("cpu")


class Library:
    """A loaded library on one device, with constants bound from outside.

    `run` takes the input tensors as a list and returns the outputs as a list. It checks nothing: every
    wrong input is a wrong answer or a crash, so it is called behind guards only.
    """

    def __init__(self, path: str | os.PathLike[str], device: torch.device = _CPU) -> None:
        """Load the library.

        On CUDA it takes no locks and records no events of its own, so that it can be captured into a
        graph: `run` holds the GIL from beginning to end, which keeps calls apart.

        Raises:
            LibraryError: the system's loader refuses it.
        """
        try:
            self._runner = _runner(os.fspath(path), device)
        except RuntimeError as error:
            raise LibraryError(
                path,
                found=str(error).splitlines()[0],
                expected="a library that the system loads",
                tip="set TCBUILD_CACHE to a folder on a file system that is not mounted noexec",
            ) from error
        self._sets: list[list[_Held]] = [[], []]  # the one in use first
        # `run` outlives this object where somebody keeps it, and the runner lives as long as that.
        weakref.finalize(self._runner, _let_go, *self._sets).atexit = False
        self.run: Run = _on(device, self._runner.run)

    def constants(self) -> frozenset[str]:
        """Return the library's names of the constants it needs."""
        return frozenset(self._runner.get_constant_names_to_original_fqns())

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind the constants by the library's names, without a copy; their memory is kept for it.

        The caller has checked shapes, dtypes and strides: the library would read out of bounds.

        Raises:
            LibraryError: one that the library needs is not among them.
        """
        self._bind(tensors, 0)

    def bind_spare(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind a second set of constants, of the same form, that `flip` brings into use.

        It takes the place of what was bound as the second set before, which no call may be using.
        New values may as well be copied into a set that is not in use, but for packed constants.
        """
        self._bind(tensors, 1)

    def flip(self) -> None:
        """Use the other set from the next call on; waits for calls that are running."""
        if self.constants():
            self._runner.swap_constant_buffer()
            self._sets.reverse()

    def _bind(self, tensors: Mapping[str, torch.Tensor], spare: int) -> None:
        needed = self._needed(tensors)
        if not needed:
            return
        held = [(tensor, _nothing_like(tensor)) for tensor in needed.values()]
        self._runner.update_constant_buffer(needed, bool(spare), True, user_managed=True)
        before = list(self._sets[spare])
        self._sets[spare][:] = held
        _let_go(before)

    def _needed(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return what the library asks for; the compiler may have found a constant to be unused."""
        missing = self.constants() - tensors.keys()
        if missing:
            raise LibraryError(
                "constants",
                found=f"none for {sorted(missing)}",
                expected="all that the library needs in the manifest",
                tip="rebuild the artifact",
            )
        # Tensors of its own over the same memory: see _let_go.
        return {name: tensors[name].detach() for name in self.constants()}


def _runner(path: str, device: torch.device) -> Any:
    if device.type == "cpu":
        return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)
    cuda: Any = torch._C._aoti.AOTIModelContainerRunnerCuda
    no_kernels_beside_it, single_threaded = "", True
    return cuda(path, 1, str(device), no_kernels_beside_it, single_threaded)


def _on(device: torch.device, run: Run) -> Run:
    """Return `run` with the device as the thread's current one, whose stream the library takes."""
    if device.type == "cpu":
        return run
    current, index = torch._C._cuda_getDevice, device.index

    def on_device(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if current() == index:
            return run(tensors)
        with torch.cuda.device(index):
            return run(tensors)

    return on_device


def _nothing_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with next to no memory that may take another one's place: in the same layout."""
    return _NOTHING if tensor.layout is torch.strided else _nothing_packed()


@functools.cache
def _nothing_packed() -> torch.Tensor:
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return torch.empty(1, device="cpu").to_mkldnn()


def _let_go(*bound: "list[_Held]") -> None:
    """Free constants' memory once no library uses it: torch keeps the tensors for ever.

    It runs wherever a library dies, also within a trace or a mode of somebody else's, which must not see the
    operator that setting `data` calls.
    """
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        for held in bound:
            for tensor, nothing in held:
                tensor.data = nothing
