"""How followers learn of a commit when no entries follow it: by a message that is not answered."""

from simulation.world import Setting, World

from stockade.raft.core.group import Committed, Outcome
from stockade.raft.core.leader import COMMIT_NOTICE_S
from stockade.raft.messages import AppendAck, AppendEntries, Commit, RaftMessage


def started() -> tuple[World, str, list[str]]:
    """Three nodes that have a leader; the leader, the followers."""
    world = World(1, Setting(nodes=3))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.2)  # more than a heartbeat's period: what is proposed now belongs to no stream of entries
    (leader,) = world.leaders()
    return world, leader, [node for node in world.nodes if node != leader]


def listen(world: World) -> list[tuple[str, RaftMessage]]:
    """What is sent from now on, with its sender."""
    sent: list[tuple[str, RaftMessage]] = []
    check = world.network.on_sent

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        sent.append((source, message))
        check(source, target, group_id, message)

    world.network.on_sent = on_sent
    return sent


def commit(world: World, leader: str) -> int:
    """Propose; answers the index of what is committed."""
    outcomes: list[Outcome] = []
    world.group(leader).submit(b"x", 5.0, outcomes.append)
    world.run_until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], Committed)
    return outcomes[0].index


def test_a_commit_notice_is_sent_once_and_not_answered() -> None:
    world, leader, followers = started()
    sent = listen(world)
    index = commit(world, leader)
    world.run_until(lambda: all(world.group(node).applied_index == index for node in followers), 2 * COMMIT_NOTICE_S)
    told = [message for _, message in sent if isinstance(message, Commit)]
    assert told == [Commit(1, index)] * 2
    entries = [message for _, message in sent if isinstance(message, AppendEntries) and message.entries]
    acks = [message for source, message in sent if isinstance(message, AppendAck) and source in followers]
    assert (len(entries), len(acks)) == (2, 2)


def test_a_follower_that_missed_a_commit_notice_learns_the_commit_from_the_next_heartbeat() -> None:
    world, leader, (follower, _) = started()
    world.network.hold(leader, follower)
    index = commit(world, leader)
    world.run(2 * COMMIT_NOTICE_S)
    assert world.group(follower).commit_index < index
    world.heal()
    world.run_until(lambda: world.group(follower).applied_index == index, 2.0)


def test_a_follower_commits_no_more_than_its_leader_has_verified() -> None:
    world, leader, (follower, _) = started()
    group = world.group(follower)
    world.network.hold(leader, follower)  # no heartbeat comes that has to be answered
    sent = listen(world)
    before = group.commit_index
    group.receive(leader, Commit(group.term, before + 5))
    world.run(0.01)
    assert group.commit_index == before
    assert follower not in [source for source, _ in sent]


def test_a_commit_notice_of_an_older_term_is_ignored() -> None:
    world, leader, _ = started()
    commit(world, leader)
    world.group(leader).step_down()
    world.run_until(lambda: world.leaders() not in ([], [leader]))
    (second,) = world.leaders()
    group = world.group(next(node for node in world.nodes if node not in {leader, second}))
    world.run_until(lambda: group.leader == second, 1.0)
    before = group.commit_index, group.leader, group.term
    group.receive(leader, Commit(1, group.commit_index + 1))
    world.run(0.001)
    assert (group.commit_index, group.leader, group.term) == before
