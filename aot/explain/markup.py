"""HTML as text in which everything that is not markup is escaped."""

import html
import re
from collections.abc import Iterable


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable[str]


def tag(name: str, *children: Child, **attributes: str | bool) -> Markup:
    """Return an element; a `str` that is no Markup is escaped.

    Args:
        name: of the element.
        children: texts and elements, or iterables of these.
        attributes: `class_` is class; one that is False is left out, and True has no value.
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not False
    )
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Return the children one behind the other."""
    parts: list[str] = []
    for child in children:
        for one in [child] if isinstance(child, str) else child:
            parts.append(one if isinstance(one, Markup) else html.escape(one))
    return Markup("".join(parts))


def prose(text: str) -> Markup:
    """Return a text in which what stands between backticks is code."""
    pieces = re.split(r"`([^`]+)`", text)
    return join(tag("code", one) if i % 2 else one for i, one in enumerate(pieces))


def path(text: str) -> Markup:
    """Return a path or a dotted name, which may be broken into lines behind its separators."""
    return Markup(re.sub(r"([/._])(?=\w)", r"\1<wbr>", html.escape(text)))
