"""CUDA graphs: what a library does on the GPU for calls of one form, recorded once and replayed.

The first call of a form runs as it is, which loads the kernels; the second is captured; from then on a
call copies its tensors to where the graph reads them, replays it, and copies the outputs out. Graphs are
kept for each stream, so that calls on different streams do not overwrite each other's; the graphs of one
stream share one pool of memory, since they run one behind the other.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from . import cuda_capture
from .alert import Alerter
from .cuda_capture import Pool

MAX_GRAPHS: Final = 32  # of one program; further forms of calls run without

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """How the graphs of one loaded model deal with their callers.

    Attributes:
        borrow_inputs: they read the caller's tensors where they are.
        borrow_outputs: they hand out their own memory, valid until the next call on the stream.
        alerter: told of each capture that fails.
    """

    borrow_inputs: bool = False
    borrow_outputs: bool = False
    alerter: Alerter


@dataclass(frozen=True, kw_only=True)
class _Captured:
    """One graph.

    Attributes:
        inputs: what it reads.
        own: those of them, at the start, that calls are copied to.
        outputs: what it writes.
        pool: where its memory is.
        bytes: of memory that it holds besides the caller's tensors and the weights.
    """

    graph: torch.cuda.CUDAGraph
    inputs: list[torch.Tensor]
    own: list[torch.Tensor]
    outputs: Sequence[torch.Tensor]
    pool: Pool
    bytes: int


@dataclass
class _Forms:
    """What is known of the calls of one program: forms that have run once, and the graphs.

    Attributes:
        seen: forms that have run.
        graphs: by form; None where the capture failed.
        draws: whether calls have drawn random numbers.
    """

    seen: set[Key] = field(default_factory=set)
    graphs: dict[Key, _Captured | None] = field(default_factory=dict)
    draws: bool = False


class Graphs:
    """The graphs of one program, for calls from many threads.

    `run` takes and returns what the program's own does.
    """

    def __init__(
        self,
        run: Run,
        device: torch.device,
        options: GraphOptions,
        *,
        name: str,
        state: int,
        written: Sequence[int],
    ) -> None:
        """Prepare; nothing is captured yet.

        Args:
            run: of the library.
            device: of all tensors.
            options: of the loaded model.
            name: of the variant, for alerts.
            state: how many tensors at the end of each call are always the same ones.
            written: the indices of the tensors that the library writes to in place.
        """
        self._run = run
        self._device = device
        self._options = options
        self._name = name
        self._state = state
        self._written = written
        self._lock = threading.Lock()
        self._forms = _Forms()

    def run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Answer a call that the guards have accepted."""
        stream = torch._C._cuda_getCurrentRawStream(self._device.index)
        key = self._key(tensors, stream)
        with self._lock:
            captured = self._forms.graphs.get(key)
            if captured is None:
                if key in self._forms.graphs:
                    return self._run(tensors)
                if not self._due(key):
                    return self._first(tensors)
                captured = self._capture(tensors, key, stream)
                if captured is None:
                    return self._run(tensors)
            return self._replay(captured, tensors)

    def drop(self) -> None:
        """Forget all graphs: they hold the addresses of weights that are no longer in use."""
        with self._lock:
            self._forms = _Forms()

    def read(self) -> tuple[int, int]:
        """Return how many graphs there are, and the bytes of memory that they hold."""
        with self._lock:
            graphs = [graph for graph in self._forms.graphs.values() if graph is not None]
        return len(graphs), sum(graph.bytes for graph in graphs)

    def _key(self, tensors: Sequence[torch.Tensor], stream: int) -> Key:
        given = tensors[: len(tensors) - self._state]
        if self._options.borrow_inputs:
            return stream, *[(t.data_ptr(), t.shape, t.stride()) for t in given]
        return stream, *[t.shape for t in given]

    def _due(self, key: Key) -> bool:
        """Return whether a call of this form has run before, so that its kernels are loaded."""
        if key in self._forms.seen:
            return len(self._forms.graphs) < MAX_GRAPHS
        if len(self._forms.seen) < MAX_GRAPHS:
            self._forms.seen.add(key)
        return False

    def _first(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Answer without a graph, and see whether the program draws random numbers."""
        before = cuda_capture.drawn(self._device)
        outputs = self._run(tensors)
        # Other threads may draw in between: then it is captured as if it drew, which is right, too.
        self._forms.draws |= cuda_capture.drawn(self._device) != before
        return outputs

    def _capture(self, tensors: list[torch.Tensor], key: Key, stream: int) -> _Captured | None:
        copied = 0 if self._options.borrow_inputs else len(tensors) - self._state
        reserved = torch.cuda.memory_reserved(self._device)
        own = [_like(tensor) for tensor in tensors[:copied]]
        inputs = [*own, *(tensor.detach() for tensor in tensors[copied:])]
        graph, pool = torch.cuda.CUDAGraph(), cuda_capture.pool(self._device, stream)
        try:
            with cuda_capture.capturing(graph, pool, self._device, draws=self._forms.draws):
                outputs = list(self._run(inputs))
        except Exception as error:
            self._forms.graphs[key] = None  # it is not tried again
            reason = str(error).strip().splitlines()[0]
            self._options.alerter.trouble(
                "cuda_graph", f"{self._name} was not captured: {reason}", "the library itself"
            )
            return None
        held = max(0, torch.cuda.memory_reserved(self._device) - reserved)
        captured = _Captured(
            graph=graph, inputs=inputs, own=own, outputs=outputs, pool=pool, bytes=held
        )
        self._forms.graphs[key] = captured
        return captured

    def _replay(self, captured: _Captured, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        own = captured.own
        if own:
            torch._foreach_copy_(own, tensors[: len(own)])
        captured.graph.replay()
        if own:
            for i in self._written:
                tensors[i].copy_(own[i])
        if self._options.borrow_outputs:
            return captured.outputs
        return [output.clone() for output in captured.outputs]


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides that may be written to in any mode."""
    with torch.inference_mode(False):
        return tensor.detach().clone(memory_format=torch.preserve_format)
