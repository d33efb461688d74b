"""The commands, each imported when it is asked for."""

import importlib
from typing import Any, Final

import click

from . import exit_codes

COMMANDS: Final = (
    "init",
    "doctor",
    "explain",
    "plan",
    "build",
    "merge",
    "verify",
    "inspect",
    "diff",
    "diagnose",
)


class _Commands(click.Group):
    """A group whose commands are modules of this package, each with a function of its own name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. None of these modules imports torch before its command runs."""
        if cmd_name not in COMMANDS:
            return None
        module: Any = importlib.import_module(f".{cmd_name}", __package__)
        command: click.Command = getattr(module, cmd_name)
        return command


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from ..producer import producer

        click.echo(producer())
        context.exit()


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"\b\nExit codes:\n{exit_codes.table()}",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and exit.",
)
def root() -> None:
    """Build PyTorch models ahead of time into one file of compiled kernels, and check such files.

    Start with `tcbuild init`; then `tcbuild build tcbuild.toml -o model.tcb`.
    """
