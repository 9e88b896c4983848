"""All interleavings of small worlds of the real machines keep the invariants that small_world.py and machine_states.py
check; each mutant breaks one, and the explorer finds the shortest way.
"""

import re
from collections.abc import Iterator

import pytest
from simulation.explorer import Counterexample, explore, refute
from simulation.slot_mutants import MUTANTS, Mutant
from simulation.small_world import EXCLUSIVE, FENCING, SHARED, WAIT, Scope, SmallWorld

WRITES = Scope(ends=("release", "expire"), resumes=True, batches=1, unfenced=True, decisions=4)
BATCHES = Scope(modes=(FENCING, SHARED), ends=("close",), batches=2, decisions=4)
ENDS = Scope(ends=("release", "close", "expire", "evict", "cancel", "fence"), resumes=True, decisions=4)
THREE = Scope("abc", modes=(FENCING, WAIT), ends=("release",), decisions=5)
SETS = Scope("abc", partitions=2, sets=((0,), (1,), (0, 1)), modes=(FENCING, WAIT), ends=("close",), decisions=3)
QUEUE = Scope(
    "abc",
    partitions=2,
    sets=((0,), (1,), (0, 1)),
    modes=(WAIT,),
    ends=("release", "cancel"),
    decisions=5,
    prompt=True,
)
RETURNS = Scope(modes=(WAIT, SHARED), ends=("release", "fence"), resumes=True, decisions=6, prompt=True)
GROWTH = Scope(sets=((),), modes=(FENCING, WAIT), ends=("close",), unfenced=True, partitions_max=2, decisions=4)
GROWN = Scope(sets=((),), modes=(FENCING, SHARED), ends=("release",), resumes=True, partitions_max=2)
GROWN_QUEUE = QUEUE._replace(partitions=1, sets=((), (0,), (1,)), partitions_max=2, decisions=5)
TERMS = Scope(modes=(FENCING, WAIT), ends=("expire", "term"), decisions=5)
WORLDS = {
    "writes": (WRITES, 160_000),
    "batches": (BATCHES, 27_000),
    "ends": (ENDS, 49_000),
    "three": (THREE, 13_000),
    "sets": (SETS, 19_000),
    "queue": (QUEUE, 1_300),
    "returns": (RETURNS, 3_500),
    "growth": (GROWTH, 34_000),
    "grown": (GROWN, 1_800),
    "grown queue": (GROWN_QUEUE, 750),
    "terms": (TERMS, 1_000),
}
"""Each with a number of states below which it no longer is what it was."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WORLDS)
def test_every_interleaving_of_a_small_world_keeps_the_invariants(name: str) -> None:
    scope, states_min = WORLDS[name]
    world = SmallWorld(scope)
    explored = explore(world)
    assert explored.states >= states_min
    assert world.controllers.compare_with_one_life() > 0
    assert world.partitions.compare_with_one_life() > 0


IN_FORCE = "is in force on t/0, and is refused"
AT_REST = "at rest t/0 judges g-1-2 otherwise"
LATE = "at rest, a late message changes t/0"
ENDED = "g-1-2 has ended, its end was answered, and it writes to t/0"
EXPIRED = "SessionExpired"
FORGOTTEN = "saved and loaded saves something else"
SEQUENCE = "a sequence number is missing or stored twice"
SHOWN: dict[str, tuple[Scope, str, int]] = {
    "a_batch_is_stored_again": (WRITES, SEQUENCE, 2),
    "a_cancelled_ticket_promotes_no_other": (QUEUE, "waits for what is free", 4),
    "a_certificate_denies_what_was_stored": (BATCHES, "a certificate is wrong", 5),
    "a_clear_leaves_its_place_open": (WRITES, LATE, 2),
    "a_dead_waiter_stays_in_line": (WRITES, EXPIRED, 3),
    "a_duplicate_gets_the_end_of_the_log": (BATCHES, "a duplicate has the offset of another batch", 5),
    "a_duplicate_is_answered_before_the_token_is_judged": (WRITES, "beside an exclusive grant", 4),
    "a_gap_is_stored": (BATCHES, SEQUENCE, 3),
    "a_grant_is_in_force_at_once": (WRITES, IN_FORCE, 1),
    "a_holder_of_all_does_not_get_what_is_added": (GROWTH, "a grant did not grow", 2),
    "a_holder_of_all_has_what_is_added_at_once": (GROWTH, "is in force on t/1, and is refused", 2),
    "a_new_leader_ends_sessions": (TERMS, "a new leader ends a session", 1),
    "a_waiter_for_all_does_not_wait_for_what_is_added": (GROWN_QUEUE, "a ticket did not grow", 3),
    "an_added_partition_has_the_place_of_the_grant": (GROWTH, "grant.grant_index <= decision.order", 2),
    "a_late_clear_empties_the_slot": (WRITES, LATE, 3),
    "a_loaded_controller_counts_decisions_anew": (WRITES, FORGOTTEN, 1),
    "a_loaded_controller_forgot_what_is_due": (WRITES, FORGOTTEN, 1),
    "a_partition_installs_what_comes_late": (WRITES, "the place of a slot went back", 2),
    "a_refused_write_counts_as_one": (WRITES, "a refused command changed something", 2),
    "a_report_of_an_older_decision_counts_for_the_last": (WRITES, ENDED, 4),
    "a_report_puts_a_later_grant_in_force": (WRITES, IN_FORCE, 4),
    "a_resumed_epoch_is_not_checked": (WRITES, "a waits no more, for nothing", 3),
    "a_session_holds_while_it_waits": (QUEUE, "a session waits while it holds", 3),
    "a_shared_grant_that_ends_promotes_no_waiter": (WRITES, "waits for what is free", 2),
    "a_token_of_the_right_epoch_writes": (WRITES, AT_REST, 2),
    "a_waiter_is_lost_with_the_grant_before_it": (QUEUE, "c waits no more, for nothing", 3),
    "a_write_without_a_token_is_not_fenced": (WRITES, "a write without a token beside an exclusive grant", 3),
    "a_waiter_keeps_an_older_epoch": (RETURNS, "grant.epoch >=", 5),
    "an_acquire_passes_the_line": (QUEUE, "a passes b, which waits", 3),
    "an_end_has_no_place_of_its_own": (ENDS, "grant.grant_index <= decision.order", 3),
    "an_end_is_not_told_to_partitions": (WRITES, ENDED, 3),
    "an_equal_epoch_is_later": (WRITES, "the place of a slot went back", 2),
    "an_eviction_spares_the_sharers": (WRITES, r"here is grant for here in machine\.slots\.grants\.on", 2),
    "an_expired_session_keeps_its_grants": (WRITES, EXPIRED, 2),
    "an_older_epoch_writes": (WRITES, AT_REST, 2),
    "an_operators_fence_is_not_told_to_partitions": (ENDS, "an older epoch is due", 2),
}
"""Of each mutant: the world that shows it, the invariant that it breaks, and the length of the shortest way."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.__name__))
def test_each_mutant_of_the_slots_has_a_shortest_counterexample(mutant: Mutant) -> None:
    scope, violated, steps = SHOWN[mutant.__name__]
    with mutant():
        refute(SmallWorld(scope), violated, steps)


class Walk:
    """A walk of three steps, each by one or by two, that must not end at four."""

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def actions(self, state: tuple[int, int]) -> Iterator[int]:
        return iter([1, 2] if state[0] < 3 else [])

    def take(self, state: tuple[int, int], action: int) -> tuple[int, int]:
        return state[0] + 1, state[1] + action

    def check(self, state: tuple[int, int]) -> None:
        assert state != (2, 4), "four is reached"

    def tell(self, state: tuple[int, int], action: int) -> str:
        return f"{state[1]} and {action}"


class Unhindered(Walk):
    def check(self, state: tuple[int, int]) -> None:
        pass


def test_the_explorer_visits_each_state_once_and_ends() -> None:
    explored = explore(Unhindered())
    assert (explored.states, explored.steps, explored.by_depth) == (10, 12, [1, 2, 3, 4])


def test_a_counterexample_tells_the_steps_and_the_invariant() -> None:
    with pytest.raises(Counterexample) as caught:
        explore(Walk())
    assert str(caught.value) == "four is reached, after 2 steps:\n  1. 0 and 2\n  2. 2 and 2"


def test_a_step_that_fails_is_the_last_of_its_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Walk, state: tuple[int, int], action: int) -> tuple[int, int]:
        raise KeyError("gone")

    monkeypatch.setattr(Walk, "take", take)
    with pytest.raises(Counterexample, match=re.escape("KeyError: 'gone', after 1 steps:")):
        explore(Walk())


def test_a_way_is_told_in_words() -> None:
    world = SmallWorld(Scope(modes=(EXCLUSIVE,), batches=1, decisions=1))
    state, told = world.initial(), []
    for kind in ("acquire", "append", "deliver", "append", "append"):
        action = next(action for action in world.actions(state) if action.kind == kind)
        after = world.take(state, action)
        told.append(world.tell(state, action))
        state = after
    assert told == [
        "a: acquire t/0 Exclusive: g-1-2, decision 1, epochs [1]",
        "a with g-1-2 appends batch 0 to t/0: INVALID_FENCING_TOKEN",
        "t/0 gets InstallFence of g-1-2: decision 1, epoch 1",
        "a with g-1-2 appends batch 0 to t/0: offset 0",
        "a with g-1-2 appends batch 0 to t/0: offset 0, a duplicate",
    ]
