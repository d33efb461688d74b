"""The models that the tests compile, and calls of them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tcbuild.aot import Spec
from tcbuild.aot.dims import Dynamic, Specialize

from .containers import Out as Out
from .containers import Pair as Pair

WORDS, WIDTH, BATCH, MOST = 11, 8, 3, 16
GROUP = 4


class Net(nn.Module):
    """Tied weights, a 0-dim buffer, a transposed one, a small bias, all kinds of arguments."""

    scale: Tensor
    mix: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.dense = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight
        self.small = nn.Parameter(torch.randn(2))
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("mix", torch.randn(WIDTH, WIDTH).t())

    def forward(
        self,
        ids: Tensor,
        feats: dict[str, Any],
        mask: Tensor | None = None,
        *,
        repeat: int = 2,
        temperature: float = 0.0,
        mode: str = "mean",
        strict: bool = True,
        sizes: tuple[int, ...] = (1, 2),
    ) -> Out:
        """Take ids, int64 [batch, seq], and feats: a, float32 [batch, seq, 8]; pair, float32 [batch, 8]."""
        hidden = self.embed(ids) + feats["a"] @ self.mix * self.scale
        if mask is not None:
            hidden = hidden * mask.unsqueeze(-1)
        for _ in range(repeat):
            hidden = torch.tanh(self.dense(hidden))
        pooled = hidden.mean(1) if mode == "mean" else hidden.sum(1)
        if strict:
            pooled = pooled + self.small.sum() + feats["pair"].left - feats["pair"].right
        pooled = pooled + temperature * sizes[0]
        extras = {"hidden": hidden, "sizes": (ids.shape[1], 7), "small": self.small}
        extras["pooled"] = [pooled, pooled, None]
        return Out(logits=self.head(hidden), extras=extras, ids=ids)


def net() -> Net:
    """Return a Net, the same one each time."""
    made: Net = seeded(Net)
    return made


def seeded(model: type[nn.Module]) -> Any:
    """Return a model with random weights, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model().eval()


def net_call(batch: int = BATCH, seq: int = 5, seed: int = 0) -> tuple[tuple[Any, ...], Any]:
    """Return a call of a Net: positional ids and feats."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(WORDS, (batch, seq), generator=random)
    a = torch.randn(batch, seq, WIDTH, generator=random)
    left, right = torch.randn(2, batch, WIDTH, generator=random)
    return (ids, {"a": a, "pair": Pair(left, right)}), {}


NET = Spec(
    name="net",
    model=net,
    inputs=lambda sizes: net_call(sizes["batch"], sizes["seq"]),
    dims={
        "batch": Specialize(values=(BATCH,)),
        "seq": Dynamic(min=1, max=MOST, tune=5),
    },
    shapes={
        "ids": ("batch", "seq"),
        "feats['a']": ("batch", "seq"),
        "feats['pair'].left": ("batch",),
        "feats['pair'].right": ("batch",),
    },
    source="tests.models:net",
)


class Conv(nn.Module):
    """A convolution that is to be called with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image: Tensor) -> Tensor:
        """Take an image, float32 [2, 3, 8, 8]."""
        return torch.relu(self.conv(image))


def image() -> Tensor:
    """Return an image for Conv."""
    random = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return random.to(memory_format=torch.channels_last)


CONV = Spec(
    name="conv",
    model=lambda: seeded(Conv),
    inputs=lambda _: ((image(),), {}),
    source="tests.models:Conv",
)


class Cast(nn.Module):
    """A region in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [4, 8]."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.inner(x)
        made: Tensor = self.outer(y.float())
        return made


CAST = Spec(
    name="cast",
    model=lambda: seeded(Cast),
    inputs=lambda _: ((torch.randn(4, 8, generator=torch.Generator().manual_seed(0)),), {}),
    source="tests.models:Cast",
)


class Fours(nn.Module):
    """Takes rows in groups of four."""

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        """Take x, float32 [n, 2], where 4 divides n."""
        n = x.shape[0]
        groups = x.view(n // GROUP, GROUP, -1) * self.weight
        return groups.sum(1), n // GROUP


def rows(sizes: Mapping[str, int]) -> tuple[tuple[Tensor], dict[str, Any]]:
    """Return a call of Fours."""
    return (torch.randn(sizes["n"], 2, generator=torch.Generator().manual_seed(0)),), {}


FOURS = Spec(
    name="fours",
    model=lambda: seeded(Fours),
    inputs=rows,
    dims={"n": Dynamic(min=2, max=63, tune=8)},
    shapes={"x": ("n",)},
    source="tests.models:Fours",
)
