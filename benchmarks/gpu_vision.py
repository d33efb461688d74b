"""The layers of gpu.py that take pictures: of ResNet-50, and of a diffusion model."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, taken: int, inner: int, stride: int) -> None:
        super().__init__()
        given = 4 * inner
        self.body = nn.Sequential(
            *convolution(taken, inner, 1),
            nn.ReLU(inplace=True),
            *convolution(inner, inner, 3, stride),
            nn.ReLU(inplace=True),
            *convolution(inner, given, 1),
        )
        same = taken == given and stride == 1
        self.shortcut = nn.Sequential(*(() if same else convolution(taken, given, 1, stride)))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def convolution(taken: int, given: int, kernel: int, stride: int = 1) -> tuple[nn.Module, ...]:
    """Return a convolution that keeps the picture's size, but for the stride, and its norm."""
    layer = nn.Conv2d(taken, given, kernel, stride, padding=kernel // 2, bias=False)
    return layer, nn.BatchNorm2d(given)


def blocks(depths: Sequence[int], width: int) -> Iterator[tuple[int, int, int]]:
    """Yield what each block of ResNet takes, its inner width, and its stride."""
    taken = width
    for stage, depth in enumerate(depths):
        inner = width << stage
        for i in range(depth):
            yield taken, inner, 2 if stage and not i else 1
            taken = 4 * inner


class UNetBlock(nn.Module):
    """A residual block with a time embedding, then self-attention over all places."""

    def __init__(self, channels: int, embedded: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm = nn.GroupNorm(groups, channels)
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(embedded, channels)
        self.second_norm = nn.GroupNorm(groups, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.attention_norm = nn.GroupNorm(groups, channels)
        self.mixed = nn.Linear(channels, 3 * channels, bias=False)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Take [batch, channels, height, width] and [batch, embedded]."""
        h = self.first(F.silu(self.first_norm(x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        x = x + self.second(F.silu(self.second_norm(h)))
        places = self.attention_norm(x).flatten(2).transpose(1, 2)
        parts = (
            self.mixed(places).reshape(*places.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        attended = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return x + out.transpose(1, 2).reshape(x.shape)
