"""The checkers of what clients saw: readers, owners, named producers, groups, and whoever waits for recovery."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stockade.chaos.checkers import slot_history
from stockade.chaos.checkers.slot_history import Call, judge_calls
from stockade.chaos.checkers.verdicts import CHECKERS, judge
from stockade.chaos.history.evidence import Evidence, ReplicaLog
from stockade.chaos.history.history import Event, Operation, payload

S = 1_000_000_000
RESOURCE = "t/0"


def done(i: int, process: str, f: str, invoke: dict[str, Any], outcome: str = "ok", **end: Any) -> Operation:
    """Begun at second ``i``, ended half a second later."""
    about: dict[str, Any] = {"process": process, "f": f, "topic": "t", "partition": 0}
    ended: dict[str, Any] = {**about, **({"value": invoke["value"], "count": 1} if f == "append" else {}), **end}
    return Operation(
        Event(i=i, t_mono_ns=i * S, type="invoke", **about, **invoke),
        Event(i=i + 1, t_mono_ns=i * S + S // 2, type=outcome, of=i, **ended),  # type: ignore[arg-type]
    )


def append(i: int, process: str, epoch: int, offset: int) -> Operation:
    return done(
        i,
        process,
        "append",
        {"value": f"{process}@0/0", "count": 1, "epoch": epoch, "resource": RESOURCE},
        offset=offset,
    )


def own(i: int, process: str, epoch: int) -> Operation:
    return done(i, process, "own", {"resource": RESOURCE}, resource=RESOURCE, epoch=epoch, generation=1)


def poll(i: int, asked: int, names: list[str], *, epoch: int | None = None) -> Operation:
    end = asked + len(names)
    records = [(name, 1) for name in names]
    return done(
        i, "m", "poll", {"offset": asked, "epoch": epoch}, offset=end, log_end=2, records=records, count=len(names)
    )


def commit(i: int, offset: int, epoch: int) -> Operation:
    about: dict[str, Any] = {"resource": "g", "offset": offset, "epoch": epoch}
    return done(i, "m", "commit", about, **about)


def note(f: str, at_s: int) -> Event:
    return Event(i=900 + at_s, t_mono_ns=at_s * S, process="nemesis", type="info", f=f)


def honest_operations() -> list[Operation]:
    """Two owners in turn write a record each; a member reads both and commits; a name gets a second identity."""
    return [
        own(0, "a", 1),
        append(2, "a", 1, 0),
        own(4, "b", 2),
        append(6, "b", 2, 1),
        poll(8, 0, ["a@0/0"]),
        poll(10, 1, ["b@0/0"], epoch=2),
        commit(12, 1, 2),
        commit(14, 2, 2),
        done(16, "m", "position", {"resource": "g"}, resource="g", offset=2),
        done(18, "p", "init", {"value": "name"}, producer_id=7, producer_epoch=0),
        done(20, "q", "init", {"value": "name"}, producer_id=7, producer_epoch=1),
    ]


def honest() -> Evidence:
    names = ["a@0/0", "b@0/0"]
    values = [payload("a@0", 0) or b"", payload("b@0", 0) or b""]
    logs = [ReplicaLog(node, 0, 0, 2, [0, 1], names, values, [None, None], [0, 0]) for node in ("n1", "n2")]
    return Evidence(honest_operations(), logs, payload, None, [note("healed", 5), note("drained", 15)])


Falsify = Callable[[Evidence], Evidence]


def operation(position: int, invoke: dict[str, Any] | None = None, **end: Any) -> Falsify:
    def change(run: Evidence) -> Evidence:
        operations = list(run.operations)
        op = operations[position]
        assert op.end is not None
        operations[position] = Operation(replace(op.invoke, **(invoke or {})), replace(op.end, **end))
        return replace(run, operations=operations)

    return change


def also(*more: Operation) -> Falsify:
    return lambda run: replace(run, operations=[*run.operations, *more])


def swapped(run: Evidence) -> Evidence:
    def swap(log: ReplicaLog) -> ReplicaLog:
        return replace(log, names=log.names[::-1], values=log.values[::-1])

    return replace(run, logs=[swap(log) for log in run.logs])


def without(position: int) -> Falsify:
    return lambda run: replace(run, operations=[op for k, op in enumerate(run.operations) if k != position])


def unanswered(f: str) -> Falsify:
    def change(op: Operation) -> Operation:
        return Operation(op.invoke, None) if op.invoke.f == f else op

    return lambda run: replace(run, operations=[change(op) for op in run.operations])


FALSIFIED: list[tuple[str, str, Falsify]] = [
    ("nonmonotonic-poll", "a poll goes back", operation(5, {"offset": 2})),
    ("skipped-poll", "a poll passes over a record", operation(5, {"offset": 0})),
    ("skipped-poll", "a record is missing in the middle", operation(4, offset=2, records=[("b@0/0", 1)])),
    ("unseen", "nobody ever read what was acknowledged", without(5)),
    ("unseen", "no poll was ever answered", unanswered("poll")),
    ("position", "a position goes back", operation(7, {"offset": 0}, offset=0)),
    ("position", "a position is read as it was before", operation(8, offset=1)),
    ("position", "a replaced member commits", operation(7, {"epoch": 1})),
    ("position", "a replaced member reads", operation(5, {"epoch": 1})),
    ("recovery", "no write after everything was mended", operation(3, t_mono_ns=70 * S)),
    ("recovery", "a node never came back", lambda run: replace(run, notes=[*run.notes, note("lost", 5)])),
    ("lost-write", "no replica can be read any more", lambda run: replace(run, logs=[])),
    ("zombie", "an owner that was out-claimed writes", also(append(22, "a", 1, 0))),
    ("zombie", "fence_epochs decrease along the log", swapped),
    ("epoch-uniqueness", "two owners got one fence_epoch", operation(2, epoch=1)),
    ("epoch-uniqueness", "two instances of a name got one identity", operation(10, producer_epoch=0)),
    ("slot-history", "a look shows an epoch that nobody was given", also(done(30, "w", "epoch", {}, epoch=3))),
    (
        "slot-history",
        "an append succeeds in an epoch that ended",
        also(
            done(30, "x", "acquire", {}, epoch=1),
            done(32, "y", "acquire", {}, epoch=2),
            done(34, "x", "append", {"value": "x@0/0", "count": 1, "epoch": 1}, offset=2),
        ),
    ),
    ("stale-read", "a poll does not see what was acknowledged", operation(5, log_end=1)),
    ("aborted-read", "what was refused is stored and was read", operation(3, type="fail")),
    (
        "aborted-read",
        "what was refused is in no log and was read",
        lambda run: operation(4, records=[("c@0/0", 1)])(
            also(done(22, "c", "append", {"value": "c@0/0", "count": 1}, "fail"))(run)
        ),
    ),
]


def test_an_honest_run_passes_every_checker() -> None:
    assert {verdict.checker: verdict.examples for verdict in judge(honest())} == {name: [] for name in CHECKERS}


def test_every_checker_says_how_much_it_looked_at() -> None:
    checked = {verdict.checker: verdict.checked for verdict in judge(honest())}
    assert checked["byte-exact"] == 4  # two records of two replicas
    assert (checked["lost-write"], checked["skipped-poll"], checked["position"]) == (2, 2, 5)
    assert checked["epoch-uniqueness"] == 4


@pytest.mark.parametrize(("name", "falsify"), [(n, f) for n, _, f in FALSIFIED], ids=[d for _, d, _ in FALSIFIED])
def test_a_falsified_run_is_caught_by_the_checker_meant_for_it(name: str, falsify: Falsify) -> None:
    assert list(CHECKERS[name](falsify(honest())))


def test_who_shares_a_slot_that_its_owner_left_may_write_in_its_epoch_and_the_owner_may_not_after_that() -> None:
    def run(names: list[str]) -> Evidence:
        slots = [
            done(0, "x", "acquire", {}, epoch=1),
            done(2, "x", "append", {"value": "x@0/0", "count": 1, "epoch": 1}, offset=0),
            done(4, "y", "share", {}, epoch=1),
            done(6, "y", "append", {"value": "y@0/0", "count": 1, "epoch": 1}, offset=1),
            done(8, "z", "share", {}, epoch=1),
            done(10, "z", "append", {"value": "z@0/0", "count": 1, "epoch": 1}, offset=2),
        ]
        rows = range(len(names))
        log = ReplicaLog("n1", 0, 0, len(names), list(rows), names, [b""] * 3, [None] * 3, [1] * 3)
        return Evidence(slots, [log], payload)

    assert list(CHECKERS["zombie"](run(["x@0/0", "y@0/0", "z@0/0"]))) == []
    assert list(CHECKERS["zombie"](run(["y@0/0", "x@0/0", "z@0/0"])))


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
    """Whatever they do before it fails for ever. A history that ends sooner says nothing."""
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
