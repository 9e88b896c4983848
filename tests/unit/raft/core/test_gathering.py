"""What is gathered so that many groups cost little: proposals behind a commit, and applies of a follower."""

from functools import partial
from itertools import count

import pytest
from simulation.world import Setting, World

from stockade.raft.core.follower import LAG_BYTES_MAX, LAG_ENTRIES_MAX, LAG_S
from stockade.raft.core.group import Committed, Group, Outcome, Rejected
from stockade.raft.core.leader import FEW_BYTES
from stockade.raft.core.pending import COMMANDS_MAX
from stockade.raft.messages import AppendEntries
from stockade.raft.settings import RaftSettings

NUMBERS = count()
PLAIN = Setting(bundles=True)
PATIENT = Setting(bundles=True, raft=RaftSettings(election_timeout_ms_min=5_000, election_timeout_ms_max=10_000))


def started(setting: Setting = PLAIN) -> tuple[World, str, list[str]]:
    """Three nodes that have a leader and have applied its no-op; the leader, the followers."""
    world = World(1, setting)
    world.run_until(lambda: bool(world.leaders()), 30.0)
    (leader,) = world.leaders()
    world.run_until(lambda: all(world.group(node).applied_index == 2 for node in world.nodes))
    return world, leader, [node for node in world.nodes if node != leader]


def propose(group: Group, *commands: bytes) -> list[Outcome]:
    """The outcomes, as they come."""
    outcomes: list[Outcome] = []
    for command in commands:
        group.submit(command, 5.0, outcomes.append)
    return outcomes


def last_index(world: World, node: str) -> int:
    return world.group(node)._node.log.last_index


def unanswered(world: World, leader: str) -> None:
    """The leader has appended an entry that it cannot commit."""
    for node in world.nodes:
        if node != leader:
            world.network.hold(leader, node)
    propose(world.group(leader), b"first")
    world.run_until(lambda: last_index(world, leader) == 3)


def test_proposals_behind_an_entry_that_is_not_committed_share_the_next() -> None:
    world, leader, _ = started()
    unanswered(world, leader)
    outcomes = []
    for number in range(5):
        outcomes.append(propose(world.group(leader), b"%d" % number))
        world.run(0.005)
    assert last_index(world, leader) == 3
    world.heal()
    world.run_until(lambda: all(outcomes))
    assert {each.index for (each,) in outcomes if isinstance(each, Committed)} == {4}


@pytest.mark.parametrize(
    ("commands", "waits"),
    [
        ([b"x"] * (COMMANDS_MAX - 1), True),
        ([b"x"] * COMMANDS_MAX, False),
        ([bytes(FEW_BYTES - 1)], True),
        ([bytes(FEW_BYTES)], False),
    ],
    ids=["few", "many", "small", "large"],
)
def test_many_or_large_proposals_do_not_wait_for_a_commit(commands: list[bytes], waits: bool) -> None:
    world, leader, _ = started()
    unanswered(world, leader)
    propose(world.group(leader), *commands)
    world.run(0.005)
    assert (last_index(world, leader) == 3) == waits


def test_a_proposal_that_waited_at_a_deposed_leader_was_surely_not_proposed() -> None:
    world, leader, _ = started()
    unanswered(world, leader)
    outcomes = propose(world.group(leader), b"second")
    world.run(0.005)
    world.group(leader).step_down()
    world.run_until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], Rejected)
    world.heal()
    world.run(3.0)
    applied = [command for process in world.processes.values() for *_, command in process.machines[1].applied]
    assert b"second" not in applied


def stream(world: World, leader: str, entries: int, size: int = 1, pause_s: float = 0.002) -> None:
    """Commit entries one after the other."""
    for _ in range(entries):
        outcomes = propose(world.group(leader), b"%08d" % next(NUMBERS) + bytes(size))
        world.run_until(partial(bool, outcomes))
        world.run(pause_s)


@pytest.mark.parametrize(
    ("size", "pause_s", "lag"),
    [
        (1, 0.002, LAG_ENTRIES_MAX),
        (LAG_BYTES_MAX // 2, 0.002, 3),
        (1, LAG_S / 2 - 0.2, LAG_ENTRIES_MAX),
    ],
    ids=["entries", "bytes", "time"],
)
def test_a_follower_applies_a_stream_in_runs_that_are_bounded(size: int, pause_s: float, lag: int) -> None:
    world, leader, followers = started(PATIENT)
    worst = 0
    for _ in range(2 * LAG_ENTRIES_MAX):
        stream(world, leader, 1, size, max(0.0, pause_s))
        worst = max(worst, *(last_index(world, node) - world.group(node).applied_index for node in followers))
    assert 2 <= worst <= lag + 2, "one more is not committed, and one not yet verified"


def test_a_follower_applies_the_rest_of_a_stream_with_the_next_heartbeat() -> None:
    world, leader, followers = started(PATIENT)
    stream(world, leader, LAG_ENTRIES_MAX // 2)
    world.run(2.5 * PATIENT.raft.heartbeat_ms / 1000)
    assert [world.group(node).applied_index for node in followers] == [world.group(leader).applied_index] * 2


def test_a_follower_whose_machine_may_not_lag_applies_every_commit_that_it_hears_of() -> None:
    world, leader, followers = started(Setting(bundles=False, raft=PATIENT.raft))
    stream(world, leader, 2 * LAG_ENTRIES_MAX, pause_s=0.01)
    for node in followers:
        assert world.group(node).applied_index == world.group(node).commit_index


def test_a_new_leader_has_applied_all_before_it_answers() -> None:
    world, leader, followers = started(PATIENT)
    stream(world, leader, LAG_ENTRIES_MAX // 2)
    assert any(world.group(node).applied_index < world.group(leader).commit_index for node in followers)
    committed = world.group(leader).commit_index
    world.group(leader).submit_transfer(followers[0], 5.0, lambda error: None)
    world.run_until(lambda: world.leaders() == [followers[0]], 5.0)
    passed: list[Exception | None] = []
    world.group(followers[0]).submit_barrier(5.0, passed.append)
    world.run_until(lambda: bool(passed))
    assert passed == [None]
    assert world.group(followers[0]).applied_index > committed


def test_entries_of_one_round_travel_in_one_message_to_each_follower() -> None:
    world, leader, _ = started(PATIENT)
    sent: list[AppendEntries] = []
    check = world.network.on_sent

    def on_sent(source: str, target: str, group_id: int, message: object) -> None:
        if isinstance(message, AppendEntries) and message.entries:
            sent.append(message)
        check(source, target, group_id, message)  # type: ignore[arg-type]

    world.network.on_sent = on_sent
    first = propose(world.group(leader), b"a")
    world.run(0.0001)
    second = propose(world.group(leader), *[b"%d" % number for number in range(20)])
    world.run_until(lambda: bool(first) and len(second) == 20)
    assert len(sent) == 4
