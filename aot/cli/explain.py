"""`tcbuild explain`: what stands between a model and its artifact."""

from pathlib import Path

import click

from . import exit_codes, options


@click.command()
@click.argument("spec", type=options.EXISTING)
@click.option("--guards", is_flag=True, help="List every guard that each job would carry.")
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Look only at the jobs whose id matches, such as 'batch=8,*'; may be repeated.",
)
@click.option(
    "--html", type=options.NEW, metavar="FILE", help="Write a page with all of it to FILE, too."
)
@options.as_json
@click.pass_context
def explain(
    context: click.Context,
    spec: Path,
    guards: bool,
    only: tuple[str, ...],
    html: Path | None,
    as_json: bool,
) -> None:
    """Say what keeps the model of SPEC from being built.

    SPEC is a tcbuild.toml. Every line that is no part of a graph, with the reason, what it costs and the ways
    out; for each job the guards that it would carry, and the lines that narrow its sizes; what may make calls
    miss in service. The model is captured, and nothing is compiled. The exit code is 0 where a build is
    expected to succeed, else that of the build's error.
    """
    from ..explain import page, record, words
    from ..explain.explanation import explain as look
    from ..report import json_text
    from ..spec import Spec
    from ..writing import need_folder, write_whole

    if html is not None:
        need_folder(html)

    with options.aside():
        found = look(Spec.load(spec), only=only)
    if html is not None:
        write_whole(page.text(found), html)
    if as_json:
        click.echo(json_text(record.of(found)), nl=False)
    else:
        for line in words.lines(found, guards=guards):
            click.echo(line)
        if html is not None:
            click.echo(f"wrote {html}")
    if found.error is not None:
        if not as_json:
            click.echo(f"error: {found.error}", err=True)
        context.exit(exit_codes.exit_code(found.error))
