"""What avoids a fault: options of Inductor, which are tried, and boundaries, which follow from its kind."""

from collections.abc import Mapping
from typing import Final

from .kinds import OVERFLOWS, WRONG_BACKWARD, WRONG_FAKE

# For a rung, each option with its value, and what to write.
OPTIONS: Final[Mapping[str, tuple[tuple[str, object, str], ...]]] = {
    "inductor without fusion": (
        ("emulate_precision_casts", True, "build.emulate_precision_casts = true (tried: it holds)"),
        ("layout_optimization", False, "Inductor's layout_optimization = False (tried: it holds)"),
        (
            "fallback_by_default",
            True,
            "Inductor's fallback_by_default = True: eager kernels (tried: it holds)",
        ),
    ),
    "inductor": (
        ("emulate_precision_casts", True, "build.emulate_precision_casts = true (tried: it holds)"),
        ("pattern_matcher", False, "Inductor's pattern_matcher = False (tried: it holds)"),
        ("max_fusion_size", 1, "Inductor's max_fusion_size = 1: no fusion (tried: it holds)"),
    ),
    "aotinductor": (
        ("emulate_precision_casts", True, "build.emulate_precision_casts = true (tried: it holds)"),
        ("pattern_matcher", False, "Inductor's pattern_matcher = False (tried: it holds)"),
    ),
    "artifact": (),
}


def boundaries(rung: str, kind: str, op: str, makes: str) -> tuple[str, ...]:
    """Return where to draw a line around an operator, by what is wrong with it.

    Args:
        rung: the name of the rung that does not hold.
        kind: of the fault.
        op: the operator's name, `namespace.name.overload`.
        makes: the form of its result, which begins with the dtype.
    """
    qualified = "::".join(op.split(".")[:2])
    if kind == WRONG_FAKE:
        return (f"let the fake of {qualified} (register_fake) say what its kernel makes",)
    if kind == WRONG_BACKWARD:
        return (f"correct the backward of {qualified} (register_autograd)",)
    if kind == OVERFLOWS:
        if makes.startswith("float16"):
            return (f"compute {op} in float32: x.float() before it, and back behind it",)
        # The range of bfloat16 is that of float32.
        return (
            f"make what {op} takes smaller, and scale its result: float32 has no larger numbers",
        )
    if rung == "eager":
        return (f"correct {op}: eager itself {kind} there, and no build can do better",)
    if rung in ("export", "dynamo"):
        return ("tcbuild explain SPEC names the lines that are no part of a graph",)
    return (
        f"keep {op} out of what is compiled: call it in a torch.library.custom_op of your own, "
        "which is run by its eager kernel",
    )
