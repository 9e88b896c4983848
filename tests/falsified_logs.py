"""A run of one partition whose writer is replaced, with the logs of three replicas, and each way to falsify it.

For the checkers of chaos and for the Spark audit, which must judge alike.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stockade.chaos.history.evidence import Evidence, ReplicaLog
from stockade.chaos.history.history import Event, Operation, record_name

PID, ZOMBIE_PID = 8, 6
BATCH = 2
LINES = [b"line %d" % k for k in range(12)]


def payload(writer: str, index: int) -> bytes | None:
    return LINES[index] if writer in {"old", "new"} and 0 <= index < len(LINES) else None


def append(i: int, writer: str, first: int, epoch: int, *, pid: int, seq: int, **end: Any) -> Operation:
    value = record_name(writer, first)
    about: dict[str, Any] = {
        "process": writer,
        "f": "append",
        "partition": 0,
        "value": value,
        "count": BATCH,
        "epoch": epoch,
    }
    invoke = Event(i=i, t_mono_ns=i * 10, type="invoke", producer_id=pid, producer_epoch=0, seq=seq, **about)
    return Operation(invoke, Event(i=i + 1, t_mono_ns=i * 10 + 5, of=i, **about, **end) if end else None)


def acquire(i: int, writer: str, epoch: int) -> Operation:
    about: dict[str, Any] = {"process": writer, "f": "acquire", "partition": 0}
    return Operation(
        Event(i=i, t_mono_ns=i * 10, type="invoke", **about),
        Event(i=i + 1, t_mono_ns=i * 10 + 5, type="ok", of=i, epoch=epoch, **about),
    )


def read(i: int, log_end: int, last: int) -> Operation:
    about: dict[str, Any] = {"process": "reader", "f": "fetch", "partition": 0}
    value = record_name("old", last)
    return Operation(
        Event(i=i, t_mono_ns=i * 10, type="invoke", **about),
        Event(i=i + 1, t_mono_ns=i * 10 + 5, type="ok", of=i, offset=log_end, value=value, count=1, **about),
    )


FENCED = {"type": "fail", "error": "PRODUCER_FENCED"}
ABSENT = {"state": "absent", "base_offset": None, "last_offset": None}
COMMITTED = {"state": "committed", "base_offset": 2, "last_offset": 3}


def honest_operations() -> list[Operation]:
    """``old`` writes 0..3 for sure and 4..5 without hearing of it; ``new`` goes on; ``old`` is refused."""
    return [
        acquire(0, "old", 1),
        append(10, "old", 0, 1, pid=ZOMBIE_PID, seq=0, type="ok", offset=0),
        append(20, "old", 2, 1, pid=ZOMBIE_PID, seq=2, type="ok", offset=2),
        append(30, "old", 4, 1, pid=ZOMBIE_PID, seq=4),
        read(40, 6, 5),
        acquire(50, "new", 2),
        append(60, "new", 6, 2, pid=PID, seq=0, type="ok", offset=6),
        append(70, "old", 6, 1, pid=ZOMBIE_PID, seq=6, **FENCED, outcome=ABSENT),
        append(80, "old", 2, 1, pid=ZOMBIE_PID, seq=2, **FENCED, outcome=COMMITTED),
        append(90, "new", 8, 2, pid=PID, seq=2, type="ok", offset=8),
    ]


def honest_log(node: str) -> ReplicaLog:
    writers = ["old"] * 6 + ["new"] * 4
    stamps = [(ZOMBIE_PID, 0, k) for k in range(6)] + [(PID, 0, k) for k in range(4)]
    return ReplicaLog(
        node=node,
        partition=0,
        log_start=0,
        log_end=10,
        offsets=list(range(10)),
        names=[record_name(writer, k) for k, writer in enumerate(writers)],
        values=LINES[:10],
        stamps=stamps,
        writer_epochs=[1] * 6 + [2] * 4,
    )


def honest() -> Evidence:
    return Evidence(honest_operations(), [honest_log(node) for node in ("n1", "n2", "n3")], payload, {0: 10})


Falsify = Callable[[Evidence], Evidence]


def on_every_replica(change: Callable[[ReplicaLog], ReplicaLog]) -> Falsify:
    return lambda run: replace(run, logs=[change(log) for log in run.logs])


def rows(log: ReplicaLog, picked: list[int]) -> ReplicaLog:
    """The log made of these rows, with dense offsets."""
    return replace(
        log,
        log_end=len(picked),
        offsets=list(range(len(picked))),
        names=[log.names[k] for k in picked],
        values=[log.values[k] for k in picked],
        stamps=[log.stamps[k] for k in picked],
        writer_epochs=[log.writer_epochs[k] for k in picked],
    )


def with_item(column: str, row: int, item: object) -> Callable[[ReplicaLog], ReplicaLog]:
    def change(log: ReplicaLog) -> ReplicaLog:
        items = list(getattr(log, column))
        items[row] = item
        return replace(log, **{column: items})

    return change


def on_one_replica(change: Callable[[ReplicaLog], ReplicaLog]) -> Falsify:
    return lambda run: replace(run, logs=[*run.logs[:2], change(run.logs[2])])


def operation(position: int, **end: Any) -> Falsify:
    def change(run: Evidence) -> Evidence:
        operations = list(run.operations)
        op = operations[position]
        assert op.end is not None
        operations[position] = replace(op, end=replace(op.end, **end))
        return replace(run, operations=operations)

    return change


FALSIFIED: list[tuple[str, str, Falsify]] = [
    (
        "lost-write",
        "the last acknowledged batch is gone",
        on_every_replica(lambda log: rows(log, list(range(8)))),
    ),
    ("lost-write", "one replica lost it", on_one_replica(lambda log: rows(log, list(range(8))))),
    (
        "lost-write",
        "what a read had shown is gone",
        on_every_replica(lambda log: rows(log, [0, 1, 2, 3, 6, 7, 8, 9])),
    ),
    ("inconsistent-offset", "a replica has another record", on_one_replica(with_item("names", 5, "old/55"))),
    ("inconsistent-offset", "a replica has other bytes", on_one_replica(with_item("values", 5, b"other"))),
    ("inconsistent-offset", "a replica is shorter", on_one_replica(lambda log: rows(log, list(range(9))))),
    ("inconsistent-offset", "an ack names another offset", operation(2, offset=3)),
    ("inconsistent-offset", "a read saw another offset", operation(4, offset=7)),
    (
        "duplicate",
        "a record is there twice",
        on_every_replica(lambda log: rows(log, [0, 1, 1, *range(2, 10)])),
    ),
    ("duplicate", "a record is there twice, under two stamps", on_every_replica(with_item("names", 1, "old/0"))),
    ("duplicate", "a stamp is there twice", on_every_replica(with_item("stamps", 1, (ZOMBIE_PID, 0, 0)))),
    ("byte-exact", "a flipped byte", on_every_replica(with_item("values", 3, b"line X"))),
    ("byte-exact", "a record that no client sent", on_every_replica(with_item("names", 3, "stranger/3"))),
    ("byte-exact", "a record that its writer never sent", on_every_replica(with_item("names", 9, "old/9"))),
    ("byte-exact", "a record without a name", on_every_replica(with_item("names", 3, ""))),
    (
        "order",
        "two records changed places",
        on_every_replica(lambda log: rows(log, [0, 2, 1, *range(3, 10)])),
    ),
    (
        "order",
        "a record is there twice in succession",
        lambda run: replace(on_one_replica(lambda log: rows(log, [0, 1, 1, 2]))(run), expected=None),
    ),
    ("order", "the expected log is not complete", on_every_replica(lambda log: rows(log, list(range(9))))),
    ("order", "the successor left a line out", on_every_replica(lambda log: rows(log, [*range(6), 7, 8, 9]))),
    ("nonmonotonic-send", "a later ack at a lower offset", operation(2, offset=0)),
    ("gap", "an offset is missing", on_every_replica(lambda log: replace(log, offsets=[*range(9), 10]))),
    ("gap", "the log ends before its end", on_every_replica(lambda log: replace(log, log_end=11))),
    (
        "sequence-order",
        "a sequence number is left out",
        on_every_replica(with_item("stamps", 9, (PID, 0, 4))),
    ),
    ("sequence-order", "a producer starts above 0", on_every_replica(with_item("stamps", 0, (4, 0, 7)))),
    ("aborted-read", "a refused batch is stored", on_every_replica(with_item("names", 6, "old/6"))),
    (
        "aborted-read",
        "a read showed a refused batch that is not stored",
        lambda run: on_every_replica(lambda log: rows(log, [0, 1, 2, 3]))(
            replace(run, operations=[append(30, "old", 4, 1, pid=ZOMBIE_PID, seq=4, **FENCED), read(40, 6, 5)])
        ),
    ),
    ("stale-read", "a read misses what was acknowledged", operation(4, offset=3)),
    ("zombie", "an epoch goes down", on_every_replica(with_item("writer_epochs", 8, 1))),
    ("zombie", "two writers within one epoch", on_every_replica(with_item("names", 8, "old/8"))),
    (
        "zombie",
        "stored under an epoch it was not sent with",
        on_every_replica(with_item("writer_epochs", 9, 3)),
    ),
    ("zombie", "an append under the old epoch succeeds", operation(7, type="ok", offset=10, outcome=None)),
    ("zombie", "a producer epoch goes down", on_every_replica(with_item("stamps", 0, (PID, 1, 0)))),
    ("zombie", "two writers under one producer id", on_every_replica(with_item("stamps", 9, (ZOMBIE_PID, 0, 6)))),
    ("epoch-uniqueness", "the same epoch twice", operation(5, epoch=1)),
    ("outcome-certificate", "absent, but stored", operation(8, outcome=ABSENT)),
    ("outcome-certificate", "committed, but not there", operation(7, outcome=COMMITTED)),
    (
        "outcome-certificate",
        "committed, but only in part",
        lambda run: operation(8, outcome={"state": "committed", "base_offset": None, "last_offset": None})(
            on_every_replica(with_item("stamps", 3, None))(run)
        ),
    ),
    ("outcome-certificate", "committed elsewhere", operation(8, outcome={**COMMITTED, "base_offset": 4})),
    ("outcome-certificate", "committed, but to another end", operation(8, outcome={**COMMITTED, "last_offset": 4})),
]
