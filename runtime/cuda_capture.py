"""Recording work on the GPU into a CUDA graph, so that a failure leaves torch as it was.

A capture may fail at any step, and torch then leaves behind what the next user of the GPU stumbles over:
its own stream as the thread's current one, and random numbers that wait for the end of a capture.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakValueDictionary

import torch

_capturing = threading.Lock()  # torch captures on one stream, whoever asks


class Pool:
    """Memory that graphs share; each of them keeps it.

    torch refuses a capture into a pool that no graph uses any more while some tensor is still in it,
    so that where the last graph has gone the next begins another.
    """

    def __init__(self) -> None:
        self.handle: Any = torch.cuda.graph_pool_handle()


_pools: WeakValueDictionary[tuple[int, int], Pool] = WeakValueDictionary()  # by device and stream


def pool(device: torch.device, stream: int) -> Pool:
    """Return the pool of a stream: its graphs run one behind the other, so they may share memory."""
    key = device.index, stream
    found = _pools.get(key)
    if found is None:
        found = _pools[key] = Pool()
    return found


def drawn(device: torch.device) -> int:
    """Return how far the random numbers of a device have come."""
    return int(_generator(device).get_offset())


@contextmanager
def capturing(
    graph: torch.cuda.CUDAGraph, pool: Pool, device: torch.device, *, draws: bool
) -> Iterator[None]:
    """Capture what is run into a graph.

    Args:
        graph: a new one.
        pool: for its memory.
        device: of the work.
        draws: it draws random numbers, so that each replay has to draw new ones. Otherwise other
            threads may draw while it is captured, and work that does draw fails to be captured.
    """
    recording = torch.cuda.graph(graph, pool=pool.handle, capture_error_mode="thread_local")
    with (
        _capturing,
        torch.cuda.device(device),
        # A capture that fails as it begins leaves its own stream as the thread's current one.
        torch.cuda.stream(torch.cuda.current_stream(device)),
        warnings.catch_warnings(),
        ExitStack() as ends,
    ):
        warnings.simplefilter("ignore")  # of an empty graph, where the work fails
        if draws:
            ends.enter_context(_released_on_failure(device))
            ends.enter_context(recording)
        else:
            # The state that a capture begins with is marked until the capture ends well: a spare one.
            with _spare_state(device):
                ends.enter_context(recording)
        yield


def _generator(device: torch.device) -> Any:
    return torch.cuda.default_generators[device.index]


@contextmanager
def _spare_state(device: torch.device) -> Iterator[None]:
    generator = _generator(device)
    own = generator.graphsafe_get_state()
    generator.graphsafe_set_state(generator.clone_state())
    try:
        yield
    finally:
        generator.graphsafe_set_state(own)


@contextmanager
def _released_on_failure(device: torch.device) -> Iterator[None]:
    generator = _generator(device)
    try:
        yield
    except BaseException:
        generator.graphsafe_set_state(generator.clone_state())  # a clone is not marked
        raise
