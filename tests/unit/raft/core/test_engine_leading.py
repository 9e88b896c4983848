"""What a leader sends, and what it makes of the answers."""

from math import inf

import pytest

from stockade.raft.core.leader import FEW_BYTES, FEW_ENTRIES, IN_SYNC_ENTRIES_MAX, TURN_MESSAGES_MAX, LeaderState
from stockade.raft.log.configuration import founding_configuration
from stockade.raft.messages import AppendAck, AppendEntries, Commit, Offer, TimeoutNow
from stockade.raft.settings import RaftSettings

from ..simulated_log import SimulatedLog
from .leading import DISK, SETTINGS, Leader, members


def test_the_first_message_is_alone_until_it_is_answered() -> None:
    leader = Leader()
    leader.append(12)
    assert leader.broadcast() == [(1, [2, 3])]
    assert leader.broadcast() == []
    leader.ack(4)
    assert leader.broadcast() == [(3, [4, 5]), (5, [6, 7])]


def test_a_full_disk_is_sent_heartbeats_and_no_entries_while_a_majority_has_room() -> None:
    leader = Leader()
    full: set[str] = {"f"}
    leader.leading._membership.full_disks = full
    leader.append(4)
    assert (leader.broadcast(to="f"), leader.broadcast(to="g")) == ([], [])  # the second round has nothing new
    assert leader.broadcast(beat=True, to="f") == [(1, [])]
    leader.ack(4, node="g")
    assert leader.broadcast(to="g") == [(3, [4, 5])]
    full.clear()
    assert leader.broadcast(to="f") == [(1, [2, 3])]


@pytest.mark.parametrize(
    ("peers", "full", "sent"),
    [
        ("fg", "", "fg"),
        ("fg", "g", "f"),
        ("fg", "fg", "fg"),  # without them no majority is left
        ("fghi", "hi", "fg"),
        ("fghi", "ghi", "fghi"),
    ],
)
def test_entries_go_to_full_disks_only_where_a_majority_needs_them(peers: str, full: str, sent: str) -> None:
    leader = Leader(peers)
    leader.leading._membership.full_disks = set(full)
    leader.append(1)
    leader.broadcast()
    assert "".join(node for node, message in leader.sent if message.entries) == sent


@pytest.mark.parametrize(("lacks", "sent"), [(IN_SYNC_ENTRIES_MAX, []), (IN_SYNC_ENTRIES_MAX + 1, [2, 3])])
def test_a_full_disk_is_sent_entries_while_the_voter_that_spares_it_is_far_behind(lacks: int, sent: list[int]) -> None:
    leader = Leader()
    leader.leading._membership.full_disks = {"f"}
    leader.append(lacks)
    assert leader.broadcast() == ([(1, sent)] if sent else [])


def test_a_full_disk_is_sent_entries_while_the_voter_that_spares_it_needs_a_checkpoint() -> None:
    """However few it lacks: entries may be large."""
    leader = Leader()
    leader.leading._membership.full_disks = {"f"}
    leader.append(3)
    leader.journal.checkpointed(3)
    leader.journal.compact(3)
    leader.leading.followers["f"].next_index = 4
    assert leader.leading.out_of_sync(4) == ["g"]
    assert leader.broadcast() == [(3, [4])]
    leader.leading.followers["f"].rewind(4, 0)
    leader.leading.followers["g"].next_index = 4
    assert leader.broadcast() == []


def test_the_transferee_is_sent_the_entries_that_it_lacks_although_its_disk_is_full() -> None:
    leader = Leader()
    full = leader.leading._membership.full_disks = {"f"}
    leader.append(2)
    leader.leading.followers["f"].matched(2)
    assert leader.broadcast() == []
    leader.leading.transfer_to("f", "fg")
    assert leader.leading.transferee_is_near(0.0)
    assert leader.broadcast() == [(2, [3])]
    leader.ack(4)
    leader.leading.push_transferee(3, 10.0)
    assert leader.sent[-1] == ("f", TimeoutNow(1))
    leader.leading.transferee = None  # it did not take over in time
    leader.append(1)
    assert leader.broadcast() == []
    assert full == {"f"}


def test_the_check_whether_the_transferee_is_near_reads_no_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked with each ack while the transferee catches up."""
    leader = Leader()
    leader.append(5)
    transferee = leader.leading.followers["f"]
    leader.leading.transferee = "f"
    found: list[bool] = []
    monkeypatch.setattr(leader.bench.wal, "read", lambda _: pytest.fail("it reads the disk"))
    monkeypatch.setattr(leader.bench.wal, "size", lambda _: 2)
    for transferee.match_index in (3, 4, 6):
        transferee.probing = False
        found.append(leader.leading.transferee_is_near(0.0))
    assert found == [False, True, True]  # a message has four bytes


def test_a_follower_whose_log_ends_far_behind_is_out_of_sync_in_a_new_term() -> None:
    leader = Leader("f")
    leader.append(2 * IN_SYNC_ENTRIES_MAX)
    late = LeaderState(leader.journal, leader.leading._membership, SETTINGS, leader._send, 0.0)
    late.broadcast(1, 0.0)
    assert late.out_of_sync(leader.journal.last_index) == []
    late.answered("f", AppendAck(1, False, 5, 1), 1.0)
    assert late.out_of_sync(leader.journal.last_index) == ["f"]


@pytest.mark.parametrize("more, messages", [(FEW_ENTRIES - 1, 0), (FEW_ENTRIES, 1)])
def test_few_entries_wait_for_the_answer_and_go_together(more: int, messages: int) -> None:
    leader = Leader(settings=RaftSettings())
    leader.append(1)
    leader.broadcast()
    leader.ack(3)
    leader.append(1)
    assert leader.broadcast() == [(2, [3])]
    leader.append(more)
    assert len(leader.broadcast()) == messages
    leader.ack(4)
    assert len(leader.broadcast()) == 1 - messages


@pytest.mark.parametrize("size, messages", [(FEW_BYTES - 1, 0), (FEW_BYTES, 1)])
def test_a_single_entry_does_not_wait_behind_many_bytes(size: int, messages: int) -> None:
    leader = Leader(settings=RaftSettings())
    leader.append(1)
    leader.broadcast()
    leader.ack(3)
    leader.journal.add(b"\x00" * size, 3, 1)
    leader.broadcast()
    leader.append(1)
    assert len(leader.broadcast()) == messages


def test_the_window_bounds_the_messages_in_flight() -> None:
    leader = Leader()
    leader.append(20)
    leader.broadcast()
    leader.ack(4)
    assert leader.broadcast() == [(3, [4, 5]), (5, [6, 7])]
    assert leader.broadcast() == []
    leader.ack(6)
    assert leader.broadcast() == [(7, [8, 9])]


def test_the_window_bounds_the_bytes_in_flight() -> None:
    leader = Leader(settings=RaftSettings(message_bytes_max=4, window_bytes_max=51, entry_bytes_max=50))
    leader.append(100)
    leader.broadcast()
    leader.ack(4)
    messages = len(leader.broadcast())
    while leader.leading.has_more:
        messages += len(leader.broadcast())
    assert messages == 13  # the thirteenth message of 4 bytes passes 51


def test_a_turn_of_the_loop_reads_few_messages_and_says_that_there_are_more() -> None:
    """A window of 64 messages with 1,024 entries each took a quarter of a second, in which nothing else ran."""
    leader = Leader(settings=RaftSettings(message_bytes_max=4, entry_bytes_max=50))
    leader.append(20)
    leader.broadcast()
    for node in ("f", "g"):
        leader.ack(4, node=node)
    sent = leader.broadcast()
    assert (sent, leader.leading.has_more) == ([(3, [4, 5]), (5, [6, 7])], True)
    to_other = [m.prev_index for node, m in leader.sent if node == "g" and isinstance(m, AppendEntries)]
    assert to_other == [3, 5]  # the very same messages count once
    assert (leader.broadcast(), leader.leading.has_more) == ([(7, [8, 9]), (9, [10, 11])], True)
    assert leader.broadcast() == [(11, [12, 13]), (13, [14, 15])]
    assert (leader.broadcast(), leader.leading.has_more) == ([], False)  # the few that are left wait for an answer


def test_a_follower_that_catches_up_does_not_delay_one_that_keeps_up() -> None:
    """Or else nothing is committed while the first one, with another one away, is filled."""
    leader = Leader(settings=RaftSettings(message_bytes_max=4, entry_bytes_max=50))
    leader.append(200)
    leader.broadcast()
    leader.ack(202, node="g")
    leader.ack(4, node="f")
    for index in range(202, 210):
        leader.append(1)
        assert leader.broadcast(to="g") == [(index - 1, [index])]
        assert [node for node, _ in leader.sent].count("f") == 2
        leader.ack(index + 1, node="g")


def test_a_full_connection_leaves_no_work_for_this_turn() -> None:
    leader = Leader(settings=RaftSettings(message_bytes_max=4, entry_bytes_max=50))
    leader.append(20)
    leader.broadcast()
    for node in ("f", "g"):
        leader.ack(4, node=node)
    leader.is_full = True
    assert (leader.broadcast(), leader.leading.has_more) == ([], False)


def test_followers_at_the_same_place_get_the_same_message() -> None:
    leader = Leader()
    leader.append(2)
    leader.broadcast(beat=True)
    first, second, third, fourth = (message for _, message in leader.sent)
    assert (first is second, third is fourth, leader.leading.round) == (True, True, 2)


def test_a_refusal_rewinds_once_for_all_that_was_in_flight() -> None:
    leader = Leader()
    leader.append(10)
    leader.broadcast()
    leader.ack(4)
    leader.broadcast()
    leader.ack(5, success=False)
    follower = leader.leading.followers["f"]
    assert (follower.next_index, follower.probing) == (5, True)
    assert leader.broadcast() == [(4, [5, 6])]
    leader.ack(5, success=False, round_=leader.leading.round - 1)
    assert follower.next_index == 5


def test_a_refusal_that_names_the_same_place_again_skips_the_leaders_own_run() -> None:
    journal = SimulatedLog("1122", founding_configuration({"me": DISK, "f": DISK})).log
    journal.setCurrentTerm(3, "me")
    sent: list[int] = []

    def send(_: str, message: AppendEntries | Commit | Offer | TimeoutNow) -> bool:
        assert isinstance(message, AppendEntries)
        sent.append(message.prev_index)
        return True

    leading = LeaderState(journal, members(journal, "f"), SETTINGS, send, 0.0)
    leading.broadcast(1, 0.0)
    assert sent == [5]
    leading.answered("f", AppendAck(3, False, 6, leading.round), 0.0)
    assert leading.followers["f"].next_index == 4


def test_entries_that_the_connection_refused_are_sent_at_the_next_broadcast() -> None:
    leader = Leader()
    leader.append(2)
    leader.is_full = True
    assert leader.broadcast() == []
    leader.is_full = False
    assert leader.broadcast() == [(1, [2, 3])]


def test_a_heartbeat_that_is_answered_replaces_a_probe_that_was_dropped() -> None:
    leader = Leader()
    leader.append(2)
    leader.broadcast()
    assert leader.broadcast(beat=True) == [(1, [])]
    leader.ack(2)
    assert leader.broadcast() == [(1, [2, 3])]


def test_a_lost_connection_empties_the_window_and_probes_again() -> None:
    leader = Leader()
    leader.append(8)
    leader.broadcast()
    leader.ack(4)
    leader.broadcast()
    leader.leading.disconnected("f")
    assert leader.broadcast(beat=True) == []
    leader.leading.connected("f", DISK, 6.0)
    assert leader.broadcast() == [(3, [4, 5])]


def test_a_follower_that_comes_back_with_another_disk_has_nothing() -> None:
    """As what it had counted for a promotion, it would be a voter again with an empty disk."""
    leader = Leader()
    leader.append(2)
    leader.broadcast()
    leader.ack(4)
    assert leader.leading.followers["f"].match_index == 3
    leader.leading.disconnected("f")
    assert leader.leading.followers["f"].match_index == 3
    leader.leading._membership.peers["f"] = DISK + 1
    leader.leading.connected("f", DISK + 1, 0.0)
    again = leader.leading.followers["f"]
    assert (again.match_index, again.probing, again.counts) == (0, True, False)


def test_a_follower_that_lost_acked_entries_lowers_its_match_index(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    leader.append(3)
    leader.broadcast()
    leader.ack(5)
    leader.broadcast(beat=True)
    leader.ack(3, success=False)
    follower = leader.leading.followers["f"]
    assert (follower.match_index, follower.next_index, follower.probing) == (2, 3, True)
    assert "f has lost entries 3 to 4 that it had on disk" in caplog.text


def test_the_leader_counts_itself_only_up_to_its_own_disk() -> None:
    leader = Leader()
    leader.append(3)
    leader.broadcast()
    leader.ack(4)
    assert leader.leading.majority_index() == 1
    leader.ack(4, node="g")
    assert leader.leading.majority_index() == 3
    for _ in range(2):
        leader.bench.sync()
    assert leader.leading.majority_index() == 3


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("f", [2, 3, 4])
@pytest.mark.parametrize("g", [2, 3, 4])
def test_the_majority_index_of_three_is_the_middle_one(f: int, g: int, durable: bool) -> None:
    leader = Leader(settings=RaftSettings())
    leader.append(3)
    leader.broadcast()
    leader.ack(f + 1)
    leader.ack(g + 1, node="g")
    while durable and leader.bench.syncs:
        leader.bench.sync()
    here = leader.journal.durable_index
    assert here == (4 if durable else 1)
    assert leader.leading.majority_index() == sorted([f, g, here])[1]
    assert leader.leading.waits_for_disk() == (max(f, g) > here), "one follower and this disk are a majority"


def test_the_last_entry_is_one_message_for_all_that_lack_it_alone() -> None:
    leader = Leader()
    leader.append(2)
    leader.broadcast()
    for node in "fg":
        leader.ack(4, node=node)
    leader.append(1)
    assert leader.broadcast() == [(3, [4])]
    (_, first), (_, second) = leader.sent
    assert first is second, "it is encoded once"
    assert leader.broadcast() == [], "it is under way"
    leader.ack(5)
    leader.append(1)
    assert (leader.broadcast(to="f"), leader.broadcast(to="g")) == ([(4, [5])], []), "g has not answered"


def test_has_more_is_false_once_no_message_can_be_sent() -> None:
    leader = Leader(settings=RaftSettings(message_bytes_max=2, window_messages_max=9, entry_bytes_max=2))
    leader.append(1)
    leader.broadcast()
    leader.ack(3)
    leader.append(TURN_MESSAGES_MAX + FEW_ENTRIES + 1)
    leader.leading._notice_s = inf  # as in a stream
    leader.broadcast()
    assert leader.leading.has_more
    for node in "fg":
        leader.leading.disconnected(node)
    leader.broadcast()
    assert not leader.leading.has_more, "or progress would be called for ever"


def test_a_group_of_one_waits_for_its_disk() -> None:
    leader = Leader(peers="")
    leader.append(2)
    assert leader.leading.majority_index() == 1
    for _ in range(2):
        leader.bench.sync()
    assert leader.leading.majority_index() == 3


def test_a_round_is_answered_by_a_majority_with_the_leader() -> None:
    leader = Leader(peers="abcd")
    leader.broadcast(beat=True)
    assert leader.leading.majority_round() == 0
    leader.ack(2, node="a")
    assert leader.leading.majority_round() == 0
    leader.ack(2, node="b")
    assert leader.leading.majority_round() == leader.leading.round
    assert leader.leading.majority_contact() == 5.0


@pytest.mark.parametrize(
    ("sent_at", "contact", "connected", "due"),
    [(7.0, 8.0, True, 7.5), (8.0, 7.0, True, 7.5), (7.0, 6.0, False, 9.5)],
)
def test_a_heartbeat_is_due_when_a_connected_follower_was_sent_or_answered_nothing_for_a_period(
    sent_at: float, contact: float, connected: bool, due: float
) -> None:
    leader = Leader()
    for follower in leader.leading.followers.values():
        follower.sent_at = follower.contact = 9.0
    first = leader.leading.followers["f"]
    first.sent_at, first.contact, first.connected = sent_at, contact, connected
    assert leader.leading.quiet_at(0.5) == due


@pytest.mark.parametrize(
    ("silent", "incarnation", "puts_off"), [(False, DISK, True), (True, DISK, False), (False, DISK + 1, False)]
)
def test_a_heartbeat_is_put_off_while_all_followers_count_and_answer(
    silent: bool, incarnation: int, puts_off: bool
) -> None:
    leader = Leader()
    leader.broadcast()
    leader.leading._membership.peers["f"] = incarnation
    leader.leading.connected("f", incarnation, 8.0)
    for follower in leader.leading.followers.values():
        follower.sent_at = follower.contact = 9.0
    leader.leading.followers["g"].contact = 0.0 if silent else 9.0
    due = leader.leading.beat_at
    assert leader.leading.puts_off_beat(9.01) == puts_off, "a leader that no majority can follow must step down"
    assert (leader.leading.beat_at > due) == puts_off


@pytest.mark.parametrize(("size", "few"), [(FEW_BYTES - 1, True), (FEW_BYTES, False)])
def test_an_entry_of_many_bytes_does_not_wait_for_others(size: int, few: bool) -> None:
    leader = Leader(settings=RaftSettings())
    leader.append(1)
    leader.broadcast()
    for node in "fg":
        leader.ack(3, node=node)
    leader.append(1)
    leader.broadcast()
    leader.journal.add(bytes(size), 4, 1)
    assert len(leader.broadcast()) == (0 if few else 1), "little waits for the answer to what went before"


def test_the_lag_of_a_follower_that_never_answered_counts_the_entries_of_this_term() -> None:
    leader = Leader()
    leader.append(5)
    leader.broadcast()
    assert leader.leading.lags(6) == {"f": 5, "g": 5}
    leader.ack(4)
    assert leader.leading.lags(6) == {"f": 3, "g": 5}


@pytest.mark.parametrize("lag, out", [(IN_SYNC_ENTRIES_MAX, []), (IN_SYNC_ENTRIES_MAX + 1, ["f"])])
def test_a_follower_is_in_sync_up_to_a_number_of_entries_behind(lag: int, out: list[str]) -> None:
    leader = Leader("f")
    leader.append(lag + 5)
    leader.broadcast()
    leader.ack(4)
    assert leader.leading.out_of_sync(3 + lag) == out


def test_a_member_that_is_away_or_has_another_disk_or_is_no_voter_is_out_of_sync() -> None:
    leader = Leader()
    assert leader.leading.out_of_sync(1) == []
    leader.leading.disconnected("f")
    assert leader.leading.out_of_sync(1) == ["f"]
    leader.leading.connected("f", DISK, 0.0)
    assert leader.leading.out_of_sync(1) == []
    leader.leading.followers["f"].incarnation = DISK + 1
    assert leader.leading.out_of_sync(1) == ["f"]
    leader.leading.followers["g"].is_voter = False
    assert leader.leading.out_of_sync(1) == ["f", "g"]
