"""The `stockade` command: a group that imports a subcommand only when it is called, so that start-up stays quick."""

from importlib import import_module

import click

from ..partition.version import VERSION

COMMANDS = {
    "topic": ".topics:topic",
    "produce": ".produce:produce",
    "consume": ".consume:consume",
    "cluster": ".cluster:cluster",
    "serve": ".serve:serve",
    "certs": ".certs:certs",
    "demo": ".demo:demo",
    "hold": ".hold:hold",
    "doctor": ".doctor:doctor",
    "rebuild": ".rebuild:rebuild",
    "chaos": ".chaos:chaos",
}
"""Name of a subcommand -> module and attribute."""


class LazyGroup(click.Group):
    """Finds subcommands in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module, __package__), attribute)
        return command


@click.group(cls=LazyGroup)
@click.version_option(VERSION, prog_name="stockade")
def main() -> None:
    """Stockade: a replicated log in which one writer at a time is a promise the server keeps."""
