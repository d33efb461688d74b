"""How many threads work at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def limited_to(count: int) -> Iterator[None]:
    """Let at most that many threads compute one operation within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(count, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)
