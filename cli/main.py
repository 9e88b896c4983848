"""The `stockade` command: a group that imports a subcommand when it is called, which keeps the start short."""

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from ..partition.version import VERSION
from .ui.exits import INTERRUPTED, UNKNOWN_OUTCOME
from .ui.streams import open_closed_streams, output_fault

COMMANDS = {
    "topics": ".commands.topics:topics",
    "produce": ".commands.produce:produce",
    "consume": ".commands.consume:consume",
    "groups": ".ownership.groups:groups",
    "sessions": ".ownership.sessions:sessions",
    "grants": ".ownership.grants:grants",
    "hold": ".ownership.hold:hold",
    "own": ".ownership.own:own",
    "claim": ".ownership.own:claim",
    "disown": ".ownership.own:disown",
    "fence": ".ownership.fence:fence",
    "producers": ".ownership.producers:producers",
    "refused": ".commands.observe:refused",
    "metrics": ".commands.observe:metrics",
    "cluster": ".commands.cluster:cluster",
    "backup": ".backup.commands:backup",
    "doctor": ".commands.doctor:doctor",
    "canary": ".canary.command:canary",
    "serve": ".node.serve:serve",
    "probe": ".node.probe:probe",
    "principals": ".commands.principals:principals",
    "audit": ".audit.commands:audit",
    "certs": ".node.certs:certs",
    "rebuild": ".node.rebuild:rebuild",
    "demo": ".chaos_commands.demo:demo",
    "chaos": ".chaos_commands.chaos:chaos",
    "completion": ".commands.completion:completion",
    "pipeline": ".commands.pipeline:pipeline",
}
"""Name of a subcommand -> module and attribute, in the order of the help text."""

ALIASES = {
    **{"topic": "topics", "group": "groups", "session": "sessions", "grant": "grants", "producer": "producers"},
    "principal": "principals",
}
"""The singular of a command's name works too."""

OF_COMMANDS = {
    "--url",
    "--bootstrap",
    "--timeout",
    "--token-file",
    "--ca",
    "--certificate",
    "--key",
    "--output",
    "--json",
}
"""Options that most commands have, and groups of commands have not."""


class LazyGroup(click.Group):
    """Finds subcommands in COMMANDS."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command, as click does. If standard output takes no bytes, end with a line on standard error and the
        exit code UNKNOWN_OUTCOME.
        """
        open_closed_streams()
        try:
            return super().main(*args, **settings)
        except OSError as error:
            if output_fault() is None:
                raise
            sys.stdout = None  # what is still buffered cannot be written
            with suppress(OSError):  # standard error may be full as well
                click.echo(f"Error: standard output cannot be written: {error.strerror}", err=True)
            sys.exit(UNKNOWN_OUTCOME)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _placed(error) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:  # click knows only the names of commands that are imported
            from difflib import get_close_matches  # noqa: PLC0415  (only a mistake needs it)

            alike = get_close_matches(args[0], COMMANDS, n=1)
            if not alike:
                raise
            raise click.UsageError(f"{error.message} Did you mean {alike[0]!r}?", ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(import_module(module, __package__), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand. Ctrl-C gives exit code INTERRUPTED, also while the subcommand is imported."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _placed(error) from None
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _placed(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error, which says where an option of commands stands if it stands before the command's name."""
    if error.ctx is None or not isinstance(error.ctx.command, click.Group) or error.option_name not in OF_COMMANDS:
        return error
    place = f"{error.ctx.command_path} COMMAND {error.option_name} ..."
    # Without names that are alike: --tls for --url.
    return click.NoSuchOption(
        error.option_name, f"{error.message} It comes after the command's name: {place}", ctx=error.ctx
    )


def _tell_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from ..cluster.build import commit  # noqa: PLC0415  (only this option needs it)

        click.echo(f"stockade {VERSION} ({commit()})")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version and the commit, and exit.",
)
def main() -> None:
    """Stockade: a replicated log whose servers let only one writer at a time into a partition.

    Start with `stockade cluster`: it runs three nodes on this machine. Other commands find a cluster with --url or
    STOCKADE_URL. They print tables, or JSON with --output json. Exit codes are the same everywhere: 0 done, 1 refused,
    2 wrong usage, 3 outcome unknown, 4 no node reached, 5 fenced,
    6 the plan has changed. `stockade COMMAND --help` has examples; `stockade
    completion bash` makes the shell complete commands and names.
    """
