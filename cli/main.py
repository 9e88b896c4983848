"""The `stockade` command: a group that imports a subcommand only when it is called, so that start-up stays quick."""

from importlib import import_module
from typing import Any

import click

from ..partition.version import VERSION
from .exits import INTERRUPTED

COMMANDS = {
    "topics": ".topics:topics",
    "produce": ".produce:produce",
    "consume": ".consume:consume",
    "groups": ".groups:groups",
    "sessions": ".sessions:sessions",
    "grants": ".grants:grants",
    "hold": ".hold:hold",
    "own": ".own:own",
    "claim": ".own:claim",
    "disown": ".own:disown",
    "fence": ".fence:fence",
    "producers": ".producers:producers",
    "refused": ".observing:refused",
    "metrics": ".observing:metrics",
    "cluster": ".cluster:cluster",
    "doctor": ".doctor:doctor",
    "serve": ".serve:serve",
    "certs": ".certs:certs",
    "rebuild": ".rebuild:rebuild",
    "demo": ".demo:demo",
    "chaos": ".chaos:chaos",
    "completion": ".completion:completion",
    "pipeline": ".pipeline:pipeline",
}
"""Name of a subcommand -> module and attribute."""

ALIASES = {"topic": "topics", "group": "groups", "session": "sessions", "grant": "grants", "producer": "producers"}
"""The singular is understood too."""


class LazyGroup(click.Group):
    """Finds subcommands in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported now."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(import_module(module, __package__), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand. Ctrl-C ends with the exit code of Ctrl-C, however early it comes."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(cls=LazyGroup)
@click.version_option(VERSION, prog_name="stockade")
def main() -> None:
    """Stockade: a replicated log in which one writer at a time is a promise the server keeps.

    Commands that ask a cluster find it with --url or STOCKADE_URL. Facts come as a table, or as JSON with
    --output json. Exit codes are the same everywhere: 0 done, 1 refused, 2 wrong usage, 3 outcome unknown, 4 no node
    reached, 5 fenced. `stockade COMMAND --help` has examples; `stockade completion bash` lets the shell complete.
    """
