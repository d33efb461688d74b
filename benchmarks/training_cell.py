"""One way to train; run by training.py.

    training_cell.py WAY DEVICE FOLDER STEPS [small]

WAY is `eager`, `compile MODE`, or `tcbuild PARTITION`, whose artifact is FOLDER/PARTITION.tcb. The last
line printed is JSON: the median of the steps in seconds, the peak memory over what stays, the loss after
the last step, and when the first step had ended by `time.monotonic()`.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WARM: Final = 5  # steps before the timed ones


@dataclass(frozen=True, kw_only=True)
class Size:
    """The sizes of the model and of a batch."""

    layers: int
    width: int
    heads: int
    batch: int
    length: int
    dtype: torch.dtype
    words: int = 1024


def size(device: str, *, small: bool) -> Size:
    """Return the sizes for a device."""
    if small:
        return Size(layers=1, width=32, heads=2, batch=2, length=16, dtype=torch.float32)
    if device == "cuda":
        return Size(
            layers=12, width=768, heads=12, batch=8, length=512, dtype=torch.bfloat16, words=50_304
        )
    return Size(layers=4, width=256, heads=4, batch=4, length=128, dtype=torch.float32)


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each normalised first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        heads = self.query_key_value(self.norm_attention(x)).view(batch, seq, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(x.shape))
        fed: Tensor = self.narrow(F.gelu(self.widen(self.norm_feed(x))))
        return x + fed


class Gpt(nn.Module):
    """Embeddings, blocks, and a head that is the embedding; returns the loss."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embed = nn.Embedding(size.words, size.width)
        self.positions = nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def model(size: Size) -> nn.Module:
    """Return the model, the same each time."""
    torch.manual_seed(0)
    made = Gpt(size).to(size.dtype)
    for parameter in made.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return made


def batch(size: Size) -> tuple[Tensor, Tensor]:
    """Return a batch, the same each time."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(size.words, (size.batch, size.length + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def callable_of(way: str, module: nn.Module, folder: Path) -> Callable[..., Tensor]:
    """Return what makes the loss."""
    kind, _, which = way.partition(" ")
    if kind == "compile":
        made: Callable[..., Tensor] = torch.compile(module, mode=which)
        return made
    if kind == "tcbuild":
        from tcbuild import runtime

        runtime.attach(module, folder / f"{which}.tcb", on_miss="raise")
    return module


class Memory:
    """The peak of memory over what was held before, in bytes."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._before = self._now()
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")

    def peak(self) -> int:
        if self._cuda:
            return torch.cuda.max_memory_allocated() - self._before
        return self._read("VmHWM:") - self._before

    def _now(self) -> int:
        return torch.cuda.memory_allocated() if self._cuda else self._read("VmRSS:")

    def _read(self, name: str) -> int:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise ValueError(name)


def main(way: str, device: str, folder: str, steps: str, small: str = "") -> None:
    sizes = size(device, small=bool(small))
    module = model(sizes).to(device).train()
    ids, targets = (tensor.to(device) for tensor in batch(sizes))
    call = callable_of(way, module, Path(folder))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = call(ids, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return loss

    step()
    ended = time.monotonic()
    for _ in range(WARM):
        step()
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)  # they are part of what is held
    memory = Memory(device)
    took, loss = [], torch.zeros(())
    for _ in range(int(steps)):
        began = time.perf_counter()
        loss = step()
        took.append(time.perf_counter() - began)
    made = {
        "median": sorted(took)[len(took) // 2],
        "memory": memory.peak(),
        "loss": loss.item(),
        "ended": ended,
    }
    print(json.dumps(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
