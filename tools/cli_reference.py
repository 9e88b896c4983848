"""Writes docs/cli.md from the help of the commands: ``python tools/cli_reference.py``. A test compares the two."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from stockade.cli.main import main as stockade
from stockade.cli.ui.exits import MEANINGS
from stockade.cli.ui.manual import Connection, Explained

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
ELSEWHERE = {"chaos": "chaos.md", "pipeline": "spark.md"}
"""Commands that other pages describe; docs/cli.md only links to them."""

HEAD = """# The command line

<!-- Made by tools/cli_reference.py of the commands' own help: change that, and run it again. -->

`stockade COMMAND --help`, or `-h`, prints the same text. {elsewhere}

`eval "$(stockade completion bash)"` (also zsh, fish) makes the shell complete commands, options, and the names of
topics, groups, producers and nodes of the running cluster.

## What all commands have in common

**Output.** A command that prints facts takes `--output table` (the default, for people) or `--output json`, short
`--json`: one document on one line, with the names and units of the HTTP interface (`openapi.yaml`). Commands that
print a stream (`consume --output json`, `refused`, `metrics`) write one object on each line. `hold` and `own` leave
standard output to COMMAND, and say on standard error why they ended it. Fields may be added, never renamed. Facts go
to standard output; progress, questions and errors go to standard error. Output has colours only on a terminal, and
`NO_COLOR` turns them off. Commands ask questions only at a terminal; `--yes` answers them.

**Errors** say what happened, the stable code of the HTTP interface, and what to do next. With `--output json` they are
one JSON object on standard error: `code`, `detail`, `hint`, `exit_code`, `retriable`, `no_side_effects`, and the fields
of the problem. A wrong configuration is reported with all its faults at once.

**Exit codes** mean the same everywhere:

{exits}

**Connection.** Commands that talk to a cluster take these options, after the command's name, or from environment
variables.

{connection}
"""


def page() -> str:
    """The text of docs/cli.md."""
    exits = _rows(["Code", "Meaning"], [(str(code), meaning) for code, meaning in MEANINGS.items()])
    [common] = [command for path, command in _commands(stockade, ()) if path == ("topics", "list")]
    shared = [option for option in common.params if isinstance(option, Connection)]
    links = " and ".join(f"`stockade {name}` ([{file}]({file}))" for name, file in ELSEWHERE.items())
    head = HEAD.format(exits=exits, connection=_options(shared), elsewhere=f"Other pages describe {links}.")
    return "\n".join([head, *(_section(path, command) for path, command in _commands(stockade, ()))])


def _commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden or (not path and name in ELSEWHERE):
            continue
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


def _section(path: tuple[str, ...], command: click.Command) -> str:
    parts = [f"{'#' * (len(path) + 1)} stockade {' '.join(path)}", ""]
    if not isinstance(command, click.Group) or command.params:
        parts += [f"    stockade {' '.join([*path, *_usage(command)])}", ""]
    parts += [_escaped(inspect.cleandoc(command.help or "")), ""]
    own = [each for each in command.params if isinstance(each, click.Option) and not isinstance(each, Connection)]
    shown = [option for option in own if not option.hidden]
    if shown:
        parts += [_options(shown), ""]
    if isinstance(command, Explained):
        parts += list(_manual(command))
    return "\n".join(parts)


def _manual(command: Explained) -> Iterator[str]:
    if command.examples:
        lines = [line for purpose, example in command.examples for line in (f"# {purpose}", example)]
        yield "\n".join(["```sh", *lines, "```", ""])
    special = [f"{code}: {text}" for code, text in command.exits.items() if MEANINGS.get(code) != text]
    codes = ", ".join(map(str, command.exits))
    yield f"Exit codes: {codes}.{''.join(f' {text}' for text in special)}"
    if any(isinstance(option, Connection) for option in command.params):
        yield "Takes the connection options."
    yield ""


def _usage(command: click.Command) -> Iterator[str]:
    if any(isinstance(each, click.Option) for each in command.params):
        yield "[OPTIONS]"
    for each in command.params:
        if isinstance(each, click.Argument):
            name = each.metavar or (each.name or "").upper()
            many = f"{name.rstrip('.')}..." if each.nargs == -1 else name
            yield many if each.required else f"[{many}]"
    if isinstance(command, click.Group):
        yield "COMMAND"


def _options(options: list[click.Option] | list[Connection]) -> str:
    return _rows(["Option", "Meaning"], [(f"`{_spelled(option)}`", _meaning(option)) for option in options])


def _spelled(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {_kind(option)}"


def _kind(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    if isinstance(option.type, click.IntRange | click.FloatRange):
        return "NUMBER"
    return option.type.name.upper()


def _meaning(option: click.Option) -> str:
    parts = [option.help or ""]
    if isinstance(option.type, click.IntRange | click.FloatRange):
        least, most = option.type.min, option.type.max
        parts.append(f"{least} to {most}." if most is not None else f"From {least} on.")
    if option.show_default and option.default is not None and not option.is_flag:
        parts.append(f"Default: {option.default}.")
    if option.show_envvar:
        parts.append(f"Environment: {option.envvar}.")
    return " ".join(parts)


def _rows(headings: list[str], rows: list[tuple[str, str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _escaped(text: str) -> str:
    return re.sub(r"[<>]", lambda match: f"\\{match[0]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
