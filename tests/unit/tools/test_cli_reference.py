"""docs/cli.md says what the commands say of themselves."""

import click
import pytest
from cli_reference import ELSEWHERE, PAGE, page

from stockade.cli.main import COMMANDS, main
from stockade.cli.manual import Connection, Manual


def commands(group: click.Group = main, path: str = "") -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if path or name not in ELSEWHERE:
            found.append((f"{path} {name}".strip(), command))
            found += commands(command, f"{path} {name}") if isinstance(command, click.Group) else []
    return found


ALL = commands()


def test_the_page_is_what_the_tool_writes_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tools/cli_reference.py`"


@pytest.mark.parametrize(("name", "command"), [item for item in ALL if not isinstance(item[1], click.Group)])
def test_every_command_says_what_it_does_with_examples_exit_codes_and_options(
    name: str, command: click.Command
) -> None:
    assert isinstance(command, Manual)
    assert command.help
    assert {0, 2} <= set(command.exits)
    assert command.examples
    for _, line in command.examples:
        assert f"stockade {name}" in line
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, f"{name} {option.name}"
    asks = [option.name for option in command.params if isinstance(option, Connection)]
    assert asks in ([], ["url", "timeout_s", "token_file", "ca", "certificate", "key"])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_not_cut_at_80_columns(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert name in ELSEWHERE or not command.get_short_help_str(limit=66).endswith("...")
