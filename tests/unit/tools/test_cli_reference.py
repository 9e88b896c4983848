"""docs/cli.md says what the commands say of themselves."""

import click
import pytest
from cli_reference import PAGE, page

from stockade.cli.main import main
from stockade.cli.ui.manual import Connection, Explained


def commands(group: click.Group = main, path: str = "") -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        full = f"{path} {name}".strip()
        found.append((full, command))
        found += commands(command, full) if isinstance(command, click.Group) else []
    return found


def is_only_a_group(command: click.Command) -> bool:
    return isinstance(command, click.Group) and not command.invoke_without_command


ALL = commands()


def test_the_page_is_what_the_tool_writes_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tools/cli_reference.py`"


@pytest.mark.parametrize(("name", "command"), [item for item in ALL if not is_only_a_group(item[1])])
def test_every_command_says_what_it_does_with_examples_exit_codes_and_options(
    name: str, command: click.Command
) -> None:
    assert isinstance(command, Explained)
    assert command.help
    assert {0, 2} <= set(command.exits)
    assert command.examples
    for _, line in command.examples:
        assert f"stockade {name}" in line or line.startswith("spark-submit ")
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, f"{name} {option.name}"
    asks = [option.name for option in command.params if isinstance(option, Connection)]
    assert asks in ([], ["url", "timeout_s", "token_file", "ca", "certificate", "key"])


@pytest.mark.parametrize(
    ("name", "group"), [(name, each) for name, each in [("stockade", main), *ALL] if isinstance(each, click.Group)]
)
def test_no_summary_in_a_list_of_commands_is_cut_at_80_columns(name: str, group: click.Group) -> None:
    context = click.Context(group)
    names = group.list_commands(context)
    width = 72 - max(map(len, names))
    for each in names:
        command = group.get_command(context, each)
        assert command is not None
        assert not command.get_short_help_str(width).endswith("..."), f"{name} {each}"
