"""A group's promises to the floors above, in a simulated cluster."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from itertools import count
from typing import Any

import pytest
from simulation.checkpoints import NOWHERE, Checkpoint
from simulation.world import Call, Setting, World

from stockade.raft.core.group import Committed, Group, NotLeader, Outcome, Overloaded, Rejected, Unknown
from stockade.raft.messages import AppendAck, AppendEntries, PreVote, RaftMessage
from stockade.raft.settings import RaftSettings

NUMBERS = count()


def started(nodes: int = 3, raft: RaftSettings | None = None, *, bundles: bool = False) -> tuple[World, str, list[str]]:
    """A cluster at peace, its leader and its followers."""
    world = World(1, Setting(nodes, raft=raft or RaftSettings(), bundles=bundles))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.5)
    (leader,) = world.leaders()
    return world, leader, [node for node in world.nodes if node != leader]


async def in_simulated_time(world: World, work: Coroutine[Any, Any, Any]) -> Any:
    """Await something while the simulated cluster runs."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        world.run(0.01)
    return task.result()


def submit(group: Group, command: bytes | None = None, timeout_s: float = 5.0) -> list[Outcome]:
    """Propose a command, a new one unless it is given; what it becomes is added to the answer."""
    outcomes: list[Outcome] = []
    group.submit(b"%d" % next(NUMBERS) if command is None else command, timeout_s, outcomes.append)
    return outcomes


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_proposal_is_answered_with_the_machines_result(nodes: int) -> None:
    world, leader, _ = started(nodes)
    outcome = asyncio.run(in_simulated_time(world, world.group(leader).propose(b"hello", 5.0)))
    assert outcome == Committed(3, 1, (3, b"hello"))


def test_a_leader_sends_heartbeats_while_its_node_is_busy_with_other_groups() -> None:
    world, leader, followers = started()
    answer = submit(world.group(leader))
    world.run_until(lambda: world.group(leader)._node.log.last_index == 3)
    held: list[Call] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.processes[leader], "call_soon", held.append)  # behind what takes seconds
        world.run(3.0)
    assert len(held) == 1
    assert answer == []
    assert {world.group(node)._node.term for node in world.nodes} == {1}
    assert {world.group(node).leader for node in followers} == {leader}
    held.pop()()
    world.run(0.5)
    assert [type(each) for each in answer] == [Committed]


def test_commands_of_one_turn_share_an_entry_and_each_has_its_own_result() -> None:
    world, leader, followers = started(bundles=True)
    answers = [submit(world.group(leader), command) for command in (b"a", b"b", b"c")]
    world.run(0.5)
    assert answers == [[Committed(3, 1, (3, command))] for command in (b"a", b"b", b"c")]
    for node in followers:
        assert world.processes[node].machines[1].applied == [(3, 1, b"a"), (3, 1, b"b"), (3, 1, b"c")]


def test_without_leave_of_the_machine_every_command_has_an_index_of_its_own() -> None:
    world, leader, _ = started()
    answers = [submit(world.group(leader), command) for command in (b"a", b"b")]
    world.run(0.5)
    assert answers == [[Committed(3, 1, (3, b"a"))], [Committed(4, 1, (4, b"b"))]]


def test_each_proposal_in_a_lost_bundle_ends_as_unknown() -> None:
    world, leader, followers = started(bundles=True)
    world.isolate([leader])
    answers = [submit(world.group(leader)) for _ in range(3)]
    world.run_until(lambda: bool(set(world.leaders()) & set(followers)))
    world.heal()
    world.run(3.0)
    assert answers == [[Unknown(3)]] * 3


def test_a_follower_rejects_and_names_the_leader() -> None:
    world, leader, (follower, _) = started()
    assert submit(world.group(follower)) == [Rejected(leader, 1)]


def test_a_deadline_without_a_majority_is_an_unknown_outcome() -> None:
    world, leader, followers = started()
    for follower in followers:
        world.network.hold(leader, follower)
    outcomes = submit(world.group(leader), timeout_s=0.2)
    world.run(0.25)
    assert outcomes == [Unknown(3)]


def test_too_many_proposals_are_refused_and_not_appended() -> None:
    world, leader, _ = started(raft=RaftSettings(pending_count_max=2))
    group = world.group(leader)
    outcomes = [submit(group) for _ in range(3)]
    assert outcomes == [[], [], [Overloaded()]]
    world.run(0.5)
    assert group.commit_index == 4


def test_a_disk_that_is_far_behind_refuses() -> None:
    world, leader, _ = started(raft=RaftSettings(unsynced_bytes_max=10))
    group = world.group(leader)
    world.disks[leader].latency_s = lambda: 100.0
    submit(group, b"longer than that")
    world.run(0.1)
    assert submit(group) == [Overloaded()]


@pytest.mark.parametrize(("size", "accepted"), [(50, True), (51, False)])
def test_a_command_has_a_longest_size(size: int, accepted: bool) -> None:
    world, leader, _ = started(raft=RaftSettings(entry_bytes_max=50))
    if accepted:
        assert submit(world.group(leader), bytes(size)) == []
    else:
        with pytest.raises(ValueError, match="51 bytes"):
            submit(world.group(leader), bytes(size))


def test_proposals_of_one_turn_share_a_message_and_a_sync() -> None:
    world, leader, _ = started()
    rounds = world.group(leader)._node.leading
    assert rounds is not None
    before = rounds.round
    outcomes = [submit(world.group(leader)) for _ in range(100)]
    world.run(0.02)
    assert all(isinstance(outcome, Committed) for (outcome,) in outcomes)
    assert rounds.round - before <= 2


def test_a_small_queue_waits_one_more_turn_after_a_commit_for_the_next_proposals() -> None:
    """Four in flight that began in two halves become one: otherwise the halves take turns, in twice the messages."""
    world, leader, _ = started()
    group, sizes = world.group(leader), []

    def propose_again(_: Outcome) -> None:
        group.submit(b"%d" % next(NUMBERS), 5.0, propose_again)

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        if isinstance(message, AppendEntries) and message.entries:
            sizes.append(len(message.entries))

    for _ in range(2):
        propose_again(Unknown(None))
        propose_again(Unknown(None))
        world.run(0.0005)
    world.run(0.5)
    world.network.on_sent = on_sent
    world.run(0.5)
    assert len(sizes) > 20
    assert sum(sizes) / len(sizes) > 3.5


def test_followers_that_get_entries_and_answer_get_no_heartbeats() -> None:
    world, leader, _ = started()
    group, empty = world.group(leader), []

    def propose_again(_: Outcome) -> None:
        group.submit(b"%d" % next(NUMBERS), 5.0, propose_again)

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        if isinstance(message, AppendEntries) and not message.entries:
            empty.append(target)

    propose_again(Unknown(None))
    world.run(0.5)
    world.network.on_sent = on_sent
    world.run(3.0)
    assert not empty
    assert world.leaders() == [leader]


def test_a_read_barrier_passes_on_the_leader_only() -> None:
    world, leader, (follower, _) = started()
    asyncio.run(in_simulated_time(world, world.group(leader).read_barrier(1.0)))
    with pytest.raises(NotLeader) as refusal:
        asyncio.run(in_simulated_time(world, world.group(follower).read_barrier(1.0)))
    assert (refusal.value.leader, refusal.value.term) == (leader, 1)


def test_a_read_barrier_has_a_deadline() -> None:
    world, leader, followers = started()
    for follower in followers:
        world.network.hold(leader, follower)
    with pytest.raises(TimeoutError):
        asyncio.run(in_simulated_time(world, world.group(leader).read_barrier(0.1)))


def test_barriers_of_one_turn_share_a_round() -> None:
    world, leader, _ = started()
    leading = world.group(leader)._node.leading
    assert leading is not None
    before, passed = leading.round, list[Exception | None]()
    for _ in range(100):
        world.group(leader).submit_barrier(1.0, passed.append)
    world.run(0.02)
    assert (passed, leading.round) == ([None] * 100, before + 1)


def test_a_cancelled_wait_does_not_withdraw_the_command() -> None:
    world, leader, _ = started()

    async def cancel() -> None:
        task = asyncio.ensure_future(world.group(leader).propose(b"kept", 5.0))
        await asyncio.sleep(0)
        task.cancel()
        world.run(0.1)

    asyncio.run(cancel())
    assert [command for _, _, command in world.processes[leader].machines[1].applied] == [b"kept"]


def test_the_hooks_are_called_after_a_change_of_role_and_after_a_run_of_applies() -> None:
    world, leader, (follower, _) = started()
    roles, applied = list[tuple[bool, str | None, int]](), list[int]()
    group = world.group(follower)
    group.on_role_change = lambda group: roles.append((group.is_leader, group.leader, group.term))
    group.on_applied = lambda group: applied.append(group.applied_index)
    submit(world.group(leader))
    world.run(0.1)
    assert (roles, applied) == ([], [3])
    world.group(leader).step_down()
    world.run(3.0)
    assert roles[-1][1] in world.leaders()


def test_a_hook_that_fails_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world, leader, _ = started()

    def fail(_: Group) -> None:
        raise ZeroDivisionError

    world.group(leader).on_applied = fail
    outcomes = submit(world.group(leader))
    world.run(0.1)
    assert isinstance(outcomes[0], Committed)
    assert "a hook of group 1 failed" in caplog.text


def test_a_restarted_node_is_ready_when_it_has_applied_what_was_committed() -> None:
    world, leader, (follower, _) = started()
    for _ in range(20):
        submit(world.group(leader))
    world.run(0.5)
    world.crash(follower)
    world.restart(follower)
    group = world.group(follower)
    assert (group.ready, group.applied_index, group.commit_index) == (False, 1, 1)
    world.run_until(lambda: group.ready, 2.0)
    assert group.applied_index == 22


def test_a_follower_acks_durable_entries_before_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    world, leader, (follower, _) = started()
    node, check, steps = world.group(follower)._node, world.network.on_sent, list[str]()
    progress = node.progress

    def noted() -> bool:
        steps.append("progress")
        return progress()

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        if source == follower and isinstance(message, AppendAck):
            steps.append("ack")
        check(source, target, group_id, message)

    submit(world.group(leader))  # which wakes it
    world.run_until(lambda: world.group(follower).applied_index == world.group(leader).applied_index)
    monkeypatch.setattr(node, "progress", noted)
    monkeypatch.setattr(world.network, "on_sent", on_sent)
    for _ in range(2):  # the second one says that the first is committed
        submit(world.group(leader))
        world.run_until(lambda: world.group(leader).commit_index == world.group(leader)._node.log.last_index)
    world.run_until(lambda: "progress" in steps)
    assert steps == ["ack", "ack", "progress"]


PATIENT = RaftSettings(election_timeout_ms_max=60_000_000)


def test_a_leader_that_stood_still_does_not_blame_its_followers() -> None:
    world, leader, _ = started(raft=PATIENT)
    world.pause(leader)
    world.run(0.9)
    world.resume(leader)
    world.run(1.0)
    assert (world.leaders(), world.group(leader).term) == ([leader], 1)


def test_a_follower_that_stood_still_hears_its_leader_before_it_asks_for_an_election() -> None:
    """After a stall uvloop runs timers first, while the heartbeats still lie in the sockets."""
    world, leader, (follower, _) = started()
    sent = list[type]()
    world.network.on_sent = lambda source, target, group_id, message: sent.append(type(message))
    world.pause(follower)
    world.run(2.0)
    process = world.processes[follower]
    timers_first = sorted(process.backlog, key=lambda callback: "Timer.run" not in callback.__qualname__)
    assert len(timers_first) > 10
    process.backlog = deque(timers_first)
    world.resume(follower)
    world.run(1.0)
    assert world.leaders() == [leader]
    assert PreVote not in sent


def test_close_settles_every_call_that_waits() -> None:
    world, leader, followers = started()
    for follower in followers:
        world.network.hold(leader, follower)
    group = world.group(leader)
    appended, barrier = submit(group), list[Exception | None]()
    group.submit_barrier(5.0, barrier.append)
    world.run(0.01)
    queued = submit(group)
    group.close()
    assert (appended, queued, [type(error) for error in barrier]) == ([Unknown(3)], [Rejected(None, 1)], [NotLeader])
    assert submit(group) == [Rejected(None, 1)]


def test_a_closed_group_that_is_opened_again_catches_up() -> None:
    world, leader, (follower, _) = started()
    submit(world.group(leader))
    world.run(0.5)
    process = world.processes[follower]
    process.close_group(1)
    submit(world.group(leader))
    world.run(0.5)
    process.open_group(1)
    world.run(0.5)
    assert [index for index, _, _ in process.machines[1].applied] == [3, 4]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"heartbeat_ms": 201}, "heartbeat_ms"),
        ({"election_timeout_ms_max": 600}, "election_timeout"),
        ({"entry_bytes_max": 31 * (1 << 20) + 1}, "fit in a frame"),
        ({"message_bytes_max": 31 * (1 << 20) + 1}, "fit in a frame"),
        ({"pending_bytes_max": (17 << 20) - 1}, "pending_bytes_max"),
    ],
)
def test_settings_that_cannot_work_are_refused(changed: dict[str, int], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        RaftSettings(**changed)


def test_settings_at_their_edge_are_accepted() -> None:
    assert RaftSettings(heartbeat_ms=200, pending_bytes_max=17 << 20).heartbeat_ms == 200
    assert RaftSettings(entry_bytes_max=31 << 20, message_bytes_max=31 << 20).entry_bytes_max == 31 << 20


def newer_checkpoint(world: World, leader: str) -> Checkpoint:
    """As a leader of term 7 would have it, of which the cluster has not heard."""
    captured = world.group(leader).capture()
    assert captured is not None
    return Checkpoint(captured.index + 10, 7, captured.configuration, captured.image.state)


def test_an_installed_checkpoint_of_a_newer_term_takes_its_follower_there() -> None:
    world, leader, (follower, _) = started()
    group = world.group(follower)
    assert group.install(newer_checkpoint(world, leader), NOWHERE)
    assert (group.term, group._node.log.term, group.leader) == (7, 7, None)


def test_a_node_that_finds_a_checkpoint_of_a_newer_term_saves_that_before_it_speaks() -> None:
    """It ended behind the rename of the checkpoint, before the log knew of it."""
    world, leader, (follower, _) = started()
    process = world.processes[follower]
    world.disks[follower].checkpoints[1] = newer_checkpoint(world, leader)
    process.close_group(1)
    process.open_group(1)
    group = world.group(follower)
    assert (group.term, group._node.log.term, group._node.voted_for) == (7, 7, None)
    assert not group._node.log.state_is_durable


def test_a_bug_behind_a_sync_stops_the_node_instead_of_leaving_other_groups_unacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader, followers = started()
    group, bug, failures = world.group(followers[0]), ZeroDivisionError("a bug"), list[BaseException]()

    def broken(*_: object) -> bool:
        raise bug

    monkeypatch.setattr(group._node, "may_ack", broken)
    monkeypatch.setattr(group._ports, "fail", failures.append)
    assert not group.taken_is_durable(leader, AppendEntries(1, 0, 2, 1, 0, [(3, 1, b"")]), 0.0)
    assert failures == [bug]
