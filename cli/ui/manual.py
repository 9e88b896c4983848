"""Commands whose help is a manual: what they do, options with units and defaults, examples, exit codes.

The same facts make ``--help`` and docs/cli.md (tools/cli_reference.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import click

from .exits import CLIENT, MEANINGS

_Command = TypeVar("_Command", bound=Callable[..., Any] | click.Command)


class Adding(Protocol):
    """A decorator that adds an option or an argument to a command, as ``click.option`` makes it."""

    def __call__(self, command: _Command, /) -> _Command: ...


class Connection(click.Option):
    """An option of every command that talks to a cluster; help shows these in a section of their own."""


class Explained(click.Command):
    """A command whose help has examples, each (purpose, command line), and its exit codes: ``exits``, with the meanings
    of MEANINGS unless ``means`` has another one.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[tuple[str, str]] = (),
        exits: Sequence[int] = CLIENT,
        means: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.examples = examples
        meanings = {code: MEANINGS[code] for code in exits} | dict(means or {})
        self.exits: dict[int, str] = dict(sorted(meanings.items()))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of this command, then those of the connection, in a section each."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Connection": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections["Connection" if isinstance(parameter, Connection) else "Options"].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for number, (purpose, line) in enumerate(self.examples):
                    if number:
                        formatter.write_paragraph()
                    formatter.write_text(f"{purpose}:")
                    formatter.indent()
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                    formatter.dedent()
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in self.exits.items()])


class Manual(Explained):
    """A command without subcommands."""


class ManualGroup(Explained, click.Group):
    """A command that has subcommands, and also runs without one."""
