"""How soon there is a leader, and who it is. Simulated seconds, so nothing here depends on the machine."""

import pytest
from simulation.world import Setting, World

from stockade.raft.messages import TimeoutNow, Wake
from stockade.raft.outcomes import Committed

SEEDS = range(60)


def time_to_replace_a_crashed_leader(seed: int) -> float:
    world = World(seed, Setting(3))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.5)
    (leader,) = world.leaders()
    crashed_at = world.now
    world.crash(leader)
    world.run_until(lambda: any(node != leader for node in world.leaders()))
    return world.now - crashed_at


def test_the_first_voter_of_a_new_group_leads_it() -> None:
    for seed in SEEDS:
        world = World(seed, Setting(3))
        world.run_until(lambda world=world: bool(world.leaders()))  # type: ignore[misc]
        for process in world.processes.values():
            process.open_group(2)
        world.run(0.3)
        assert world.leaders(2) == [world.nodes[0]], seed


@pytest.mark.parametrize("slow_to", ["followers", "leader"])
def test_a_link_on_which_a_frame_takes_longer_than_an_election_timeout_costs_no_leader(slow_to: str) -> None:
    """Heartbeats and acks of all groups wait behind it: without any commit, each leader was deposed again and again."""
    world = World(1, Setting(3))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.5)
    (leader,) = world.leaders()
    world.checker.propose(world.processes[leader], 1, b"wakes all", 10.0)
    world.run(0.05)
    for other in set(world.nodes) - {leader}:
        source, target = (leader, other) if slow_to == "followers" else (other, leader)
        link = world.network.link(source, target)
        link.slow_s[target] = 3.0
        link.streaming.add(target)
    attempt = world.checker.propose(world.processes[leader], 1, b"slow", 10.0)
    term = world.group(leader).term
    world.run(8.0)
    assert (world.leaders(), world.group(leader).term) == ([leader], term)
    assert isinstance(attempt.outcome, Committed)


def test_a_leader_of_which_no_byte_comes_any_more_is_replaced_also_in_the_midst_of_a_frame() -> None:
    world = World(1, Setting(3))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.5)
    (leader,) = world.leaders()
    followers = [node for node in world.nodes if node != leader]
    for follower in followers:
        link = world.network.link(leader, follower)
        link.slow_s[follower] = 30.0
        link.streaming.add(follower)
    world.checker.propose(world.processes[leader], 1, b"slow", 10.0)
    world.run(2.0)
    assert world.leaders() == [leader]
    for follower in followers:
        world.network.hold(leader, follower)
    world.run(2.0)
    assert any(node != leader for node in world.leaders())


def test_a_split_vote_is_asked_anew_and_not_waited_out() -> None:
    """Two followers that ask at once refuse each other; the shortest election timeout is 0.6 s."""
    times = [time_to_replace_a_crashed_leader(seed) for seed in SEEDS]
    assert max(times) < 0.6, sorted(times)[-5:]


@pytest.mark.parametrize("message", [TimeoutNow(1), Wake(1)])
@pytest.mark.parametrize("is_late", [True, False])
def test_only_the_present_leader_asks_a_follower_to_campaign(message: TimeoutNow | Wake, *, is_late: bool) -> None:
    """What a leader said in an earlier term comes late; or another node says it."""
    world = World(1, Setting(3))
    world.run_until(lambda: bool(world.leaders()))
    if is_late:
        world.group(world.leaders()[0]).step_down()
    world.run(1.0)
    (leader,) = world.leaders()
    one, other = (node for node in world.nodes if node != leader)
    term = world.group(leader).term
    assert (term > message.term) is is_late
    world.group(one).receive(leader if is_late else other, message)
    assert (world.group(one).leader, world.group(one).term) == (leader, term)
