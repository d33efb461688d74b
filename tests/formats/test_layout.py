"""The order of axes in memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcbuild.formats.errors import ManifestError
from tcbuild.formats.layout import CONTIGUOUS, axes, is_dense, layout_of, strides_of

CASES = st.integers(0, 5).flatmap(
    lambda rank: st.tuples(
        st.lists(st.integers(0, 4), min_size=rank, max_size=rank),
        st.permutations(range(rank)),
    )
)


@settings(deadline=None, max_examples=120)
@given(CASES)
def test_strides_and_back(case: tuple[list[int], list[int]]) -> None:
    shape, order = case
    layout = ",".join(map(str, order)) or CONTIGUOUS
    strides = strides_of(layout, shape)
    assert is_dense(layout, shape, strides)
    found = layout_of(shape, strides)
    assert found is not None
    assert is_dense(found, shape, strides)
    if len(shape) and min(shape) > 1:
        assert axes(found, len(shape)) == tuple(order)


def test_known_strides() -> None:
    assert layout_of((2, 3, 4, 5), (60, 1, 15, 3)) == "0,2,3,1"
    assert strides_of("0,2,3,1", (2, 3, 4, 5)) == (60, 1, 15, 3)
    assert layout_of((2, 3), (3, 1)) == CONTIGUOUS
    assert layout_of((2, 3), (6, 2)) is None
    assert layout_of((2, 3), (0, 1)) is None
    assert layout_of((1, 3), (77, 1)) == CONTIGUOUS
    assert layout_of((0, 3), (5, 5)) == CONTIGUOUS
    assert layout_of((), ()) == CONTIGUOUS


@pytest.mark.parametrize(
    "layout", ["", "0", "0,0", "0,2", "1,0,2", "1, 0", "+1,0", "channels_last"]
)
def test_not_a_layout(layout: str) -> None:
    with pytest.raises(ManifestError, match="an order of 2 axes"):
        axes(layout, 2)
