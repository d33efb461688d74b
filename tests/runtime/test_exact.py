"""What the checks compare with is float64 all the way, also where a graph asks for less."""

import torch

from tcbuild.runtime.exact import DoublePrecision


def test_asked_for_less() -> None:
    with DoublePrecision():  # type: ignore[no-untyped-call]
        assert torch.ones(2, dtype=torch.float32).dtype is torch.float64
        assert torch.ones(2).double().to(torch.bfloat16).dtype is torch.float64


def test_fractions_of_integers() -> None:
    integers = torch.arange(1, 8)
    with DoublePrecision():  # type: ignore[no-untyped-call]
        thirds = integers / 3
        # A captured graph asserts the dtype that it was captured with.
        torch.ops.aten._assert_tensor_metadata.default(thirds, dtype=torch.float32)
        assert torch.equal(thirds, integers.double() / 3)
        assert integers.log().dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32
    assert (integers / 3).dtype is torch.float32
