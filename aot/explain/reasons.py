"""Why a line is no part of a graph, in plain words, and the ways out: by what Dynamo says of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

YES: Final = "yes"
NO: Final = "no"
MAYBE: Final = "where a size or a branch depends on it"

_REGISTER_FAKE: Final = '@torch.library.register_fake("{name}")'


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A kind of break.

    Attributes:
        kind: a name for it, such as `branch on data`.
        words: what is wrong with such a line.
        ways_out: what to do about it, the best first.
        stops: whether it stops a build, too: YES, NO or MAYBE. A build captures with torch.export, which
            runs the model's Python code once: it goes on where Dynamo has to leave the graph, as long as
            no Python value depends on the data.
    """

    kind: str
    words: str
    ways_out: tuple[str, ...]
    stops: str = MAYBE


_Make = Callable[[re.Match[str]], Reason]

_BRANCH: Final = Reason(
    kind="branch on data",
    words="Python asks whether a tensor is true (`if`, `while`, `assert`, `and`); which way it goes "
    "depends on the data, and a graph is the same for every call",
    ways_out=(
        "compute both and choose by element: torch.where(condition, a, b)",
        "keep both in the graph: torch.cond(condition, f, g, (x,))",
        "check the data before the call, outside the model: a check there is not traced",
    ),
    stops=YES,
)
_ITEM: Final = Reason(
    kind="number out of a tensor",
    words="a Python number is read out of a tensor (`.item()`, `.tolist()`, int(t), float(t))",
    ways_out=(
        "stay with the tensor: `h + h.max()` needs no `.item()`",
        "where it is an index, index with the tensor: torch.index_select, torch.gather",
        "where it is known before the call, take it as an argument of forward",
    ),
)
_PRINT: Final = Reason(
    kind="output to the user",
    words="it prints, logs or warns, which is no computation: it happens once, while the model is "
    "captured, and never in a call of the artifact",
    ways_out=(
        "remove it, or write `if not torch.compiler.is_compiling():` in front of it",
        "return the tensor and print it where the model is called",
    ),
    stops=NO,
)
_SIZE: Final = Reason(
    kind="size from data",
    words="how many elements the result has depends on the data (a mask as index, nonzero, unique)",
    ways_out=(
        "keep the size and mask the values: torch.where(mask, x, 0), x.masked_fill(~mask, 0)",
        "take a fixed number of them: torch.topk(x, k)",
        "do it outside the model, to what the artifact returns",
    ),
)
_NUMPY: Final = Reason(
    kind="numpy",
    words="numpy computes with the memory of a tensor, which a traced tensor does not have",
    ways_out=(
        "use torch's function of the same name: torch.sort, torch.cumsum, ...",
        "make it an operator: torch.library.custom_op, with register_fake for its result's shape",
        "do it outside the model",
    ),
    stops=YES,
)
_GRADIENT: Final = Reason(
    kind="gradient inside forward",
    words="the model computes a gradient in its own forward; a build captures the operators of its backward, "
    "but not a gradient of that gradient",
    ways_out=(
        "write the derivative down as a formula, or use torch.func.grad",
        "for training steps: return the loss; the build makes the backward",
    ),
    stops=NO,
)
_CONTEXT: Final = Reason(
    kind="context manager",
    words="a `with` block whose entry and exit are no part of a graph",
    ways_out=("open it around the call of the model, not inside", "remove it"),
    stops=NO,
)
_EXCEPTION: Final = Reason(
    kind="exception",
    words="the code raises, or catches, an exception on its usual way",
    ways_out=("test for the case with an `if` on sizes or types instead of try and except",),
)
_DISABLED: Final = Reason(
    kind="marked as eager",
    words="the function is marked with torch.compiler.disable",
    ways_out=("take the mark away if the function can be captured: a build ignores it",),
    stops=NO,
)
_ATTRIBUTE: Final = Reason(
    kind="type torch does not know",
    words="Dynamo does not follow what this object's own code does",
    ways_out=(
        "pass the tensors that are in it, in a tuple, a dict or a dataclass",
        "keep it outside forward",
    ),
)


CHANGING: Final = Reason(
    kind="value that changes",
    words="Python gives another number here at each run (random numbers, the time, a counter); it is asked "
    "once, while the model is captured, and the number is a constant of the artifact: its check refuses it",
    ways_out=(
        "for random numbers use torch's own generator: torch.rand, torch.randn, torch.randint",
        "for anything else take it as an argument of forward, as a tensor",
        "where it is meant to be fixed, compute it in __init__",
    ),
    stops=YES,
)


def _operator(match: re.Match[str]) -> Reason:
    name = match["name"].removesuffix(".default").replace("::", ".")
    return Reason(
        kind="operator without a fake implementation",
        words=f"{name} is an operator of its own, and nothing says which shape its result has "
        "without running it",
        ways_out=(
            f"register it: {_REGISTER_FAKE.format(name=name.replace('.', '::', 1))} on a function of "
            "the same arguments that returns torch.empty of the result's shape and dtype",
        ),
        stops=YES,
    )


def _foreign(match: re.Match[str]) -> Reason:
    name = match["name"]
    return Reason(
        kind="function that is no PyTorch code",
        words=f"{name} is not Python or torch code that can be followed; a build runs it once, while the "
        "model is captured, and what it gives is a constant of the artifact from then on",
        ways_out=(
            "call it before the model and pass what it gives as an argument of forward",
            "where it computes with tensors, make it an operator: torch.library.custom_op with "
            "register_fake",
        ),
        stops=NO,
    )


def _always(reason: Reason) -> _Make:
    return lambda _: reason


# What Dynamo says, in the order in which it is looked for; the first that is found is the reason.
_KNOWN: Final[tuple[tuple[str, _Make], ...]] = (
    (r"Data-dependent (branching|assertion)|assert with non-string", _always(_BRANCH)),
    (r"builtin `(?P<name>[\w.]+?)\.?`", _foreign),
    (r"Tensor\.(item|tolist)\(|Tensor\.__(int|float|bool|index)__", _always(_ITEM)),
    (
        r"builtin operator `print`|logging\.Logger|reorder a debugging|warnings?\.warn",
        _always(_PRINT),
    ),
    (r"no meta kernel.*?`(?P<name>[\w.:]+)`", _operator),
    (r"There was no fake impl.*? for (<CustomOpDef\()?(?P<name>[\w.:]+)", _operator),
    (r"Operator `(?P<name>[\w.:]+)` has a non-Meta implementation", _operator),
    (r"Operator `(?P<name>(?!aten)[\w.:]+)`.*?(fake|Fake|meta)", _operator),
    (r"Dynamic shape operator|data-dependent output|Dynamic slicing", _always(_SIZE)),
    (r"Data dependent operator", _always(_ITEM)),
    (r"Could not (guard|extract).*data-dependent", _always(_BRANCH)),
    (r"numpy|ndarray", _always(_NUMPY)),
    (r"backward\(\)|autograd\.grad", _always(_GRADIENT)),
    (r"torch\.compiler\.disable|skip calling|Skip inlining", _always(_DISABLED)),
    (r"context manager|GenericContextWrapping", _always(_CONTEXT)),
    (r"Observed exception|EXCEPT_HANDLER|[Ee]xception", _always(_EXCEPTION)),
    (r"`(?P<name>[\w.]+)`[^`]*(marked as skipped|C function|C/C\+\+)", _foreign),
    (r"builtin operator `(?P<name>\w+)`", _foreign),
    (r"__getattr|user-defined|User-defined|user defined", _always(_ATTRIBUTE)),
)


def find(said: str, summary: str, hints: tuple[str, ...]) -> Reason:
    """Return the reason for a break.

    Args:
        said: all that Dynamo says of it, its own hints left out.
        summary: its first line, for a kind that is not known here.
        hints: Dynamo's own, which are the ways out then.
    """
    for pattern, make in _KNOWN:
        match = re.search(pattern, said, re.DOTALL)
        if match:
            return make(match)
    return Reason(
        kind="code that Dynamo does not follow",
        words=summary,
        ways_out=hints or ("change the line, or do it outside the model",),
    )
