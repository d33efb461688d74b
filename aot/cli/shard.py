"""`2/4`, as an option gives it: the second of four parts."""

import re

import click


def read(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """Return the two numbers; a callback of an option.

    Raises:
        click.BadParameter: it is no part.
    """
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", value)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        message = f"{value!r} is no part such as 1/4, from 1/4 to 4/4"
        raise click.BadParameter(message, context, parameter)
    return int(found[1]), int(found[2])
