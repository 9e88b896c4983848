"""The last backup of each place, in the controller's state and in the ledger."""

import msgspec
import pytest

from stockade.cluster.controller.backups import PLACE_CHARACTERS_MAX, PLACES_MAX, Backups, NoteBackup
from stockade.cluster.controller.commands import Done
from stockade.partition.api.cluster import NotedBackup
from stockade.partition.errors import InvalidRequest

from .recorded import ROOT, Recorded


def made(place: str = "s3://b", cut_ms: int = 5, name: str = "one") -> NoteBackup:
    return NoteBackup(now_ms=0, by=ROOT, made=NotedBackup(place, name, cut_ms, took_ms=1, topics=2, records=3, bytes=4))


def test_the_newest_of_a_place_is_kept_and_each_is_in_the_ledger() -> None:
    recorded = Recorded()
    newer, older = recorded.told(made(cut_ms=9, name="newer"), made(cut_ms=8, name="older"))
    assert (newer.act, newer.name, newer.principal, newer.outcome) == ("backup.note", "s3://b", "root", "done")
    assert older.after is not None
    assert older.after["name"] == "older"
    [kept] = recorded.machine.backups.rows.values()
    assert (kept.name, kept.cut_ms, kept.records, kept.principal) == ("newer", 9, 3, "root")


def test_the_place_that_was_noted_longest_ago_is_forgotten_at_the_bound() -> None:
    backups = Backups()
    for number in range(PLACES_MAX):
        backups.note(made(f"place {number}"))
    backups.note(made("place 0", cut_ms=6))
    backups.note(made("another"))
    assert len(backups.rows) == PLACES_MAX
    assert "place 1" not in backups.rows
    assert {"place 0", "another"} <= backups.rows.keys()
    again = Backups()
    again.load(backups.save())
    assert list(again.rows.items()) == list(backups.rows.items())


@pytest.mark.parametrize("change", [{"place": ""}, {"place": "x" * (PLACE_CHARACTERS_MAX + 1)}, {"name": "a\nb"}])
def test_texts_without_a_length_or_beyond_it_and_unprintable_ones_are_refused(change: dict[str, str]) -> None:
    recorded = Recorded()
    wrong = msgspec.structs.replace(made().made, **change)
    assert isinstance(recorded.do(msgspec.structs.replace(made(), made=wrong)), InvalidRequest)
    assert not recorded.machine.backups.rows
    assert recorded.do(made()) == Done()
