"""What a leader does for followers that lack much: it offers checkpoints, and promotes learners that have caught up."""

from dataclasses import replace

import pytest

from stockade.raft.core.leader import IN_SYNC_ENTRIES_MAX
from stockade.raft.log.configuration import Configuration, Promote, founding_configuration
from stockade.raft.messages import Offer
from stockade.raft.settings import RaftSettings

from .leading import DISK, SETTINGS, Leader


def test_a_follower_behind_the_compacted_log_is_offered_the_checkpoint_with_every_heartbeat() -> None:
    leader = Leader()
    leader.append(5)
    leader.journal.checkpointed(4)
    leader.journal.compact(4)
    leader.broadcast(beat=True)
    leader.ack(2, success=False)
    leader.leading.broadcast(1, 0.0)
    leader.sent.clear()
    for _ in range(2):
        leader.leading.beat_is_wanted = True
        leader.leading.broadcast(4, 0.0)
    offers = [message for node, message in leader.sent if node == "f"]
    assert offers == [Offer(1, 4, 4, 1, message.round) for message in offers]
    assert len(offers) == 2


def test_the_ack_of_an_offer_sets_next_index() -> None:
    leader = Leader()
    leader.append(5)
    leader.journal.checkpointed(4)
    leader.journal.compact(4)
    follower = leader.leading.followers["f"]
    leader.broadcast(beat=True)
    for answered, next_index in [(2, 2), (3, 3), (5, 5)]:
        leader.ack(answered, success=False)
        assert (follower.next_index, follower.round) == (next_index, leader.leading.round)
        leader.broadcast(beat=True)
    assert leader.broadcast() == []
    leader.ack(5)
    assert (follower.match_index, follower.probing) == (4, False)


def test_the_ack_of_an_offer_that_arrives_after_a_newer_ack_lowers_no_match_index(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The follower had entries that were not on its disk yet when the offers came."""
    leader = Leader()
    leader.append(5)
    leader.journal.checkpointed(4)
    leader.journal.compact(4)
    follower = leader.leading.followers["f"]
    leader.broadcast(beat=True)
    leader.ack(2, success=False)
    for _ in range(2):
        leader.broadcast(beat=True)
    offered = leader.leading.round
    leader.ack(2, success=False, round_=offered - 1)
    leader.broadcast(beat=True)
    leader.ack(6)
    leader.ack(2, success=False, round_=offered + 1)
    assert (follower.match_index, follower.next_index, follower.probing) == (5, 6, False)
    assert caplog.text == ""
    leader.broadcast(beat=True)
    leader.ack(5, success=False)
    assert "f has lost entries 5 to 5 that it had on disk" in caplog.text, "which an answer to a heartbeat still tells"


def changed_to(leader: Leader, configuration: Configuration) -> None:
    leader.journal.add(configuration.entry(), leader.journal.last_index + 1, 1)
    leader.leading.reconfigure(5.0)


def test_an_ack_from_before_a_node_left_does_not_count_for_its_new_membership() -> None:
    leader = Leader()
    leader.append(2)
    leader.broadcast()
    leader.ack(4)
    leader.append(8)
    leader.broadcast()
    late = leader.leading.round
    changed_to(leader, founding_configuration({"me": DISK, "g": DISK}))
    changed_to(leader, Configuration({"me": DISK, "g": DISK}, {"f": DISK}))
    leader.ack(6, round_=late)
    assert leader.leading.followers["f"].match_index == 0
    assert leader.leading.next_change() is None


def test_a_learner_is_promoted_when_the_entries_that_it_lacks_fit_in_one_message() -> None:
    leader = Leader(peers="f")
    changed_to(leader, Configuration({"me": DISK}, {"f": DISK}))
    leader.append(4)
    leader.broadcast()
    leader.ack(3)
    assert leader.broadcast() == [(2, [3, 4])]
    assert leader.leading.next_change() is None
    leader.ack(5)
    assert leader.leading.next_change() == Promote("f")


@pytest.mark.parametrize(("round_s", "window", "promoted"), [(0.5, 32, True), (0.7, 32, False), (0.5, 31, False)])
def test_a_learner_that_always_lacks_more_than_one_message_is_promoted_when_its_rounds_are_quick(
    round_s: float, window: int, promoted: bool
) -> None:
    """As on a link of 20 ms under 50 MB/s: Raft promotes by rounds of at most an election timeout."""
    leader = Leader(peers="f", settings=replace(SETTINGS, window_bytes_max=window))
    changed_to(leader, Configuration({"me": DISK}, {"f": DISK}))
    follower = leader.leading.followers["f"]
    leader.append(8)
    leader.broadcast()
    acked = 3
    for now in (1.0, 1.1):  # the first round holds all that there is, and is not over yet
        leader.append(8)
        leader.leading.acked("f", acked, leader.leading.round, now)
        assert leader.leading.next_change() is None
        acked += 2
    leader.leading.acked("f", 17, leader.leading.round, 1.0 + round_s / 2)
    assert leader.leading.next_change() is None
    leader.append(8)
    leader.leading.acked("f", 18, leader.leading.round, 1.0 + round_s)
    assert (leader.leading.next_change() == Promote("f")) == promoted
    leader.leading.disconnected("f")
    leader.leading.connected("f", DISK, 1.0)
    follower.matched(follower.match_index)
    assert leader.leading.next_change() is None, "it begins anew"


def test_a_learner_whose_disk_hangs_after_a_quick_round_keeps_up_no_more() -> None:
    """It answered heartbeats, so it was promoted, or as transferee delayed proposals, though it stored nothing."""
    leader = Leader(peers="f", settings=replace(SETTINGS, window_bytes_max=32))
    changed_to(leader, Configuration({"me": DISK}, {"f": DISK}))
    leader.append(8)
    leader.broadcast()
    for now in (1.0, 1.1):
        leader.leading.acked("f", 10, leader.leading.round, now)
    leader.append(8)
    leader.leading.acked("f", 10, leader.leading.round, 1.2)
    assert leader.leading.next_change() == Promote("f")
    for now in (1.5, 1.7):
        leader.leading.acked("f", 10, leader.leading.round, now)
        assert leader.leading.next_change() == Promote("f")
    leader.leading.acked("f", 10, leader.leading.round, 1.9)
    assert leader.leading.next_change() is None


def test_a_transferee_that_always_lacks_more_than_one_message_is_near_when_its_rounds_are_quick() -> None:
    """Under load, on a long link, transfers timed out, since proposals go on until the transferee is near."""
    leader = Leader(peers="f")
    leader.append(8)
    leader.broadcast()
    transferee = leader.leading.followers["f"]
    transferee.keeps_up, transferee.goal = True, 5  # as it did as a learner
    leader.leading.transfer_to("f", "f")
    for now, index in [(1.0, 3), (1.2, 5)]:
        leader.leading.acked("f", index, leader.leading.round, now)
        assert not leader.leading.transferee_is_near(now)
    leader.append(8)
    leader.leading.acked("f", transferee.goal, leader.leading.round, 1.4)
    assert leader.leading.transferee_is_near(1.4)
    leader.append(8)
    leader.leading.acked("f", transferee.goal, leader.leading.round, 2.4)
    assert not leader.leading.transferee_is_near(2.4)


def test_a_learner_is_promoted_only_when_it_has_the_configuration_that_names_it() -> None:
    leader = Leader(peers="f", settings=RaftSettings())
    leader.append(1)
    changed_to(leader, Configuration({"me": DISK}, {"f": DISK}))
    leader.broadcast()
    leader.ack(3)
    assert leader.leading.next_change() is None
    leader.ack(4)
    assert leader.leading.next_change() == Promote("f")


@pytest.mark.parametrize(
    ("peers", "leaves", "full", "lacks", "away", "needed"),
    [
        ("fg", "g", "f", "f", "", ("f",)),
        ("fg", "g", "f", "", "", ()),
        ("fg", "g", "", "f", "", ()),
        ("fg", "f", "f", "f", "", ()),
        ("fgh", "h", "f", "f", "", ()),
        ("fgh", "h", "f", "f", "g", ("f",)),
        ("fgh", "h", "fg", "fg", "", ("f", "g")),
        ("fg", "me", "f", "f", "", ("f",)),
    ],
)
def test_needs_room_without_names_the_full_disks_that_a_removal_would_make_commits_wait_for(
    peers: str, leaves: str, full: str, lacks: str, away: str, needed: tuple[str, ...]
) -> None:
    leader = Leader(peers)
    leader.append(IN_SYNC_ENTRIES_MAX + 1)
    leader.leading._membership.full_disks = set(full)
    for name, follower in leader.leading.followers.items():
        follower.next_index = 2 if name in lacks else leader.journal.last_index + 1
    for name in away:
        leader.leading.disconnected(name)
    assert leader.leading.needs_room_without(leaves) == needed
