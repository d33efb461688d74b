"""The record of a training step: a number in it that leads nowhere is refused."""

from dataclasses import replace
from typing import Any

import pytest

from tcbuild.formats import step_check
from tcbuild.formats.errors import ManifestError
from tcbuild.formats.record import decode, encode
from tcbuild.formats.step import Result, Step, Tangent, Write

# A call of one tensor, and two weights.
STEP = Step(
    weights=("a", "b"),
    trained=(1, 2),
    results=(Result(value=3), Result(value=0, view_of=0)),
    writes=(Write(input=2, value=4),),
    saved=(1, 5),
    shares=(1, None),
    watched=(3,),
    tangents=(Tangent(result=0),),
    gradients=(None, 0, 1),
    backward_constants={"c0": "a"},
)


def test_step_that_can_be() -> None:
    step_check.check(STEP, 1, "here")
    assert decode(Step, encode(STEP), "step") == STEP


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"weights": ("a", "a")}, "weights"),
        ({"trained": (3,)}, "trained"),
        ({"results": (Result(value=-1),)}, "values"),
        ({"results": (Result(value=0, view_of=7),)}, "results"),
        ({"writes": (Write(input=3, value=4),)}, "writes"),
        ({"saved": (-1, 5)}, "values"),
        ({"shares": (1,)}, "shares"),
        ({"shares": (1, 9)}, "shares"),
        ({"watched": (-2,)}, "values"),
        ({"tangents": (Tangent(result=2),)}, "tangents"),
        ({"gradients": (None, 0)}, "gradients"),
    ],
)
def test_step_that_cannot_be(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ManifestError, match=f"here: {where}"):
        step_check.check(replace(STEP, **change), 1, "here")
