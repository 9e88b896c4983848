"""How `stockade audit ledger` asks for one page after the other, and what `stockade audit verify` says is proved."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from stockade.cli.audit import commands
from stockade.cli.audit.commands import _pages, audit
from stockade.cli.ui.output import show_table
from stockade.client.api.client import Client
from stockade.cluster.controller.ledger import Ledger
from stockade.partition.api.ledger import HashedEntry, LedgerPage, entry_hash
from stockade.partition.errors import StockadeError, UnknownTopicOrPartition


class Ended:
    """A client of a ledger whose next entry is number 7."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def ledger(self, first: int, most: int, **_: Any) -> LedgerPage:
        self.asked.append(first)
        return LedgerPage(1, 7, min(first, 7), [])


def test_a_ledger_that_is_followed_from_a_later_entry_shows_none_before_it() -> None:
    async def main() -> None:
        client, seen = Ended(), 0
        async for _ in _pages(cast(Client, client), 9, {}, follow=True):
            seen += 1
            if seen == 2:
                break
        assert client.asked == [9, 9]

    asyncio.run(main())


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_name_that_a_client_chose_makes_no_row_of_the_ledger_and_sends_the_terminal_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    forged = "printer\n8  2026-11-28T02:02:42Z  root  topic.delete\x1b[2J\x9b\u202e"
    show_table(["NUMBER", "ABOUT", "ÄHNLICH"], [(7, forged, "ns:key:ä")])
    shown = capsys.readouterr().out
    assert not any(sent in shown for sent in ("\x1b[2J", "\x9b", "\u202e"))
    assert "topic.delete\\x1b[2J\\x9b\\u202e" in shown
    assert "ns:key:ä" in shown
    if not is_terminal:
        assert len(shown.splitlines()) == 2


class Reached:
    """A client that needs no cluster."""

    def __init__(self, config: Any) -> None:
        pass

    async def __aenter__(self) -> "Reached":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def connect(self) -> None:
        pass


def test_verify_says_up_to_which_entry_the_head_proves_the_ledger_and_that_nothing_above_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger()
    ledger.begin()
    ledger.record("topic.create", topic="a")
    ledger.record("topic.create", topic="b")
    first, entries = ledger.oldest(1 << 30, 1 << 30)
    rows = list(enumerate(entries, first))

    async def stored(client: object, first: int) -> AsyncIterator[list[tuple[int, bytes]]]:
        yield rows

    monkeypatch.setattr(commands, "stored", stored)
    monkeypatch.setattr("stockade.cli.ui.connection.Client", Reached)
    head = f"2:{entry_hash(rows[1][1])}"
    shown = CliRunner().invoke(audit, ["verify", "--head", head]).stdout
    assert shown.splitlines()[-1] == "proved     entries up to 2, by the head that was given; nothing above 2"
    assert json.loads(CliRunner().invoke(audit, ["verify", "--head", head, "--json"]).stdout)["proved"] == 2
    unproved = CliRunner().invoke(audit, ["verify"])
    assert unproved.exit_code == 0
    assert unproved.stdout.splitlines()[-1].startswith("proved     nothing: the chain has no key")
    assert json.loads(CliRunner().invoke(audit, ["verify", "--json"]).stdout)["proved"] == 0


def test_a_head_whose_entry_has_passed_the_retention_is_not_said_to_be_another_ledgers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sounded as if the ledger had been made anew."""
    ledger = Ledger()
    ledger.begin()
    for topic in "abc":
        ledger.record("topic.create", topic=topic)
    first, entries = ledger.oldest(1 << 30, 1 << 30)
    rows = list(enumerate(entries, first))

    async def stored(client: object, first: int) -> AsyncIterator[list[tuple[int, bytes]]]:
        yield rows[2:]

    monkeypatch.setattr(commands, "stored", stored)
    monkeypatch.setattr("stockade.cli.ui.connection.Client", Reached)
    said = {
        f"1:{entry_hash(rows[0][1])}": "begins with entry 3, so the head of entry 1 proves nothing: its retention",
        f"3:{entry_hash(rows[0][1])}": "the ledger has no entry 3 with this hash",
        f"9:{entry_hash(rows[0][1])}": "the ledger ends with entry 4: entry 9, which was there, was cut off",
    }
    for head, why in said.items():
        done = CliRunner().invoke(audit, ["verify", "--head", head])
        assert (done.exit_code, why in done.stderr) == (1, True), done.stderr
    assert CliRunner().invoke(audit, ["verify", "--head", f"03:{entry_hash(rows[2][1])}"]).exit_code == 0


class Told(Reached):
    """A client of a ledger that tells of topic t, id 5, which has two partitions, or is as ``there`` says."""

    there: Any = SimpleNamespace(topic_id=5, partitions=[SimpleNamespace(log_end=end) for end in (None, 2)])

    async def ledger(self, first: int, most: int, **choice: Any) -> LedgerPage:
        made = HashedEntry(1, "", 1, 0, 0, "topic.create", "done", "", "", "", "t", 5, after={"partitions": 2})
        return LedgerPage(1, 2, 2, [made] if choice["topic"] else [])

    async def topic(self, name: str, *, patience_ms: int) -> Any:
        if isinstance(self.there, StockadeError):
            raise self.there
        return self.there


def test_no_answer_is_given_for_a_partition_that_the_topic_never_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cli.ui.connection.Client", Told)
    done = CliRunner().invoke(audit, ["who-could-write", "t", "7", "1"])
    assert (done.exit_code, "(UNKNOWN_TOPIC_OR_PARTITION)" in done.stderr) == (1, True)
    assert CliRunner().invoke(audit, ["who-could-write", "t", "1", "1"]).exit_code == 0


def test_an_offset_that_no_record_has_yet_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cli.ui.connection.Client", Told)
    for offset, is_told in (("1", False), ("2", True), ("1000", True)):
        told = CliRunner().invoke(audit, ["who-could-write", "t", "1", offset]).stdout
        assert ("no record has this offset yet: the log ended at 2" in told) == is_told
    assert "no record has" not in CliRunner().invoke(audit, ["who-could-write", "t", "0", "9"]).stdout


@pytest.mark.parametrize("there", [UnknownTopicOrPartition(), SimpleNamespace(topic_id=6, partitions=[None])])
def test_of_a_topic_that_is_gone_the_ledger_alone_tells(monkeypatch: pytest.MonkeyPatch, there: Any) -> None:
    monkeypatch.setattr(Told, "there", there)
    monkeypatch.setattr("stockade.cli.ui.connection.Client", Told)
    assert CliRunner().invoke(audit, ["who-could-write", "t", "1", "1"]).exit_code == 0


def test_a_topic_id_of_which_the_ledger_tells_nothing_is_no_topic_older_than_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stockade.cli.ui.connection.Client", Told)
    done = CliRunner().invoke(audit, ["who-could-write", "t", "1", "1", "--topic-id", "999"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: the ledger has no entry about topic t with the id 999\n"
    assert CliRunner().invoke(audit, ["who-could-write", "t", "1", "1", "--topic-id", "5"]).exit_code == 0
