"""In which precision float32 factors are multiplied, in the words of `torch.backends.fp32_precision`."""

from typing import Final

IEEE: Final = "ieee"
BF16: Final = "bf16"
PRECISIONS: Final = (IEEE, BF16)
