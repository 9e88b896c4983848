"""Modes have one spelling; the short words are accepted for it, and printed nowhere."""

from typing import get_args

import click
import pytest
from click.testing import CliRunner

from stockade.cli.ui.exits import explain
from stockade.cli.ui.parameters import SHORT_MODES, mode_option
from stockade.partition.api.topics import Mode
from stockade.partition.errors import ProducerBusy, ProducerFenced


@click.command()
@mode_option
def show(mode: str) -> None:
    """Show the mode."""
    click.echo(mode)


@pytest.mark.parametrize(("word", "mode"), [*((mode, mode) for mode in get_args(Mode)), *SHORT_MODES.items()])
def test_a_mode_is_taken_by_its_name_and_by_its_short_word(word: str, mode: str) -> None:
    assert CliRunner().invoke(show, ["--mode", word]).output == f"{mode}\n"


def test_a_misspelt_mode_is_answered_with_the_names() -> None:
    refused = CliRunner().invoke(show, ["--mode", "Exclusiv"])
    assert refused.exit_code == 2
    assert all(mode in refused.output for mode in get_args(Mode))


def test_a_busy_slot_is_told_with_the_holder_since_when_until_when_and_what_to_do() -> None:
    holder = {
        "producer_name": "alpha",
        "client_id": "c1",
        "mode": "Exclusive",
        "since_unix_ms": 1_767_225_600_000,
        "expires_in_ms": 8_200,
    }
    told = explain(ProducerBusy(reason="exclusive_present", holder=holder))
    assert told.startswith("Producer alpha of client c1 holds the slot (Exclusive) (PRODUCER_BUSY). Held since")
    assert "Held since 2026-01-01T00:00:00Z, for 8.2 s more at most unless its session is renewed." in told
    assert "WaitForExclusive" in told
    assert "Held by producer alpha of client c1 since" in explain(ProducerFenced(reason="superseded", holder=holder))
    assert "Held" not in explain(ProducerBusy(reason="waiters_present", queue_len=1, holder=None))
