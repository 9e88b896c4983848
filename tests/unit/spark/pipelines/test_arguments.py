"""What a script takes for options of the source and the sink."""

import argparse

import pytest

from stockade.spark.pipelines.arguments import add_options, options_of


def options(*arguments: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_options(parser, "source")
    return options_of(parser.parse_args(["--url", "u", *arguments]))


def test_options_are_names_and_values_of_any_text() -> None:
    assert options("--option", "a=b=c", "--option", "d=") == {"url": "u", "a": "b=c", "d": ""}


@pytest.mark.parametrize("text", ["foo", "=foo"])
def test_an_option_without_a_name_or_a_value_is_told_as_wrong_usage(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a ValueError."""
    with pytest.raises(SystemExit, match="2"):
        options("--option", text)
    assert f"argument --option: must be NAME=VALUE, not '{text}'" in capsys.readouterr().err
