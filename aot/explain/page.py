"""An explanation as one HTML page, which needs nothing but itself."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from ...formats.errors import TcbuildError
from ..source_line import Line
from . import page_model
from .captures import Outcome
from .explanation import Explanation, Finding
from .hazard import Hazard
from .markup import Markup, join, path, prose, tag
from .page_style import STYLE
from .under_compile import UnderCompile
from .words import STOPS, counted, size, some, tensors

_COLOURS = {True: "bad", False: "good", None: "warn"}
_MANY = 3  # jobs that are shown opened
_FEW = 24  # constants that are


def text(explanation: Explanation) -> str:
    """Return the page."""
    head = join(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"{explanation.name}: tcbuild explain"),
        tag("style", Markup(STYLE)),
    )
    sections = list(_sections(explanation))
    links = (
        tag("li", tag("a", title, href=f"#{key}"))
        for key, title, _, body in sections
        if body is not None
    )
    body = join(
        tag(
            "header",
            tag("div", _header(explanation), tag("nav", tag("ul", links), aria_label="Sections")),
        ),
        tag("main", (_section(*one) for one in sections)),
        tag("footer", "Written by tcbuild explain. The model was captured; nothing was compiled."),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _header(explanation: Explanation) -> Markup:
    bad = sum(job.error is not None for job in explanation.jobs)
    jobs = counted(len(explanation.jobs), "job")
    error = explanation.error
    if bad:
        words = f"✗ {bad} of {jobs} cannot be captured"
    elif error is not None:
        words = "✗ Captured, and the check of the build would refuse it"
    else:
        words = f"✓ {jobs}, all captured: a build is expected to succeed"
    compiled = explanation.compiled
    crossing = sum(one.bytes for way in compiled for step in way.steps for one in step.crossings)
    facts = {
        "breaks" if len(explanation.findings) != 1 else "break": str(len(explanation.findings)),
        "graphs under torch.compile": str(sum(way.pieces for way in compiled) or "none"),
        "through memory at cuts": size(crossing),
        "hazards" if len(explanation.hazards) != 1 else "hazard": str(len(explanation.hazards)),
    }
    return join(
        tag("p", "tcbuild explain", class_="eyebrow"),
        tag("h1", explanation.name),
        tag(
            "div",
            words,
            tag("p", prose(error.where)) if error is not None else "",
            tag("p", f"Found {error.found}") if error is not None else "",
            class_=f"verdict {'bad' if error is not None else 'good'}",
        ),
        tag(
            "dl", (tag("div", tag("dt", k), tag("dd", v)) for k, v in facts.items()), class_="facts"
        ),
    )


def _sections(explanation: Explanation) -> Iterator[tuple[str, str, str, Markup | None]]:
    """Yield the id, title, lead and body of each; a body of None where there is nothing to say."""
    compiled = explanation.compiled
    places = {
        one.line: (number, one.reason.kind)
        for number, one in reversed(list(enumerate(explanation.findings, start=1)))
    }
    found = join(_finding(n, one) for n, one in enumerate(explanation.findings, start=1))
    yield (
        "breaks",
        "Breaks",
        "Every line that is no part of a graph, those that stop the build first.",
        found if explanation.findings else None,
    )
    yield (
        "modules",
        "Modules",
        "Which modules are whole in a graph, and in which the graph is cut.",
        _each(compiled, lambda way: page_model.tree(way.parts, places)),
    )
    lead = "One call of the model under torch.compile: what each graph is given, and what crosses each cut."
    lead += "".join(
        f" torch.compile stops with {way.problem}; what is behind that is not shown."
        for way in compiled
        if way.problem
    )
    flows = [way for way in compiled if way.steps]
    body = _each(flows, lambda way: page_model.flow(way.steps, places)) if flows else None
    yield "graphs", "Graphs and cuts", lead, body
    is_open = len(explanation.jobs) <= _MANY
    jobs = join(_job(job, is_open=is_open) for job in explanation.jobs)
    yield "jobs", "Jobs", "Each becomes a variant. Its guards say which calls it answers.", jobs
    yield (
        "hazards",
        "Hazards",
        "What would make torch.compile compile again, or a call miss the artifact, in service.",
        join(map(_hazard, explanation.hazards)) if explanation.hazards else None,
    )
    count = len(explanation.frozen)
    constants = tag(
        "details",
        tag("summary", counted(count, "value")),
        _table(("name", "value"), explanation.frozen.items()),
        class_="card",
        open=count <= _FEW,
    )
    yield (
        "constants",
        "Constants",
        "Python values that the model's code may read; a model with others is another artifact.",
        constants if count else None,
    )


def _each(compiled: Sequence[UnderCompile], show: Callable[[UnderCompile], Markup]) -> Markup:
    """Return what is shown of each method, under its name; of a model that has none, only that."""
    return join(
        join(tag("h3", way.entry, class_="mono") if way.entry else "", show(way))
        for way in compiled
    )


def _section(key: str, title: str, lead: str, body: Markup | None) -> Markup:
    if body is None:
        return Markup("")
    return tag(
        "section",
        tag("h2", title, id=f"{key}-title"),
        tag("p", lead, class_="lead"),
        body,
        id=key,
        aria_labelledby=f"{key}-title",
    )


def _finding(number: int, finding: Finding) -> Markup:
    cost = finding.cost
    costs: list[Markup] = []
    if cost is not None:
        often = f", come to {cost.times} times a call" if cost.times > 1 else ""
        costs.append(tag("p", f"Under torch.compile: a break of the graph{often}."))
        if cost.crossings:
            costs.append(tag("p", f"Through memory: {tensors(cost)} ({size(cost.bytes)})."))
        if cost.lost:
            costs.append(tag("p", f"No longer one kernel: {some(cost.lost)}."))
    if finding.hides:
        costs.append(
            tag(
                "p",
                "The whole function runs eagerly from there: breaks behind this line show without it.",
            )
        )
    return tag(
        "article",
        tag(
            "div",
            tag("h3", f"{number}. {finding.reason.kind}"),
            tag("span", STOPS[finding.stops], class_=f"pill {_COLOURS[finding.stops]}"),
            class_="head",
        ),
        _place(finding.line),
        tag("p", prose(finding.reason.words)),
        (tag("h4", "What it costs"), *costs) if costs else "",
        _ways(finding.reason.ways_out),
        class_="card",
        id=f"break-{number}",
    )


def _place(line: Line | None) -> Markup:
    if line is None:
        return tag("p", "in code of torch", class_="place")
    where = tag("p", path(str(line)), class_="place mono")
    return join(where, tag("pre", tag("code", line.code), tabindex="0") if line.code else "")


def _ways(ways: tuple[str, ...]) -> Markup:
    return join(
        tag("h4", "Ways out"), tag("ul", (tag("li", prose(way)) for way in ways), class_="ways")
    )


def _hazard(hazard: Hazard) -> Markup:
    return tag(
        "article",
        tag(
            "div",
            tag("h3", tag("code", path(hazard.place))),
            tag("span", hazard.kind, class_="pill warn"),
            class_="head",
        ),
        _place(hazard.line) if hazard.line else "",
        tag("p", prose(hazard.words)),
        _ways(hazard.ways_out),
        tag("pre", tag("code", hazard.spec), tabindex="0", aria_label="Lines for tcbuild.toml")
        if hazard.spec
        else "",
        class_="card",
    )


def _job(job: Outcome, *, is_open: bool) -> Markup:
    body: list[Markup] = []
    if job.error is None:
        operators = counted(job.operators, "operator")
        state = tag(
            "span",
            f"captured, {operators}, {counted(len(job.guards), 'guard')}",
            class_="pill good",
        )
    else:
        state = tag("span", "cannot be captured", class_="pill bad")
        body.append(_error(job.error))
    if job.fixed:
        rows = (
            (f"{one.path}.size({one.axis})", f"{one.name} is only {one.size}", str(one.line or ""))
            for one in job.fixed
        )
        body += [tag("h4", "Specialised dims"), _table(("axis", "size", "line"), rows)]
    if job.relations:
        related = ((one.text, str(one.line or "")) for one in job.relations)
        body += [tag("h4", "What the sizes must satisfy"), _table(("relation", "line"), related)]
    if job.changing:
        changing = ((str(one.line or ""), *one.values) for one in job.changing)
        body += [
            tag("h4", "Numbers that change"),
            _table(("line", "at one capture", "at the next"), changing),
        ]
    if job.guards:
        rows_ = (str(guard).partition(": ")[::2] for guard in job.guards)
        body += [tag("h4", "Guards"), _table(("what", "must be"), rows_)]
    return tag(
        "details",
        tag("summary", tag("strong", path(job.job), class_="mono"), " ", state),
        body,
        class_="card job",
        open=is_open,
    )


def _error(error: TcbuildError) -> Markup:
    rows = {
        "where": error.where,
        "found": error.found,
        "expected": error.expected,
        "next": error.tip,
    }
    return _table(("", ""), ((key, str(value)) for key, value in rows.items() if value))


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Markup:
    """Return a table of texts."""
    head = tag("thead", tag("tr", (tag("th", one, scope="col") for one in heads)))
    lines = (
        tag("tr", (tag("td", tag("span", path(cell), class_="mono")) for cell in row))
        for row in rows
    )
    return tag(
        "div", tag("table", head if any(heads) else "", tag("tbody", lines)), class_="scroll"
    )
