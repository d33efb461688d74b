"""The model on the page of an explanation: its modules, and its graphs with the cuts between them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from ..source_line import Line
from .cost import Crossing
from .flow import Step
from .markup import Markup, join, path, tag
from .parts import Part
from .words import counted, size

Places = Mapping[Line | None, tuple[int, str]]  # the number and the kind of the finding at a line

_MOST_STEPS = 100
_MOST_TENSORS = 12


def tree(part: Part, places: Places) -> Markup:
    """Return the modules as nested lists; those with a cut in them are open."""
    return tag("div", tag("ul", _part(part, places, top=True), class_="tree"), class_="card")


def _part(part: Part, places: Places, *, top: bool = False) -> Markup:
    name = tag("strong", part.name or part.kind, class_="mono")
    kind = "" if top else f" {part.kind}"
    facts = [counted(part.operators, "operator")] if part.operators else []
    facts += [size(part.weights)] if part.weights else []
    label = join(
        name,
        tag("span", kind, f" {', '.join(facts)} " if facts else " ", class_="soft"),
        _state(part),
        _links(part.breaks, places),
    )
    if not part.parts:
        return tag("li", label, class_="leaf")
    inner = tag("ul", (_part(one, places) for one in part.parts))
    return tag("li", tag("details", tag("summary", label), inner, open=top or part.cut))


def _state(part: Part) -> Markup:
    if part.breaks:
        return tag("span", "✂ cut here", class_="pill bad")
    if part.cut:
        return tag("span", "✂ cut inside", class_="pill warn")
    if not part.graphs:
        return tag("span", "in no graph", class_="pill")
    if len(part.graphs) == 1:
        return tag("span", f"✓ whole, in graph {part.graphs[0]}", class_="pill good")
    shown = ", ".join(map(str, part.graphs[:6])) + (", …" if len(part.graphs) > 6 else "")
    return tag("span", f"in graphs {shown}", class_="pill")


def _links(lines: tuple[Line | None, ...], places: Places) -> Markup:
    """Return a link to each finding at these lines."""
    numbers = dict.fromkeys(places[line] for line in lines if line in places)
    links = (
        join(" ", tag("a", f"{number}. {kind}", href=f"#break-{number}"))
        for number, kind in numbers
    )
    return join(links)


def flow(steps: tuple[Step, ...], places: Places) -> Markup:
    """Return each call of a graph, and the cut behind it."""
    more = len(steps) - _MOST_STEPS
    rest = (
        tag("p", f"and {counted(more, 'call')} of a graph more", class_="soft") if more > 0 else ""
    )
    shown = steps[:_MOST_STEPS]
    called: Counter[int] = Counter()
    items: list[Markup] = []
    for step in shown:
        called[step.graph] += 1
        again = f", call {called[step.graph]}" if called[step.graph] > 1 else ""
        items.append(_step(step, again, places, last=step is steps[-1]))
    return join(tag("ol", items, class_="flow"), rest)


def _step(step: Step, again: str, places: Places, *, last: bool) -> Markup:
    card = tag(
        "div",
        tag(
            "div",
            tag("h3", f"Graph {step.graph}{again}"),
            tag("span", counted(step.operators, "operator"), class_="pill"),
            class_="head",
        ),
        tag("p", "takes ", _tensors(step.given), class_="soft"),
        tag("p", "gives ", _tensors(step.made), class_="soft"),
        class_="card",
    )
    if last and not step.breaks:
        return tag("li", card)
    links = _links(step.breaks, places)
    why = links or " the graph ends with its function, whose caller is cut"
    total = sum(one.bytes for one in step.crossings)
    crossing = (
        tag("p", f"{size(total)} through memory: ", _tensors(step.crossings))
        if step.crossings
        else tag("p", "no tensor crosses")
    )
    cut = tag("div", tag("p", tag("strong", "✂"), why), "" if last else crossing, class_="cut")
    return tag("li", card, cut)


def _tensors(tensors: tuple[Crossing, ...]) -> Markup:
    """Return each tensor with its dtype, shape and bytes; those alike once."""
    if not tensors:
        return join("no tensor")
    kinds = Counter(tensors)
    more = len(kinds) - _MOST_TENSORS
    return join(_separated(kinds), f" and {more} more" if more > 0 else "")


def _separated(kinds: "Counter[Crossing]") -> Iterator[str]:
    for i, (one, count) in enumerate(kinds.most_common(_MOST_TENSORS)):
        yield ", " if i else ""
        yield f"{count} x " if count > 1 else ""
        yield tag("code", path(str(one)))
        yield f" ({size(one.bytes)})"
