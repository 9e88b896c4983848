"""The checkers of what clients saw: readers, owners, named producers, groups, and clients that wait for recovery."""

import pytest
from falsified_clients import FALSIFIED, HONEST, Falsify, S, append, done, honest, note
from msgspec.structs import replace

from stockade.chaos.checkers import slot_history
from stockade.chaos.checkers.slot_history import Call, judge_calls
from stockade.chaos.checkers.verdicts import CHECKERS, judge
from stockade.chaos.history.evidence import Evidence
from stockade.chaos.history.history import Event, Operation, payload


@pytest.mark.parametrize("changed", [change for _, change in HONEST], ids=[name for name, _ in HONEST])
def test_an_honest_run_passes_every_checker(changed: Falsify) -> None:
    assert {v.checker: v.examples for v in judge(changed(honest()))} == {name: [] for name in CHECKERS}


def test_every_checker_says_how_much_it_looked_at() -> None:
    checked = {verdict.checker: verdict.checked for verdict in judge(honest())}
    assert checked["byte-exact"] == 4  # two records of two replicas
    assert (checked["lost-write"], checked["skipped-poll"]) == (2, 2)
    assert checked["position"] == 4  # one of the two polls is of no group, whose members alone are judged
    assert checked["epoch-uniqueness"] == 4


@pytest.mark.parametrize(("name", "falsify"), [(n, f) for n, _, f in FALSIFIED], ids=[d for _, d, _ in FALSIFIED])
def test_a_falsified_run_is_caught_by_the_checker_meant_for_it(name: str, falsify: Falsify) -> None:
    assert name in {verdict.checker for verdict in judge(falsify(honest())) if verdict.violations}


def call(began: int, ended: int, epoch: int, *, raises: bool = False) -> Call:
    return Call(began, ended, epoch, raises, began)


def test_calls_that_overlap_may_take_effect_in_any_order() -> None:
    calls = [call(0, 10, 1, raises=True), call(2, 20, 2, raises=True), call(11, 19, 1), call(12, 21, 2)]
    assert list(judge_calls(calls)) == []


def test_an_append_under_an_epoch_that_was_surely_superseded_has_no_place() -> None:
    calls = [call(0, 10, 1, raises=True), call(12, 20, 2, raises=True), call(21, 25, 1)]
    assert list(judge_calls(calls))


def test_the_same_epoch_cannot_be_granted_twice() -> None:
    assert list(judge_calls([call(0, 10, 1, raises=True), call(5, 20, 1, raises=True)]))


@pytest.mark.parametrize(("steps_max", "found"), [(1, 1), (2, 0)])
def test_calls_that_could_not_be_decided_in_time_are_reported(
    monkeypatch: pytest.MonkeyPatch, steps_max: int, found: int
) -> None:
    """One call takes two steps: to it, and to see that none is left."""
    monkeypatch.setattr(slot_history, "STEPS_MAX", steps_max)
    told = list(judge_calls([call(0, 10, 1, raises=True)]))
    assert (len(told), all("could not be decided in time" in each for each in told)) == (found, True)


def test_a_look_may_show_a_grant_whose_answer_was_lost() -> None:
    asked = Event(i=0, t_mono_ns=0, process="x", type="invoke", f="acquire", topic="t", partition=0)
    look = done(5, "w", "epoch", {}, epoch=4)
    assert list(CHECKERS["slot-history"](Evidence([Operation(asked, None), look], [], payload))) == []
    assert list(CHECKERS["slot-history"](Evidence([look], [], payload)))


def test_a_sharer_of_a_slot_shows_a_grant_whose_answer_was_lost() -> None:
    asked = Event(i=0, t_mono_ns=0, process="x", type="invoke", f="acquire", topic="t", partition=0)
    shared = done(5, "y", "share", {}, epoch=4)
    written = done(7, "y", "append", {"value": "y@0/0", "count": 1, "epoch": 4}, offset=0)
    assert list(CHECKERS["slot-history"](Evidence([Operation(asked, None), shared, written], [], payload))) == []
    assert list(CHECKERS["slot-history"](Evidence([shared, written], [], payload)))


def test_ten_thousand_calls_on_one_slot_are_judged_though_something_is_always_under_way() -> None:
    calls = []
    for k in range(5_000):
        calls += [call(20 * k, 20 * k + 15, k + 1, raises=True), call(20 * k + 12, 20 * k + 30, k + 1)]
    assert list(judge_calls(calls)) == []


@pytest.mark.parametrize(("answered_s", "recovers"), [(81, True), (140, True), (141, False), (None, False)])
def test_a_partition_recovers_when_it_answers_its_first_request_and_not_before_there_is_one(
    answered_s: int | None, recovers: bool
) -> None:
    asked = append(80, "b", 2, 1)
    assert asked.end is not None
    end = None if answered_s is None else replace(asked.end, t_mono_ns=answered_s * S)
    late = Operation(asked.invoke, end)
    run = Evidence([append(2, "a", 1, 0), late], [], payload, notes=[note("healed", 10)])
    assert (list(CHECKERS["recovery"](run)) == []) == recovers


def attempt(i: int, f: str) -> Operation:
    """Refused for a reason that is no proof."""
    return done(i, "b", f, {"value": "b@0/0"} if f == "append" else {}, outcome="info", error="LEADER_NOT_AVAILABLE")


@pytest.mark.parametrize("f", ["acquire", "own", "init", "poll"])
@pytest.mark.parametrize(("last_s", "recovers"), [(69, True), (70, False), (300, False)])
def test_a_partition_to_which_no_client_comes_to_append_has_not_recovered(f: str, last_s: int, recovers: bool) -> None:
    """Its clients ask for anything but an append, in vain. A history that ends sooner says nothing."""
    tries = [attempt(at_s, f) for at_s in (11, last_s)]
    tries[1] = Operation(tries[1].invoke, None)
    run = Evidence([append(2, "a", 1, 0), *tries], [], payload, notes=[note("healed", 10)])
    assert (list(CHECKERS["recovery"](run)) == []) == recovers


@pytest.mark.parametrize(("answered_s", "recovers"), [(None, False), (70, True), (71, False)])
def test_an_append_under_way_at_the_healing_is_answered_in_time_or_the_partition_has_not_recovered(
    answered_s: int | None, recovers: bool
) -> None:
    pending = append(9, "b", 2, 1)
    assert pending.end is not None
    end = None if answered_s is None else replace(pending.end, t_mono_ns=answered_s * S)
    polls = [attempt(at_s, "poll") for at_s in range(11, 200, 8)]
    run = Evidence(
        [append(2, "a", 1, 0), Operation(pending.invoke, end), *polls], [], payload, notes=[note("healed", 10)]
    )
    assert (list(CHECKERS["recovery"](run)) == []) == recovers


@pytest.mark.parametrize(("healed_s", "is_judged"), [(1, False), (2, False), (3, True), (400, False)])
def test_a_round_is_not_judged_by_the_healing_of_another_one(healed_s: int, is_judged: bool) -> None:
    """A round begins with new topics, whose first append may wait for leaders."""
    first = Operation(append(2, "a", 1, 0).invoke, None)
    run = Evidence([first, attempt(90, "poll")], [], payload, notes=[note("healed", healed_s)])
    assert bool(list(CHECKERS["recovery"](run))) == is_judged
