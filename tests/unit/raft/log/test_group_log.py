"""A group's log over a simulated disk: order, terms, durability, conflicts, and what a restart finds."""

import pytest

from stockade.raft.log.configuration import Configuration, founding_configuration
from stockade.raft.log.group_log import ENTRIES_MAX, FORGOTTEN, NO_OP, GroupLog
from stockade.raft.log.origin import GroupTombstone, Origin
from stockade.raft.wal.errors import AnotherHistory
from stockade.raft.wal.records import LogEntry, RecoveredGroup

from ..simulated_log import SimulatedLog

TWO, THREE = founding_configuration({"a": 1, "b": 2}), founding_configuration({"a": 1, "b": 2, "c": 3})


def test_index_1_is_the_first_no_op_and_is_not_written() -> None:
    simulated = SimulatedLog()
    assert (simulated.log.last_index, simulated.log[0], simulated.disk.records) == (1, (NO_OP, 1, 0), [])


def test_entries_are_read_back_by_index_and_by_position() -> None:
    log = SimulatedLog("1123").log
    assert log.read(2, 1000) == [(2, 1, b"\x002"), (3, 1, b"\x003"), (4, 2, b"\x004"), (5, 3, b"\x005")]
    assert log[-1] == (b"\x005", 5, 3)
    assert [log[1], log[2]] == [(b"\x002", 2, 1), (b"\x003", 3, 1)]
    assert len(log) == 5


@pytest.mark.parametrize(("bytes_max", "count"), [(1, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_a_read_stops_at_its_bytes_but_takes_at_least_one_entry(bytes_max: int, count: int) -> None:
    assert len(SimulatedLog("1111").log.read(2, bytes_max)) == count


@pytest.mark.parametrize("bytes_max", range(1, 12))
def test_fits_reads_no_payload(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read, up to a mebibyte, with each ack of a follower that was to take over or to become a voter."""
    simulated = SimulatedLog("1111")
    log = simulated.log
    expected = [len(log.read(first, bytes_max)) == 6 - first for first in range(2, 7)]
    payloads = {location: simulated.wal.read(location) for location in log._locations}
    monkeypatch.setattr(simulated.wal, "read", None)
    monkeypatch.setattr(simulated.wal, "size", lambda location: len(payloads[location]))
    assert [log.fits(first, bytes_max) for first in range(2, 7)] == expected


@pytest.mark.parametrize("more", [0, 1])
def test_a_message_has_a_bounded_number_of_entries(more: int) -> None:
    log = SimulatedLog("1" * (ENTRIES_MAX + more)).log
    assert len(log.read(2, 1 << 20)) == ENTRIES_MAX
    assert log.fits(2, 1 << 20) is (more == 0)


def test_only_entries_that_a_sync_covered_are_durable() -> None:
    simulated = SimulatedLog("11")
    simulated.log.add(b"\x00x", 4, 1)
    assert (simulated.log.durable_index, simulated.log.unsynced) == (1, True)
    simulated.sync()
    assert simulated.log.durable_index == 2
    simulated.sync()
    assert (simulated.log.durable_index, simulated.log.unsynced) == (4, False)


def test_a_truncation_lowers_the_durable_index() -> None:
    simulated = SimulatedLog("1112")
    simulated.sync()
    simulated.sync()
    simulated.log.truncate(4)
    assert (simulated.log.last_index, simulated.log.last_term, simulated.log.durable_index) == (3, 1, 3)
    simulated.log.add(b"\x00new", 4, 3)
    assert simulated.log.durable_index == 3


@pytest.mark.parametrize(("index", "term"), [(3, 1), (5, 1), (4, 0)])
def test_an_entry_out_of_order_is_refused(index: int, term: int) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        SimulatedLog("11").log.add(b"\x00", index, term)


def test_a_restart_finds_entries_term_and_vote() -> None:
    simulated = SimulatedLog()
    simulated.log.setCurrentTerm(3, "n2")
    assert not simulated.log.state_is_durable
    for index in (2, 3):
        simulated.log.add(b"\x00", index, 3)
    simulated.sync()
    assert simulated.log.state_is_durable
    simulated.sync()
    log = simulated.restart()
    assert (log.last_index, log.last_term, log.durable_index) == (3, 3, 3)
    assert (log.getCurrentTerm(), log.getVotedForNodeId(), log.getRaftCommitIndex()) == (3, "n2", 1)


def test_entries_of_a_term_that_was_never_saved_are_refused() -> None:
    with pytest.raises(ValueError, match="the current term is 1"):
        GroupLog(1, SimulatedLog().wal, RecoveredGroup(1, None, [LogEntry(2, 2, 0)]))


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
def test_a_conflict_returns_the_next_index_to_send(prev_index: int, prev_term: int, next_index: int | None) -> None:
    assert SimulatedLog("11122444").log.conflict(prev_index, prev_term) == next_index


def test_run_start_returns_the_first_index_of_the_term() -> None:
    log = SimulatedLog("11122444").log
    assert [log.run_start(index) for index in range(1, 10)] == [1, 2, 2, 2, 5, 5, 7, 7, 7]
    assert [log.term_at(index) for index in range(1, 10)] == [0, 1, 1, 1, 2, 2, 4, 4, 4]


def checkpointed_at(index: int, terms: str) -> tuple[SimulatedLog, GroupLog]:
    """A log of these terms, with a checkpoint on disk and everything up to it dropped."""
    simulated = SimulatedLog(terms)
    simulated.log.checkpointed(index)
    simulated.log.compact(index)
    return simulated, simulated.log


def test_a_compacted_journal_begins_after_its_base_and_still_knows_its_term() -> None:
    _, log = checkpointed_at(4, "11223")
    assert (log.base_index, log.last_index, log.term_at(4)) == (4, 6, 2)
    assert log.read(5, 1000) == [(5, 2, b"\x005"), (6, 3, b"\x006")]
    assert (len(log), log[0][1:], log[-1]) == (3, (4, 2), (b"\x006", 6, 3))


@pytest.mark.parametrize(
    ("prev_index", "prev_term", "next_index"),
    [(2, 9, None), (3, 1, None), (4, 2, None), (5, 2, None), (6, 2, 6), (7, 3, 7)],
)
def test_compacted_entries_match_the_log_of_every_leader(
    prev_index: int, prev_term: int, next_index: int | None
) -> None:
    assert checkpointed_at(4, "11223")[1].conflict(prev_index, prev_term) == next_index


def test_nothing_is_compacted_beyond_the_checkpoint() -> None:
    simulated = SimulatedLog("111")
    simulated.log.checkpointed(3)
    with pytest.raises(AssertionError):
        simulated.log.compact(4)


def test_a_configuration_is_in_force_from_its_append_until_it_is_truncated() -> None:
    simulated = SimulatedLog("1", TWO)
    simulated.log.add(THREE.entry(), 3, 1)
    assert (simulated.log.configuration, simulated.log.configuration_index) == (THREE, 3)
    assert (simulated.log.configuration_at(2), simulated.log.configuration_at(3)) == (TWO, THREE)
    simulated.log.truncate(3)
    assert (simulated.log.configuration, simulated.log.configuration_index) == (TWO, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (THREE, Configuration({"a": 8, "b": 9}, {"c": 3})),  # where "c" came with this disk in place of its own
        (THREE, founding_configuration({"a": 1, "b": 9, "c": 9})),
        (Configuration(TWO.voters, {"c": 3}), Configuration({"a": 1}, {"c": 9})),
    ],
)
def test_the_log_of_another_cluster_with_the_same_indexes_and_terms_takes_no_leaders_entries(
    before: Configuration, after: Configuration
) -> None:
    """A disk of another cluster passed for a copy: it became a voter with other records than those of the leader."""
    simulated = SimulatedLog("11", before)
    with pytest.raises(AnotherHistory, match="it is of a cluster that was founded before, or elsewhere"):
        simulated.log.add(after.entry(), 4, 2)
    assert (simulated.log.last_index, simulated.log.configuration) == (3, before)
    simulated.log.add(b"\x00x", 4, 2)  # nothing of it is in the way


def test_a_checkpoint_keeps_the_configuration_that_was_in_force() -> None:
    simulated = SimulatedLog("1", TWO)
    simulated.log.add(THREE.entry(), 3, 1)
    simulated.log.add(TWO.entry(), 4, 1)
    simulated.log.checkpointed(3)
    simulated.log.compact(3)
    assert simulated.log.origin == Origin(3, 1, THREE)
    assert (simulated.log.configuration_at(3), simulated.log.configuration) == (THREE, TWO)


def test_a_restart_finds_the_configurations_of_the_log() -> None:
    simulated = SimulatedLog("1", TWO)
    simulated.log.setCurrentTerm(1, None)
    simulated.log.add(THREE.entry(), 3, 1)
    while simulated.syncs:
        simulated.sync()
    assert simulated.restart().configuration == THREE


def test_an_installed_checkpoint_replaces_a_journal_that_it_contradicts() -> None:
    simulated = SimulatedLog("111")
    simulated.log.install(Origin(3, 2, THREE))
    log = simulated.log
    assert (log.base_index, log.last_index, log.last_term, log.durable_index) == (3, 3, 2, 3)
    assert log.configuration == THREE
    log.add(b"\x00new", 4, 2)
    assert log.read(4, 100) == [(4, 2, b"\x00new")]


def test_entries_after_an_installed_checkpoint_stay_if_the_log_has_its_last_entry() -> None:
    simulated = SimulatedLog("1122")
    simulated.log.install(Origin(3, 1, THREE))
    assert (simulated.log.last_index, simulated.log.configuration, simulated.log.origin.index) == (5, THREE, 3)


def recovered(*terms: int, first: int) -> RecoveredGroup:
    return RecoveredGroup(9, None, [LogEntry(index, term, 0) for index, term in enumerate(terms, first)])


@pytest.mark.parametrize(
    ("held", "base_index", "last_index"),
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
def test_recovered_entries_are_kept_if_they_continue_the_checkpoint(
    held: RecoveredGroup, base_index: int, last_index: int
) -> None:
    log = GroupLog(1, SimulatedLog().wal, held, Origin(5, 3, THREE))
    assert (log.base_index, log.last_index, log.term_at(5)) == (base_index, last_index, 3)


def test_a_log_that_begins_beyond_the_checkpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="begins at 7"):
        GroupLog(1, SimulatedLog().wal, recovered(3, first=7), Origin(5, 3, THREE))


def test_the_term_is_never_below_that_of_the_checkpoint() -> None:
    log = GroupLog(1, SimulatedLog().wal, RecoveredGroup(2, "n2", []), Origin(5, 3, THREE))
    assert (log.term, log.voted_for) == (3, None)


def test_the_tombstone_of_an_erased_replica_binds_the_next_one() -> None:
    simulated = SimulatedLog("112")
    simulated.log.setCurrentTerm(5, "n2")
    left = simulated.log.tombstone()
    assert left == GroupTombstone(5, 2, 4)
    joined = GroupLog(1, SimulatedLog().wal, RecoveredGroup(), tombstone=left)
    assert (joined.term, joined.end, joined.promised_end) == (5, (0, 1), (2, 4))
    assert joined.voted_for not in {None, "n2"}, "it may have voted in that term"
    joined.add(b"\x00", 2, 5)
    assert joined.promised_end == (5, 2)
    assert joined.tombstone() == GroupTombstone(5, 5, 2)


def test_a_replica_that_returned_without_a_record_of_it_votes_for_no_node_in_the_term_of_its_erasure() -> None:
    """Software of the release before wrote none, so the log has the term by its entries alone."""
    log = GroupLog(1, SimulatedLog().wal, RecoveredGroup(5, None, []), tombstone=GroupTombstone(5, 2, 4))
    assert (log.term, log.voted_for) == (5, FORGOTTEN)


def test_a_vote_in_a_term_after_the_tombstone_is_recovered() -> None:
    log = GroupLog(1, SimulatedLog().wal, RecoveredGroup(6, "n3", []), tombstone=GroupTombstone(5, 2, 4))
    assert (log.term, log.voted_for, log.promised_end) == (6, "n3", (2, 4))
