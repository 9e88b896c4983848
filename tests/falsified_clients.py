"""A run of owners, members of a group, and a named producer, all in one partition, and each way to falsify it.

For the checkers of chaos and for the Spark audit, which must judge alike.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stockade.chaos.history.evidence import Evidence, ReplicaLog
from stockade.chaos.history.history import Event, Operation, payload

S = 1_000_000_000
RESOURCE = "t/0"


def done(i: int, process: str, f: str, invoke: dict[str, Any], outcome: str = "ok", **end: Any) -> Operation:
    """Begun at second ``i``, ended half a second later."""
    # An identity is one for all partitions of a topic.
    about: dict[str, Any] = {"process": process, "f": f, "topic": "t", "partition": None if f == "init" else 0}
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


def refused(i: int) -> Operation:
    return done(i, "b", "append", {"value": "b@0/7", "count": 1}, "fail", error="NOT_ENOUGH_REPLICAS")


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


def swapped_in_time(one: int, other: int) -> Falsify:
    """Two operations, each at the time of the other."""

    def moved(op: Operation, like: Operation) -> Operation:
        assert op.end is not None and like.end is not None
        began, ended = like.invoke.t_mono_ns, like.end.t_mono_ns
        return Operation(replace(op.invoke, t_mono_ns=began), replace(op.end, t_mono_ns=ended))

    def change(run: Evidence) -> Evidence:
        operations = list(run.operations)
        first, second = operations[one], operations[other]
        operations[one], operations[other] = moved(first, second), moved(second, first)
        return replace(run, operations=operations)

    return change


def unanswered(f: str) -> Falsify:
    def change(op: Operation) -> Operation:
        return Operation(op.invoke, None) if op.invoke.f == f else op

    return lambda run: replace(run, operations=[change(op) for op in run.operations])


def shared(names: list[str]) -> Falsify:
    """A slot that x owned, whom y and z share after that: its log has these records of theirs."""
    slots = [
        done(0, "x", "acquire", {}, epoch=1),
        done(2, "x", "append", {"value": "x@0/0", "count": 1, "epoch": 1}, offset=names.index("x@0/0")),
        done(4, "y", "share", {}, epoch=1),
        done(6, "y", "append", {"value": "y@0/0", "count": 1, "epoch": 1}, offset=names.index("y@0/0")),
        done(8, "z", "share", {}, epoch=1),
        done(10, "z", "append", {"value": "z@0/0", "count": 1, "epoch": 1}, offset=names.index("z@0/0")),
    ]
    values = [payload(name.partition("/")[0], 0) or b"" for name in names]
    log = ReplicaLog("n1", 0, 0, len(names), range(len(names)), names, values, [None] * 3, [1] * 3)
    return lambda run: replace(run, operations=slots, logs=[log], notes=[])


def idle(at_s: int) -> Operation:
    return done(at_s, "m", "position", {"resource": "g"}, "info", error="LEADER_NOT_AVAILABLE")


def healing(at_s: int, *operations: Operation, also_healed_s: int | None = None) -> Falsify:
    """The operations of a run whose last fault was healed at ``at_s``, another one at ``also_healed_s``."""
    notes = [note("healed", at_s), *([] if also_healed_s is None else [note("heal", also_healed_s)])]
    unanswered = Operation(append(3, "b", 2, 1).invoke, None)  # of the other record in the log
    return lambda run: replace(run, operations=[*operations, unanswered], notes=notes)


def released(late: Operation) -> Falsify:
    """Two who share a slot write in its epoch, one gives it back, and then an append of another client."""
    mine, other = ({"value": f"{name}@0/0", "count": 1, "epoch": 1} for name in "yz")
    slots = [
        done(0, "y", "acquire", {}, epoch=1),
        done(2, "y", "share", {}, epoch=1),
        done(4, "y", "append", mine, offset=0),
        done(6, "z", "share", {}, epoch=1),
        done(8, "z", "append", other, offset=1),
        done(10, "y", "release", {"epoch": 1}, epoch=1),
        late,
    ]
    names = ["y@0/0", "z@0/0", "y+late@0/0" if late.invoke.process == "y" else "z@0/1"][: 2 + (late.outcome == "ok")]
    values = [payload(*_split(name)) or b"" for name in names]
    count = len(names)
    log = ReplicaLog("n1", 0, 0, count, range(count), names, values, [None] * count, [1] * count)
    return lambda run: replace(run, operations=slots, logs=[log], notes=[])


def _split(name: str) -> tuple[str, int]:
    writer, _, index = name.rpartition("/")
    return writer, int(index)


LATE: dict[str, Any] = {"value": "y+late@0/0", "count": 1, "epoch": 1}

HONEST: list[tuple[str, Falsify]] = [
    ("as it was", lambda run: run),
    ("a consumer reads again what it has read", also(poll(22, 0, ["a@0/0"]))),
    (
        "a position is read whose commit had no answer",
        also(
            done(22, "m", "commit", {"resource": "g", "offset": 3, "epoch": 2}, "info", error="REQUEST_TIMED_OUT"),
            done(24, "m", "position", {"resource": "g"}, resource="g", offset=3),
        ),
    ),
    ("the run ended before its readers had come to the end", lambda run: replace(without(5)(run), notes=[])),
    ("who shares a slot that its owner left writes in its epoch", shared(["x@0/0", "y@0/0", "z@0/0"])),
    (
        "who gave a slot back is refused",
        released(done(12, "y", "append", LATE, "fail", error="PRODUCER_FENCED")),
    ),
    (
        "one goes on in a slot that another one gave back",
        released(done(12, "z", "append", {"value": "z@0/1", "count": 1, "epoch": 1}, offset=2)),
    ),
    ("no client comes to append for 50 s", healing(10, append(2, "a", 1, 0), idle(60))),
    ("a partition recovers in 50 s", healing(10, append(2, "a", 1, 0), refused(11), append(60, "b", 2, 1))),
    (
        "one fault is healed while another one lasts",
        healing(60, append(2, "a", 1, 0), refused(11), append(62, "b", 2, 1), also_healed_s=10),
    ),
]
"""Runs in which nothing is wrong, though it may look like it."""

FALSIFIED: list[tuple[str, str, Falsify]] = [
    ("nonmonotonic-poll", "a poll goes back", operation(5, {"offset": 2})),
    ("skipped-poll", "a poll passes over a record", operation(5, {"offset": 0})),
    ("skipped-poll", "a record is missing in the middle", operation(4, offset=2, records=[("b@0/0", 1)])),
    ("unseen", "no client ever read a record that was acknowledged", without(5)),
    ("unseen", "no poll was ever answered", unanswered("poll")),
    ("unseen", "a record before the last one was never read", without(4)),
    ("position", "a position goes back", operation(7, {"offset": 0}, offset=0)),
    ("position", "a position is read as it was before", operation(8, offset=1)),
    ("position", "a position is read that no member set", operation(8, offset=3)),
    (
        "position",
        "a position is read that a member set in vain",
        also(
            done(22, "m", "commit", {"resource": "g", "offset": 3, "epoch": 2}, "fail", error="NOT_OWNER"),
            done(24, "m", "position", {"resource": "g"}, resource="g", offset=3),
        ),
    ),
    ("position", "a position is read before a member sets it", swapped_in_time(7, 8)),
    (
        "position",
        "a position is read below one that was read before, whose commit had no answer",
        also(
            done(22, "m", "commit", {"resource": "g", "offset": 3, "epoch": 2}, "info", error="REQUEST_TIMED_OUT"),
            done(24, "m", "position", {"resource": "g"}, resource="g", offset=3),
            done(26, "m", "position", {"resource": "g"}, resource="g", offset=2),
        ),
    ),
    ("position", "a replaced member commits", operation(7, {"epoch": 1})),
    ("position", "a replaced member reads", operation(5, {"epoch": 1})),
    ("recovery", "no write after everything was mended", operation(3, t_mono_ns=70 * S)),
    ("recovery", "a node never came back", lambda run: replace(run, notes=[*run.notes, note("lost", 5)])),
    ("recovery", "clients come late, and append in vain", healing(10, append(2, "a", 1, 0), refused(22), refused(90))),
    ("recovery", "no client comes to append", healing(10, append(2, "a", 1, 0), idle(300))),
    ("lost-write", "no replica can be read any more", lambda run: replace(run, logs=[])),
    ("zombie", "an owner that was out-claimed writes", also(append(22, "a", 1, 0))),
    ("zombie", "fence_epochs decrease along the log", swapped),
    ("zombie", "an owner writes after one who shares the slot that it left", shared(["y@0/0", "x@0/0", "z@0/0"])),
    ("zombie", "one writes in a slot that it gave back", released(done(12, "y", "append", LATE, offset=2))),
    (
        "zombie",
        "an instance of a name whose identity was replaced writes",
        also(
            done(
                22,
                "p",
                "append",
                {"value": "p@0/0", "count": 1, "producer_id": 7, "producer_epoch": 0, "seq": 0},
                offset=2,
            )
        ),
    ),
    ("epoch-uniqueness", "two owners got one fence_epoch", operation(2, epoch=1)),
    ("epoch-uniqueness", "two instances of a name got one identity", operation(10, producer_epoch=0)),
    ("slot-history", "a look shows an epoch that no client was given", also(done(30, "w", "epoch", {}, epoch=3))),
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
    (
        "stale-read",
        "a fetch does not see what another read has shown, whose append had no answer",
        also(done(22, "m", "fetch", {}, offset=3), done(24, "m", "fetch", {}, offset=2)),
    ),
    ("aborted-read", "what was refused is stored and was read", operation(3, type="fail")),
    (
        "aborted-read",
        "what was refused is in no log and was read",
        lambda run: operation(4, records=[("c@0/0", 1)])(
            also(done(22, "c", "append", {"value": "c@0/0", "count": 1}, "fail"))(run)
        ),
    ),
]
