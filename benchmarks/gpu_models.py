"""The models of gpu.py, and what a call of each moves and computes at the least.

The values are the weights, inputs, outputs and cache entries that a call has to read or write once;
the operations are those of matrix products, convolutions and attention, where one multiplication
with its addition counts as two. What is small beside them (biases, norms, indices) is left out, so
that a floor made of the two is never too high.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpu_llama import LLAMA, SMALL_LLAMA, Decoder, RMSNorm
from gpu_vision import Bottleneck, UNetBlock, blocks, convolution

Args = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and a call.

    Attributes:
        model: makes the module.
        inputs: makes the arguments of the call.
        values: how many a call reads and writes at the least.
        flops: how many operations it takes.
    """

    model: Callable[[], nn.Module]
    inputs: Callable[[], Args]
    values: int
    flops: int


def dtype(device: str) -> torch.dtype:
    """Return the dtype that is measured there."""
    return torch.float32 if device == "cpu" else torch.bfloat16


@contextmanager
def placed(device: str, seed: int) -> Iterator[None]:
    """Make new tensors on the device, in its dtype, and random ones the same each time."""
    before = torch.get_default_dtype()
    torch.manual_seed(seed)
    torch.set_default_dtype(dtype(device))
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def module(case: Case, device: str) -> nn.Module:
    """Return the module in eval mode, with random weights."""
    with placed(device, seed=0):
        return case.model().eval()


def inputs(case: Case, device: str) -> Args:
    """Return the arguments of the call."""
    with placed(device, seed=1):
        return case.inputs()


def mlp(small: bool) -> Case:
    """Make small layers with a norm each: many kernels, each shorter than its launch."""
    layers, width, batch = (2, 64, 4) if small else (8, 512, 32)

    def model() -> nn.Module:
        parts = [(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)]
        return nn.Sequential(*(part for layer in parts for part in layer))

    return Case(
        model=model,
        inputs=lambda: (torch.randn(batch, width),),
        values=layers * width * width + 2 * batch * width,
        flops=2 * batch * layers * width * width,
    )


class Chain(nn.Module):
    """A residual sum, its norm, and a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)

    def forward(self, x: Tensor, residual: Tensor, gate: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + residual)
        return normed * F.gelu(gate)


def chain(small: bool) -> Case:
    """Make what only moves memory: three large tensors in, one out."""
    rows, width = (64, 128) if small else (32768, 8192)
    return Case(
        model=lambda: Chain(width),
        inputs=lambda: tuple(torch.randn(rows, width) for _ in range(3)),
        values=4 * rows * width,
        flops=0,
    )


def decode(small: bool) -> Case:
    """Make one step with a full cache: every weight is read for one token."""
    size, length = (SMALL_LLAMA, 16) if small else (LLAMA, 2048)
    cache = 2 * size.layers * size.groups * size.head * length
    return Case(
        model=lambda: Decoder(size, length, cached=True),
        inputs=lambda: (torch.randn(1, 1, size.hidden), torch.tensor([length - 1])),
        values=size.weights() + cache + 2 * size.hidden,
        flops=2 * size.weights() + size.attention(1, length),
    )


def prefill(small: bool) -> Case:
    """Make the first pass over a text: large products."""
    size, tokens = (SMALL_LLAMA, 16) if small else (LLAMA, 1024)
    return Case(
        model=lambda: Decoder(size, tokens, cached=False),
        inputs=lambda: (torch.randn(1, tokens, size.hidden),),
        values=size.weights() + 2 * tokens * size.hidden,
        flops=2 * tokens * size.weights() + size.attention(tokens, tokens) // 2,
    )


class Bert(nn.Module):
    """BERT of transformers: words in, vectors out."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        transformers: Any = importlib.import_module("transformers")
        config = transformers.BertConfig(**options)
        self.bert = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.bert(input_ids=ids).last_hidden_state
        return made


def bert(small: bool) -> Case:
    """Make the text encoder that everyone has."""
    layers, hidden, inner, heads = (2, 32, 64, 2) if small else (12, 768, 3072, 12)
    batch, seq, words = (2, 16, 100) if small else (8, 128, 30522)
    options = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "vocab_size": words,
    }

    def model() -> nn.Module:
        made = Bert(**options)
        return made.to(dtype=torch.get_default_dtype())

    weights, tokens = layers * (4 * hidden * hidden + 2 * hidden * inner), batch * seq
    return Case(
        model=model,
        inputs=lambda: (torch.randint(5, words, (batch, seq)),),
        values=weights + tokens * hidden,
        flops=2 * tokens * weights + 4 * tokens * seq * hidden * layers,
    )


def channels_last(made: Any) -> nn.Module:
    """Return the module with the weights of its convolutions in the layout of pictures."""
    moved: nn.Module = made.to(memory_format=torch.channels_last)
    return moved


def resnet(batch: int) -> Callable[[bool], Case]:
    """Return what makes ResNet-50 for a batch of pictures, channels last."""

    def case(small: bool) -> Case:
        depths, width, side = ((1, 1), 8, 32) if small else ((3, 4, 6, 3), 64, 224)
        last, classes = 4 * width << len(depths) - 1, 1000

        def model() -> nn.Module:
            made = nn.Sequential(
                *convolution(3, width, 7, 2),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(3, 2, padding=1),
                *(Bottleneck(*sizes) for sizes in blocks(depths, width)),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(last, classes),
            )
            return channels_last(made)

        def pictures() -> Args:
            return (torch.randn(batch, 3, side, side).to(memory_format=torch.channels_last),)

        # The weights of each convolution, and at how many places it is taken.
        layers = [(49 * 3 * width, (side // 2) ** 2), (last * classes, 1)]
        now = side // 4
        for taken, inner, stride in blocks(depths, width):
            layers.append((taken * inner, now**2))
            now //= stride
            shortcut = 0 if taken == 4 * inner else 4 * taken * inner
            layers.append((9 * inner * inner + 4 * inner * inner + shortcut, now**2))
        return Case(
            model=model,
            inputs=pictures,
            values=sum(size for size, _ in layers) + batch * (3 * side**2 + classes),
            flops=2 * batch * sum(size * places for size, places in layers),
        )

    return case


def unet(small: bool) -> Case:
    """Make a block of a diffusion model: convolutions, norms over groups, attention."""
    channels, embedded, side, heads, groups = (16, 32, 8, 2, 4) if small else (320, 1280, 64, 8, 32)
    batch, places = 2, side**2

    def noise() -> Args:
        picture = torch.randn(batch, channels, side, side)
        return picture.to(memory_format=torch.channels_last), torch.randn(batch, embedded)

    def model() -> nn.Module:
        return channels_last(UNetBlock(channels, embedded, heads, groups))

    weights = 2 * 9 * channels**2 + 4 * channels**2
    return Case(
        model=model,
        inputs=noise,
        values=weights + embedded * channels + 2 * batch * places * channels,
        flops=2 * batch * places * weights + 4 * batch * places**2 * channels,
    )


CASES: Final[Mapping[str, Callable[[bool], Case]]] = {
    "mlp": mlp,
    "chain": chain,
    "decode": decode,
    "prefill": prefill,
    "bert": bert,
    "resnet-1": resnet(1),
    "resnet-32": resnet(32),
    "unet": unet,
}
