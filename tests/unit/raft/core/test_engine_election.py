"""Deadlines, whether the leader was heard lately, and tallies."""

from stockade.raft.core.follower import Election
from stockade.raft.settings import RaftSettings


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def make(majority: int = 2, draw: float = 0.5) -> tuple[Election, Clock]:
    clock = Clock()
    return Election(lambda: majority, RaftSettings(), clock, lambda: draw), clock


def test_a_deadline_is_drawn_between_the_two_timeouts() -> None:
    assert [make(draw=draw)[0].deadline for draw in (0.0, 0.5)] == [100.6, 100.9]


def test_the_lease_lasts_the_shortest_timeout() -> None:
    election, clock = make()
    assert not election.leased
    election.heard_leader(clock())
    clock.now = 100.599
    assert election.leased
    clock.now = 100.6
    assert not election.leased


def test_hurrying_brings_the_deadline_forward_and_never_back() -> None:
    election, clock = make()
    election.hurry()
    assert election.deadline == 100.075
    clock.now = 100.07
    election.hurry()
    assert election.deadline == 100.075


def test_with_few_elections_at_once_each_follower_asks_for_votes_soon() -> None:
    for turn in (0, 1):
        election, _ = make()
        election.take_turn(0.15, turn)
        assert election.deadline == 100.075


def test_with_many_elections_at_once_a_group_asks_after_the_turn_of_those_before_it() -> None:
    earliest, latest = make(draw=0.0), make(draw=0.999)
    for election, _ in (earliest, latest):
        election.take_turn(1.0, 1 if election is earliest[0] else 0)
    assert earliest[0].deadline == 101.0 > latest[0].deadline


def test_a_majority_of_different_nodes_is_needed() -> None:
    election, _ = make(majority=2)
    election.begin_vote()
    assert [election.count_vote(node) for node in ("n1", "n1", "n2")] == [False, False, True]


def test_a_granted_pre_vote_does_not_count_as_a_vote() -> None:
    election, _ = make(majority=2)
    election.begin_prevote()
    assert not election.count_vote("n1")
    assert [election.count_pre_vote(node) for node in ("n1", "n2")] == [False, True]
    election.begin_vote()
    assert [election.count_vote(node) for node in ("n1", "n2")] == [False, True]


def test_a_pre_vote_is_repeated_after_a_quarter_of_an_election_timeout_and_a_vote_after_a_whole_one() -> None:
    election, _ = make()
    election.begin_prevote()
    assert election.deadline == 100.225
    election.begin_vote()
    assert election.deadline == 100.9


def test_votes_that_arrive_after_the_tally_ended_do_not_count() -> None:
    election, clock = make(majority=1)
    election.begin_vote()
    election.heard_leader(clock())
    assert not election.count_vote("n1")
    assert not election.count_pre_vote("n1")
