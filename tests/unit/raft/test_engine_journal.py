"""A group's journal over a log: order, terms, durability, conflicts, and what a restart finds."""

import random

import pytest
from simulation.disk import Disk, Log

from stockade.raft.configuration import FOUNDING, Configuration
from stockade.raft.journal import NO_OP, Journal
from stockade.raft.origin import Origin
from stockade.raft.wal import Entry, RecoveredGroup


class Bench:
    """A journal over a simulated disk whose syncs happen when the test says so."""

    def __init__(self, terms: str = "", configuration: Configuration = FOUNDING) -> None:
        self.syncs: list[object] = []
        self.disk = Disk(random.Random(1), lambda: 0.0)
        self.log = Log(self.disk, lambda delay, call: self.syncs.append(call))
        self.journal = Journal(1, self.log, RecoveredGroup(), Origin(configuration=configuration))
        for index, term in enumerate(terms, 2):
            self.journal.add(b"\x00%d" % index, index, int(term))

    def sync(self) -> None:
        """The flush that is under way lands."""
        call = self.syncs.pop(0)
        assert callable(call)
        call()

    def restart(self) -> Journal:
        log = Log(self.disk, lambda delay, call: None)
        return Journal(1, log, log.recovered.get(1, RecoveredGroup()))


def test_index_1_is_the_first_no_op_and_is_not_written() -> None:
    bench = Bench()
    assert (bench.journal.last_index, bench.journal[0], bench.disk.records) == (1, (NO_OP, 1, 0), [])


def test_entries_are_read_back_by_index_and_by_position() -> None:
    journal = Bench("1123").journal
    assert journal.read(2, 1000) == [(2, 1, b"\x002"), (3, 1, b"\x003"), (4, 2, b"\x004"), (5, 3, b"\x005")]
    assert journal[-1] == (b"\x005", 5, 3)
    assert journal[1:3] == [(b"\x002", 2, 1), (b"\x003", 3, 1)]
    assert len(journal) == 5


@pytest.mark.parametrize(("bytes_max", "count"), [(1, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_a_read_stops_at_its_bytes_but_takes_at_least_one_entry(bytes_max: int, count: int) -> None:
    assert len(Bench("1111").journal.read(2, bytes_max)) == count


def test_only_what_a_sync_covered_is_durable() -> None:
    bench = Bench("11")
    bench.journal.add(b"\x00x", 4, 1)
    assert (bench.journal.durable_index, bench.journal.unsynced) == (1, True)
    bench.sync()
    assert bench.journal.durable_index == 2
    bench.sync()
    assert (bench.journal.durable_index, bench.journal.unsynced) == (4, False)


def test_a_truncation_takes_back_what_was_durable() -> None:
    bench = Bench("1112")
    bench.sync()
    bench.sync()
    bench.journal.truncate(4)
    assert (bench.journal.last_index, bench.journal.last_term, bench.journal.durable_index) == (3, 1, 3)
    bench.journal.add(b"\x00new", 4, 3)
    assert bench.journal.durable_index == 3


@pytest.mark.parametrize(("index", "term"), [(3, 1), (5, 1), (4, 0)])
def test_an_entry_out_of_order_is_refused(index: int, term: int) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        Bench("11").journal.add(b"\x00", index, term)


def test_a_restart_finds_entries_term_and_vote() -> None:
    bench = Bench()
    bench.journal.setCurrentTerm(3, "n2")
    assert not bench.journal.state_is_durable
    for index in (2, 3):
        bench.journal.add(b"\x00", index, 3)
    bench.sync()
    assert bench.journal.state_is_durable
    bench.sync()
    journal = bench.restart()
    assert (journal.last_index, journal.last_term, journal.durable_index) == (3, 3, 3)
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId(), journal.getRaftCommitIndex()) == (3, "n2", 1)


def test_entries_of_a_term_that_was_never_saved_are_refused() -> None:
    with pytest.raises(ValueError, match="the current term is 1"):
        Journal(1, Bench().log, RecoveredGroup(1, None, [Entry(2, 2, 0)]))


@pytest.mark.parametrize(
    ("prev_index", "prev_term", "next_index"),
    [
        (1, 0, None),
        (4, 1, None),
        (6, 2, None),
        (9, 4, None),
        (10, 4, 10),  # missing here: from the end on
        (50, 9, 10),
        (9, 5, 10),  # our term is lower: the leader's run is to be skipped
        (8, 3, 7),  # our run of term 4 cannot match; what is before has a lower term
        (8, 1, 5),  # neither can our run of term 2
        (6, 1, 5),
        (8, 0, 2),
    ],
)
def test_a_conflict_names_where_to_try_next(prev_index: int, prev_term: int, next_index: int | None) -> None:
    assert Bench("11122444").journal.conflict(prev_index, prev_term) == next_index


def test_a_run_begins_where_its_term_does() -> None:
    journal = Bench("11122444").journal
    assert [journal.run_start(index) for index in range(1, 10)] == [1, 2, 2, 2, 5, 5, 7, 7, 7]
    assert [journal.term_at(index) for index in range(1, 10)] == [0, 1, 1, 1, 2, 2, 4, 4, 4]
