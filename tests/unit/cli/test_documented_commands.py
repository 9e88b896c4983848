"""Every `stockade …` in a shell block of README and docs/ is a command line that the command takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stockade.cli.main import OF_COMMANDS, main
from stockade.cli.ui.manual import Connection

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1", "do", "done", ")"}
SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[list[str]]:
    """The words of each command, without what the shell takes for itself."""
    for block in SHELL.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for found in re.finditer(r"(?:^|[(|;] *|&& |do )stockade (?=[a-z-])", line):
                words = shlex.shlex(line[found.end() :], posix=True, punctuation_chars=True)
                words.whitespace_split = True
                words.commenters = "#"
                yield list(until_the_end(words))


def until_the_end(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word in ENDS or set(word) <= set("();<>|&"):
            return
        if word.strip("…") or not word:
            yield re.sub(r"\$\{?\w+\}?", "0", word.rstrip("…"))  # a variable: its value may have to be a number


def parse(words: list[str]) -> None:
    """Raises click.UsageError. Files and environments of the reader's need not exist here."""
    context = main.make_context("stockade", list(words))
    command: click.Command = main
    rest = words
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, rest)
        if found is None or (not rest and isinstance(found, click.Group) and not found.invoke_without_command):
            raise click.UsageError(f"no such command: {words}")
        command = found
        if isinstance(command, click.Group) and (not rest or rest[0].startswith("-")):
            break
    try:
        command.make_context(command.name, list(rest), parent=context)
    except click.UsageError as error:
        if "does not exist" not in str(error):
            raise


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_the_page_is_taken(page: str) -> None:
    for words in commands(page):
        try:
            parse(words)
        except click.UsageError as error:
            pytest.fail(f"{page}: stockade {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["cluster", "move"], "TOPIC PARTITION NODES"),
        (["cluster", "transfer"], "[TOPIC] [PARTITION]"),
        (["audit", "who-could-write"], "TOPIC PARTITION OFFSET"),
    ],
)
def test_a_number_in_a_usage_line_has_the_name_that_the_text_below_calls_it(words: list[str], usage: str) -> None:
    shown = CliRunner().invoke(main, [*words, "--help"])
    assert shown.stdout.splitlines()[0].endswith(f"[OPTIONS] {usage}")


@pytest.mark.parametrize("group", [[], ["topics"], ["cluster"]])
@pytest.mark.parametrize("option", ["--url", "--json"])
def test_an_option_before_the_name_of_its_command_is_told_where_it_stands(group: list[str], option: str) -> None:
    """`stockade cluster --url X status` was answered with: did you mean --tls?"""
    told = CliRunner().invoke(main, [*group, option, "x", "status"], prog_name="stockade")
    assert told.exit_code == 2
    place = " ".join(["stockade", *group, "COMMAND", option])
    assert f"No such option '{option}'. It comes after the command's name: {place} ..." in told.stderr
    assert "Did you mean" not in told.stderr
    assert "Did you mean '--port-base'?" in CliRunner().invoke(main, ["cluster", "--port", "1"]).stderr


def test_the_options_that_are_told_their_place_are_those_of_a_command_that_asks_the_cluster() -> None:
    command = main.get_command(click.Context(main), "doctor")
    assert command is not None
    of_the_connection = {name for each in command.params if isinstance(each, Connection) for name in each.opts}
    assert of_the_connection | {"--output", "--json"} == OF_COMMANDS


def test_commands_are_found_and_wrong_ones_are_refused() -> None:
    assert ["topics", "tail", "payments", "--records", "5"] in list(commands("docs/start.md"))
    assert len(list(commands("docs/cli.md"))) > 40
    for wrong in (["topics", "creat", "a"], ["topics", "create"], ["produce", "t", "--mode", "x"], ["nothing"]):
        with pytest.raises(click.UsageError):
            parse(wrong)


@pytest.mark.parametrize(("typed", "meant"), [("topcs", "topics"), ("clustr", "cluster"), ("conusme", "consume")])
def test_a_command_with_a_typo_is_answered_with_the_one_that_was_meant(typed: str, meant: str) -> None:
    told = CliRunner().invoke(main, [typed, "list"])
    assert told.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in told.stderr


def test_a_command_that_resembles_none_is_answered_with_no_guess() -> None:
    assert "Did you mean" not in CliRunner().invoke(main, ["zookeeper"]).stderr
