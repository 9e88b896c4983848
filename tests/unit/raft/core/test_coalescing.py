"""What goes to a node in one frame for many groups does what the same messages do alone."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.world import Setting, World

from stockade.raft.core.coalescing import SINCE_PROTOCOL, UNANSWERED_MAX, Coalescer
from stockade.raft.core.group import Committed
from stockade.raft.core.leader import FEW_BYTES
from stockade.raft.messages import (
    APPENDS_MAX,
    AckMany,
    AppendAck,
    AppendEntries,
    AppendMany,
    Commit,
    RaftMessage,
)
from stockade.raft.settings import RaftSettings

PEER = "n2"


def append(index: int, payload: bytes = b"\0x", term: int = 3) -> AppendEntries:
    return AppendEntries(term, index - 2, index - 1, term, index, [(index, term, payload)])


class FakeGroup:
    """Takes what it is told to take, and notes what comes."""

    def __init__(self, *, takes: bool = True, acks: bool = True) -> None:
        self.takes = takes
        self.acks = acks
        self.came: list[tuple[str, RaftMessage]] = []

    def receive(self, node_id: str, message: RaftMessage) -> None:
        self.came.append(("receive", message))

    def take(self, node_id: str, message: AppendEntries, now: float) -> bool:
        if self.takes:
            self.came.append(("take", message))
        return self.takes

    def taken_is_durable(self, node_id: str, message: AppendEntries, now: float) -> bool:
        self.came.append(("durable", message))
        return self.acks

    def acked(self, node_id: str, message: AppendEntries, now: float) -> None:
        self.came.append(("acked", message))


class Side:
    """A node's coalescer between groups that are faked and a connection to PEER that notes what is sent."""

    def __init__(self, groups: dict[int, FakeGroup] | None = None, *, protocol: int = SINCE_PROTOCOL) -> None:
        self.sent: list[tuple[int, object]] = []
        self.flushes = 0
        self.syncs: list[Callable[[], None]] = []
        self.is_full = False
        self._protocol = protocol
        self.coalescer = Coalescer(groups or {}, self._send, self, self._flush_soon)
        self.coalescer.up(PEER)

    def _send(self, group_id: int, node_id: str, message: object) -> bool:
        self.sent.append((group_id, message))
        return True

    def _flush_soon(self) -> None:
        self.flushes += 1

    def time(self) -> float:
        return 1.0

    def speaks(self, node_id: str, version: int) -> bool:
        return self._protocol >= version

    def log_is_full(self) -> bool:
        return self.is_full

    def wake_when_durable(self, wake: Callable[[], None]) -> None:
        self.syncs.append(wake)

    def post(self, *messages: tuple[int, RaftMessage]) -> None:
        for group_id, message in messages:
            assert self.coalescer.post(group_id, PEER, message)


def test_entries_of_a_turn_for_many_groups_are_one_frame() -> None:
    side = Side()
    side.post((1, append(5)), (2, append(9)), (3, append(7)))
    assert side.sent == []
    assert side.flushes == 1
    side.coalescer.flush()
    assert side.sent == [(0, AppendMany(1, [(1, append(5)), (2, append(9)), (3, append(7))]))]


def test_the_next_turn_is_the_next_frame() -> None:
    side = Side()
    for turn in range(2):
        side.post((1, append(5 + turn)), (2, append(9 + turn)))
        side.coalescer.flush()
    assert [message.number for _, message in side.sent if isinstance(message, AppendMany)] == [1, 2]


@pytest.mark.parametrize("differs", [False, True])
def test_nodes_that_get_the_same_entries_get_the_very_same_frame(differs: bool) -> None:
    side = Side()
    side.coalescer.up("n3")
    for node_id in (PEER, "n3"):
        for group_id in (1, 2):
            entry = append(5, b"\0y") if differs and node_id == PEER and group_id == 2 else append(5)
            assert side.coalescer.post(group_id, node_id, entry)
    side.coalescer.flush()
    (_, first), (_, second) = side.sent
    assert isinstance(first, AppendMany)
    assert isinstance(second, AppendMany)
    assert first.appends[1][1].entries == [(5, 3, b"\0y" if differs else b"\0x")]
    assert second.appends[1][1].entries == [(5, 3, b"\0x")]
    assert (first is second) == (not differs), "it is encoded once"
    assert first.number == second.number or differs


def test_a_single_append_of_a_turn_is_sent_as_an_append_entries() -> None:
    side = Side()
    side.post((1, append(5)))
    side.coalescer.flush()
    assert side.sent == [(1, append(5))]


def test_a_node_of_the_previous_release_gets_every_message_alone_and_at_once() -> None:
    side = Side(protocol=SINCE_PROTOCOL - 1)
    side.post((1, append(5)), (2, append(9)))
    assert side.sent == [(1, append(5)), (2, append(9))]


@pytest.mark.parametrize(
    "message",
    [
        Commit(3, 4),
        AppendAck(3, True, 5, 5),
        AppendEntries(3, 4, 4, 3, 5, []),
        AppendEntries(3, 3, 4, 2, 5, [(5, 2, b"of an older term")]),
        AppendEntries(3, 4, 4, 3, 5, [(5, 3, b"\0x"), (6, 3, b"\0y")]),
        append(5, bytes(FEW_BYTES)),
    ],
    ids=["commit", "ack", "heartbeat", "older term", "two entries", "large"],
)
def test_a_message_with_other_than_one_small_entry_of_its_own_term_is_sent_at_once(message: RaftMessage) -> None:
    side = Side()
    side.post((1, message))
    assert side.sent == [(1, message)]


def test_the_messages_of_a_group_keep_their_order() -> None:
    side = Side()
    side.post((1, append(5)), (2, append(9)), (3, Commit(3, 4)), (1, Commit(3, 4)), (2, append(10)))
    side.coalescer.flush()
    frame = AppendMany(1, [(1, append(5)), (2, append(9))])
    assert side.sent == [(3, Commit(3, 4)), (0, frame), (1, Commit(3, 4)), (2, append(10))]


def test_a_frame_has_no_more_messages_than_the_bound() -> None:
    side = Side()
    side.post(*[(group_id, append(5)) for group_id in range(APPENDS_MAX + 2)])
    side.coalescer.flush()
    assert [len(each.appends) for _, each in side.sent if isinstance(each, AppendMany)] == [APPENDS_MAX, 2]


def test_beyond_the_bound_of_unanswered_frames_messages_go_alone() -> None:
    side = Side()
    for turn in range(UNANSWERED_MAX + 1):
        side.post((1, append(5 + turn)), (2, append(9 + turn)))
        side.coalescer.flush()
    assert sum(isinstance(each, AppendMany) for _, each in side.sent) == UNANSWERED_MAX
    assert side.sent[-2:] == [(1, append(5 + UNANSWERED_MAX)), (2, append(9 + UNANSWERED_MAX))]


def test_acks_that_are_lost_now_and_then_never_end_the_gathering_on_a_connection() -> None:
    """Each of them took a place for as long as the connection lasted."""
    side = Side({1: FakeGroup(), 2: FakeGroup()})
    for turn in range(2 * UNANSWERED_MAX + 2):
        side.post((1, append(5 + turn)), (2, append(9 + turn)))
        side.coalescer.flush()
        if turn % 2:
            side.coalescer.acked(PEER, AckMany(turn + 1, []))
    assert all(isinstance(each, AppendMany) for _, each in side.sent)


def test_a_frame_is_acked_once_and_after_the_disk() -> None:
    groups = {1: FakeGroup(), 2: FakeGroup()}
    side = Side(groups)
    side.coalescer.take(PEER, AppendMany(7, [(1, append(5)), (2, append(9))]))
    assert side.sent == []
    side.syncs.pop()()
    assert side.sent == [(0, AckMany(7, []))]
    assert groups[2].came == [("take", append(9)), ("durable", append(9))]


def test_an_append_that_a_group_does_not_coalesce_is_received_alone_and_left_out_of_the_ack_of_its_frame() -> None:
    groups = {1: FakeGroup(takes=False), 2: FakeGroup(), 3: FakeGroup(acks=False)}
    side = Side(groups)
    side.coalescer.take(PEER, AppendMany(7, [(1, append(5)), (9, append(2)), (2, append(9)), (3, append(6))]))
    side.syncs.pop()()
    assert groups[1].came == [("receive", append(5))]
    [(_, ack)] = side.sent
    assert isinstance(ack, AckMany)
    assert sorted(ack.silent) == [0, 1, 3], "group 9 is not here, group 3 has another leader by now"


def test_an_append_many_of_which_no_message_is_taken_is_acked_at_once() -> None:
    side = Side({1: FakeGroup(takes=False)})
    side.coalescer.take(PEER, AppendMany(7, [(1, append(5))]))
    assert side.sent == [(0, AckMany(7, [0]))]


def test_a_node_whose_log_is_full_takes_nothing() -> None:
    group = FakeGroup()
    side = Side({1: group})
    side.is_full = True
    side.coalescer.take(PEER, AppendMany(7, [(1, append(5))]))
    assert group.came == [("receive", append(5))], "which drops it, as it does when it comes alone"


def test_an_ack_counts_for_the_messages_of_its_frame_that_it_does_not_leave_out() -> None:
    groups = {1: FakeGroup(), 2: FakeGroup(), 3: FakeGroup()}
    side = Side(groups)
    side.post((1, append(5)), (2, append(9)), (3, append(7)))
    side.coalescer.flush()
    side.coalescer.acked(PEER, AckMany(1, [1]))
    assert [group.came for group in groups.values()] == [[("acked", append(5))], [], [("acked", append(7))]]


def test_an_ack_counts_once() -> None:
    groups = {1: FakeGroup(), 2: FakeGroup()}
    side = Side(groups)
    side.post((1, append(5)), (2, append(9)))
    side.coalescer.flush()
    for number in (1, 1, 2):
        side.coalescer.acked(PEER, AckMany(number, [99]))
    assert groups[1].came == [("acked", append(5))]


def test_messages_and_acks_of_a_broken_connection_do_not_count_on_the_next_one() -> None:
    groups = {1: FakeGroup(), 2: FakeGroup()}
    side = Side(groups)
    side.post((1, append(5)), (2, append(9)))
    side.coalescer.flush()
    side.coalescer.take(PEER, AppendMany(1, [(1, append(5))]))
    side.post((1, append(6)), (2, append(10)))
    side.sent.clear()
    side.coalescer.down(PEER)
    side.coalescer.up(PEER)
    side.coalescer.flush()
    side.syncs.pop()()
    side.coalescer.acked(PEER, AckMany(1, []))
    assert side.sent == []
    assert groups[2].came == []


# Real groups: the short ways do what ``receive`` does.


class Follower:
    """A follower that no other message reaches, and what it sends from now on; it has entries up to 5, of term 1."""

    def __init__(self, *, is_quiescent: bool, unsynced_bytes_max: int) -> None:
        raft = RaftSettings(
            election_timeout_ms_min=30_000, election_timeout_ms_max=60_000, unsynced_bytes_max=unsynced_bytes_max
        )
        self.world = World(1, Setting(raft=raft, bundles=True, coalescing=9))
        self.world.run_until(lambda: bool(self.world.leaders()), 90.0)
        [self.leader] = self.world.leaders()
        for command in (b"a", b"b", b"c"):
            self.world.group(self.leader).submit(command, 5.0, lambda _: None)
            self.world.run(0.05)
        if is_quiescent:
            self.world.run_until(lambda: all(self.world.group(each).is_quiescent for each in self.world.nodes), 30.0)
        self.name = next(each for each in self.world.nodes if each != self.leader)
        for pair in self.world.network.links:
            self.world.network.hold(*sorted(pair))
        self.group = self.world.group(self.name)
        self.sent: list[tuple[str, RaftMessage]] = []
        self.world.checker.check = lambda process: None  # type: ignore[method-assign]  # what comes now is made up
        self.world.network.on_sent = lambda source, target, _, message: (
            self.sent.append((target, message)) if source == self.name else None
        )

    def state(self) -> object:
        """All that a message can have changed."""
        node, log = self.group._node, self.group._node.log
        following = node._following
        entries = [(index, log.term_at(index), log.payload_at(index)) for index in range(2, log.last_index + 1)]
        known = node.term, node.leader, node.commit_index, node.applied_index, node.quiescence.is_quiescent
        return entries, known, following.verified_index, following._round, self.sent

    def after(self, message: AppendEntries, *, is_coalesced: bool) -> object:
        """The state after a message, and after the disk has synced."""
        if is_coalesced:
            frame = AppendMany(1, [(1, message)])
            connection = self.world.network.link(self.leader, self.name).connection
            assert connection is not None
            connection.many[self.name, 1] = frame
            self.world.processes[self.name].coalescer.take(self.leader, frame)
        else:
            self.group.receive(self.leader, message)
        self.world.run(0.1)
        return self.state()


@st.composite
def messages(draw: st.DrawFn) -> AppendEntries:
    """From the leader of term 1, whose log has entries 2 to 5, or of another term."""
    term = draw(st.sampled_from([0, 1, 1, 1, 2]))
    prev_index = draw(st.integers(5 if term > 1 else 3, 7))  # a leader contradicts nothing that is committed
    prev_term = draw(st.sampled_from([1, term])) if prev_index > 5 else 1
    commands = {4: b"\0b", 5: b"\0c"}
    payload = commands.get(prev_index + 1) if term <= 1 else None
    commit_index, round_ = draw(st.integers(2, 9)), draw(st.integers(20, 50))  # a later round
    entry = prev_index + 1, term if payload is None else 1, payload or b"\0new"
    return AppendEntries(term, commit_index, prev_index, prev_term, round_, [entry])


@given(messages(), st.booleans(), st.sampled_from([1, 1 << 20]))
@settings(max_examples=40, deadline=None)
def test_a_follower_is_the_same_whether_an_entry_came_alone_or_with_others(
    message: AppendEntries, is_quiescent: bool, unsynced_bytes_max: int
) -> None:
    both = [
        Follower(is_quiescent=is_quiescent, unsynced_bytes_max=unsynced_bytes_max).after(message, is_coalesced=way)
        for way in (False, True)
    ]
    assert both[0] == both[1]


def test_take_stores_an_entry_that_follows_the_log() -> None:
    follower = Follower(is_quiescent=False, unsynced_bytes_max=1 << 20)
    assert follower.group.take(follower.leader, append(6, term=1), follower.world.now)
    assert follower.group._node.log.last_index == 6
    assert follower.sent == []


@pytest.mark.parametrize(
    ("message", "sender"),
    [
        (AppendEntries(1, 5, 5, 0, 9, [(6, 1, b"\0x")]), None),
        (AppendEntries(1, 5, 6, 1, 9, [(7, 1, b"\0x")]), None),
        (AppendEntries(1, 5, 4, 1, 9, [(5, 1, b"\0c")]), None),
        (AppendEntries(2, 5, 5, 1, 9, [(6, 2, b"\0x")]), None),
        (append(6, term=1), "another"),
    ],
    ids=["another term before it", "a gap", "known already", "a new term", "not the leader"],
)
def test_take_refuses_an_entry_that_needs_a_check(message: AppendEntries, sender: str | None) -> None:
    follower = Follower(is_quiescent=False, unsynced_bytes_max=1 << 20)
    assert not follower.group.take(sender or follower.leader, message, follower.world.now)
    assert follower.group._node.log.last_index == 5


def test_an_entry_that_take_stored_is_not_acked_after_a_change_of_leader() -> None:
    follower = Follower(is_quiescent=False, unsynced_bytes_max=1 << 20)
    [other] = set(follower.world.nodes) - {follower.leader, follower.name}
    coalescer = follower.world.processes[follower.name].coalescer
    frames: list[object] = []

    def send(group_id: int, node_id: str, message: object) -> bool:
        frames.append(message)
        return True

    coalescer._send = send
    coalescer.take(follower.leader, AppendMany(1, [(1, append(6, term=1))]))
    follower.group.receive(other, AppendEntries(2, 5, 5, 1, 1, [(6, 2, b"\x01")]))
    follower.world.run(0.1)
    assert [each for each in frames if isinstance(each, AckMany)] == [AckMany(1, [0])]


@pytest.mark.parametrize("is_coalesced", [False, True])
def test_an_ack_many_commits_as_an_append_ack_does(is_coalesced: bool) -> None:
    follower = Follower(is_quiescent=False, unsynced_bytes_max=1 << 20)
    world, leader = follower.world, follower.leader
    outcomes: list[object] = []
    world.group(leader).submit(b"new", 5.0, outcomes.append)
    world.run(0.02)
    leading = world.group(leader)._node.leading
    assert leading is not None
    round_ = leading.round
    sent = AppendEntries(1, 5, 5, 1, round_, world.group(leader)._node.log.read(6, 1 << 20))
    assert world.group(leader).commit_index == 5
    if is_coalesced:
        world.group(leader).acked(follower.name, sent, world.now)
    else:
        world.group(leader).receive(follower.name, AppendAck(1, True, 7, round_))
    world.run(0.02)
    progress = leading.followers[follower.name]
    assert (progress.match_index, progress.next_index, progress.round) == (6, 7, round_)
    assert outcomes == [Committed(6, 1, (6, b"new"))]


def test_an_ack_of_an_earlier_term_of_this_leader_is_ignored() -> None:
    follower = Follower(is_quiescent=False, unsynced_bytes_max=1 << 20)
    group = follower.world.group(follower.leader)
    leading = group._node.leading
    assert leading is not None
    before = leading.followers[follower.name].match_index, leading.followers[follower.name].round
    group.acked(follower.name, append(5, term=0), follower.world.now)
    assert (leading.followers[follower.name].match_index, leading.followers[follower.name].round) == before


def test_an_ack_many_wakes_a_quiescent_leader() -> None:
    follower = Follower(is_quiescent=True, unsynced_bytes_max=1 << 20)
    group = follower.world.group(follower.leader)
    assert group.is_quiescent
    group.acked(follower.name, append(5, term=1), follower.world.now)
    assert not group.is_quiescent


def test_real_groups_commit_by_one_frame_a_follower_and_one_ack(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(3, Setting(groups=2, bundles=True, coalescing=9, raft=RaftSettings(heartbeat_ms=200)))
    world.run_until(lambda: all(world.leaders(group_id) for group_id in (1, 2)), 30.0)
    world.run(0.5)
    frames: list[object] = []
    send = world.network.send

    def spy(source: str, target: str, group_id: int, frame: Any) -> bool:
        frames.append(frame)
        return send(source, target, group_id, frame)

    monkeypatch.setattr(world.network, "send", spy)
    outcomes: list[object] = []
    for group_id in (1, 2):
        [leader] = world.leaders(group_id)
        world.group(leader, group_id).submit(b"%d" % group_id, 5.0, outcomes.append)
    world.run_until(lambda: len(outcomes) == 2)
    assert not any(isinstance(frame, AppendEntries) and frame.entries for frame in frames)
    kinds = [type(frame) for frame in frames]
    assert kinds.count(AppendMany) >= kinds.count(AckMany) >= 1
