"""A group's journal over a log: order, terms, durability, conflicts, and what a restart finds."""

import random

import pytest
from simulation.disk import Disk, Log

from stockade.raft.configuration import FOUNDING, Configuration, founded_by
from stockade.raft.journal import NO_OP, Journal
from stockade.raft.origin import Left, Origin
from stockade.raft.wal import Entry, RecoveredGroup

TWO, THREE = founded_by({"a": 1, "b": 2}), founded_by({"a": 1, "b": 2, "c": 3})


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


def checkpointed_at(index: int, terms: str) -> tuple[Bench, Journal]:
    """A journal of these terms, with a checkpoint on disk and everything up to it dropped."""
    bench = Bench(terms)
    bench.journal.checkpointed(index)
    bench.journal.compact(index)
    return bench, bench.journal


def test_a_compacted_journal_begins_after_its_base_and_still_knows_its_term() -> None:
    _, journal = checkpointed_at(4, "11223")
    assert (journal.base_index, journal.last_index, journal.term_at(4)) == (4, 6, 2)
    assert journal.read(5, 1000) == [(5, 2, b"\x005"), (6, 3, b"\x006")]
    assert (len(journal), journal[0][1:], journal[-1]) == (3, (4, 2), (b"\x006", 6, 3))


@pytest.mark.parametrize(
    ("prev_index", "prev_term", "next_index"),
    [(2, 9, None), (3, 1, None), (4, 2, None), (5, 2, None), (6, 2, 6), (7, 3, 7)],
)
def test_what_is_compacted_matches_every_leader(prev_index: int, prev_term: int, next_index: int | None) -> None:
    assert checkpointed_at(4, "11223")[1].conflict(prev_index, prev_term) == next_index


def test_nothing_is_compacted_beyond_the_checkpoint() -> None:
    bench = Bench("111")
    bench.journal.checkpointed(3)
    with pytest.raises(AssertionError):
        bench.journal.compact(4)


def test_a_configuration_is_in_force_from_its_append_until_it_is_cut_off() -> None:
    bench = Bench("1", TWO)
    bench.journal.add(THREE.entry(), 3, 1)
    assert (bench.journal.configuration, bench.journal.configuration_index) == (THREE, 3)
    assert (bench.journal.configuration_at(2), bench.journal.configuration_at(3)) == (TWO, THREE)
    bench.journal.truncate(3)
    assert (bench.journal.configuration, bench.journal.configuration_index) == (TWO, 1)


def test_a_checkpoint_keeps_the_configuration_that_was_in_force() -> None:
    bench = Bench("1", TWO)
    bench.journal.add(THREE.entry(), 3, 1)
    bench.journal.add(TWO.entry(), 4, 1)
    bench.journal.checkpointed(3)
    bench.journal.compact(3)
    assert bench.journal.origin == Origin(3, 1, THREE)
    assert (bench.journal.configuration_at(3), bench.journal.configuration) == (THREE, TWO)


def test_a_restart_finds_the_configurations_of_the_log() -> None:
    bench = Bench("1", TWO)
    bench.journal.setCurrentTerm(1, None)
    bench.journal.add(THREE.entry(), 3, 1)
    while bench.syncs:
        bench.sync()
    assert bench.restart().configuration == THREE


def test_an_installed_checkpoint_replaces_a_journal_that_it_contradicts() -> None:
    bench = Bench("111")
    bench.journal.install(Origin(3, 2, THREE))
    journal = bench.journal
    assert (journal.base_index, journal.last_index, journal.last_term, journal.durable_index) == (3, 3, 2, 3)
    assert journal.configuration == THREE
    journal.add(b"\x00new", 4, 2)
    assert journal.read(4, 100) == [(4, 2, b"\x00new")]


def test_what_follows_an_installed_checkpoint_stays_if_the_journal_has_its_last_entry() -> None:
    bench = Bench("1122")
    bench.journal.install(Origin(3, 1, THREE))
    assert (bench.journal.last_index, bench.journal.configuration, bench.journal.origin.index) == (5, THREE, 3)


def recovered(*terms: int, first: int) -> RecoveredGroup:
    return RecoveredGroup(9, None, [Entry(index, term, 0) for index, term in enumerate(terms, first)])


@pytest.mark.parametrize(
    ("log", "base_index", "last_index"),
    [
        (recovered(first=2), 5, 5),
        (recovered(3, 3, first=6), 5, 7),
        (recovered(2, 3, 3, first=4), 4, 6),
        (recovered(1, 1, 2, 3, 3, first=2), 1, 6),
        (recovered(1, 1, first=3), 5, 5),
        (recovered(1, 1, 2, 2, first=3), 5, 5),
    ],
    ids=["empty", "begins right after", "covers it", "whole", "ends before", "has another entry there"],
)
def test_what_the_log_holds_counts_if_it_goes_on_from_the_checkpoint(
    log: RecoveredGroup, base_index: int, last_index: int
) -> None:
    journal = Journal(1, Bench().log, log, Origin(5, 3, THREE))
    assert (journal.base_index, journal.last_index, journal.term_at(5)) == (base_index, last_index, 3)


def test_a_log_that_begins_beyond_the_checkpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="begins at 7"):
        Journal(1, Bench().log, recovered(3, first=7), Origin(5, 3, THREE))


def test_the_term_is_never_below_that_of_the_checkpoint() -> None:
    journal = Journal(1, Bench().log, RecoveredGroup(2, "n2", []), Origin(5, 3, THREE))
    assert (journal.term, journal.voted_for) == (3, None)


def test_what_an_erased_replica_had_promised_binds_the_next_one() -> None:
    bench = Bench("112")
    bench.journal.setCurrentTerm(5, "n2")
    left = bench.journal.leave()
    assert left == Left(5, 2, 4)
    joined = Journal(1, Bench().log, RecoveredGroup(), left=left)
    assert (joined.term, joined.end, joined.promised_end) == (5, (0, 1), (2, 4))
    assert joined.voted_for not in {None, "n2"}, "it may have voted in that term"
    joined.add(b"\x00", 2, 5)
    assert joined.promised_end == (5, 2)
    assert joined.leave() == Left(5, 5, 2)


def test_a_vote_in_a_later_term_is_remembered_as_ever() -> None:
    journal = Journal(1, Bench().log, RecoveredGroup(6, "n3", []), left=Left(5, 2, 4))
    assert (journal.term, journal.voted_for, journal.promised_end) == (6, "n3", (2, 4))
