"""Plants every kind of fault once into a rehearsed history, and counts the violations that the audit must find.

Each fault at a log's end has a partition of its own, so that no other fault at an end affects its verdict.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from .rehearsal import HISTORY, LOGS, PARTITIONS, REPLICAS, STEP_NS, TENURES, Size

_FIRST_OP = 1 << 60
"""Number of the first planted event, above every number of the rehearsal."""


@dataclass
class Planted:
    """The events and log rows to add, and the number of violations that each checker must find."""

    size: Size
    events: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    expected: Counter[str] = field(default_factory=Counter)

    def op(self, f: str, kind: str, p: int | None, at: float, *, end: dict[str, Any], **about: Any) -> None:
        """Add an operation that begins at ``at``, in steps of the rehearsal; ``kind`` and ``end`` are how it ends."""
        i = _FIRST_OP + 2 * len(self.events)
        t = int((1 + at) * STEP_NS)
        common = {"f": f, "topic": "t", "partition": p, "process": f"odd{i}", **about}
        self.events.append({"i": i, "t_mono_ns": t, "type": "invoke", **common})
        self.events.append({**common, "i": i + 1, "of": i, "t_mono_ns": t + STEP_NS // 10, "type": kind, **end})

    def append(self, kind: str, p: int, at: float, value: str, *, offset: int | None = None, **about: Any) -> None:
        """Add an append of one record."""
        self.op("append", kind, p, at, end={"offset": offset}, value=value, count=1, **about)

    def poll(self, p: int, at: float, start: int, value: str, *, asked: int | None = None, **about: Any) -> None:
        """Add a poll that is answered with one record, at ``start``; ``asked`` for this offset (None: ``start``)."""
        end = {"offset": start + 1, "log_end": int(at) + 1, "records": [(value, 1)]}
        self.op("poll", "ok", p, at, end=end, offset=start if asked is None else asked, **about)

    def note(self, f: str, at: float) -> None:
        """Add an event of the nemesis."""
        i, t = _FIRST_OP + 2 * len(self.events), int((1 + at) * STEP_NS)
        self.events.append({"i": i, "t_mono_ns": t, "process": "nemesis", "type": "info", "f": f})

    def row(self, p: int, key: str, *, offset: int | None = None, epoch: int = TENURES, **stamp: Any) -> None:
        """Add a record to every replica's log, behind the last record of the partition unless ``offset`` says where."""
        place = {"topic": "t", "partition": p, "offset": self.size.per if offset is None else offset}
        for name in REPLICAS:
            self.rows.append({**place, "replica": name, "key": key, "value": b"", "writer_epoch": epoch, **stamp})

    def name(self, p: int, n: int) -> str:
        """The name of the record that the rehearsal has at offset ``n``."""
        return f"w{p}-{n // self.size.tenure + 1}/{n % self.size.tenure}"


def plant(size: Size) -> Planted:
    """Plant every kind of fault."""
    planted = Planted(size)
    for p, at_end in enumerate(_AT_THE_END):
        planted.expected.update(at_end(planted, p))
    for number, inside in enumerate(_INSIDE):
        planted.expected.update(inside(planted, number % PARTITIONS, size.per // 2 + 11 * number))
    planted.expected["inconsistent-offset"] += 2  # the replicas of ``damaged`` and ``empty``
    return planted


def with_events(spark: Any, history: Any, planted: Planted) -> Any:
    """The history, with the events that were planted."""
    return history.unionByName(_frame(spark, planted.events, HISTORY, history))


def with_rows(spark: Any, logs: Any, planted: Planted) -> Any:
    """The logs with the planted rows; one replica has a damaged value, and one of another partition no records."""
    damaged = f"partition = 0 and offset = {planted.size.per // 3} and replica = '{REPLICAS[-1]}'"
    value = F.when(F.expr(damaged), F.lit(b"damaged")).otherwise(F.col("value"))
    empty = f"partition = {PARTITIONS - 1} and replica = '{REPLICAS[-1]}'"
    held = logs.withColumn("value", value).where(f"not ({empty})")
    return held.unionByName(_frame(spark, planted.rows, LOGS, logs))


def _frame(spark: Any, rows: list[dict[str, Any]], schema: str, like: Any) -> Any:
    names = [each.split()[0] for each in schema.split(", ") if ":" not in each.split(" ")[0]]
    typed = spark.createDataFrame([], schema)
    tuples = [tuple(row.get(name) for name in typed.columns) for row in rows]
    assert set(like.columns) <= set(typed.columns), names
    return spark.createDataFrame(tuples, typed.schema)


def _strange(p: int, number: int) -> str:
    """The name of a record of the last writer that the rehearsal does not have."""
    return f"w{p}-{TENURES}/{2_000_000_000 + number}"


def _duplicate(x: Planted, p: int) -> dict[str, int]:
    x.row(p, x.name(p, x.size.per - 9))
    return {"duplicate": 1, "inconsistent-offset": 2}  # it was acknowledged, and read, at one of two offsets


def _repeated_stamp(x: Planted, p: int) -> dict[str, int]:
    x.append("info", p, x.size.per, _strange(p, 1))
    x.row(p, _strange(p, 1), producer_id=1000 + p, producer_epoch=TENURES, sequence=3)
    return {"duplicate": 1, "sequence-order": 1}


def _aborted(x: Planted, p: int) -> dict[str, int]:
    x.append("fail", p, x.size.per, _strange(p, 2))
    x.row(p, _strange(p, 2))
    return {"aborted-read": 1}


def _gap(x: Planted, p: int) -> dict[str, int]:
    x.append("info", p, x.size.per, _strange(p, 3))
    x.row(p, _strange(p, 3), offset=x.size.per + 1)
    return {"gap": 1}


def _sequence(x: Planted, p: int) -> dict[str, int]:
    x.append("info", p, x.size.per, _strange(p, 4))
    x.row(p, _strange(p, 4), producer_id=1000 + p, producer_epoch=TENURES, sequence=x.size.tenure + 5)
    return {"sequence-order": 1}


def _older_epoch(x: Planted, p: int) -> dict[str, int]:
    key = f"w{p}-{TENURES - 1}/2000000005"
    x.append("info", p, x.size.per, key, epoch=TENURES - 1)
    x.row(p, key, epoch=TENURES - 1)
    return {"zombie": 1}


def _two_writers(x: Planted, p: int) -> dict[str, int]:
    x.append("info", p, x.size.per, "stranger/0", epoch=TENURES)
    x.row(p, "stranger/0")
    return {"zombie": 1}


def _other_epoch(x: Planted, p: int) -> dict[str, int]:
    x.append("info", p, x.size.per, _strange(p, 6), epoch=77)
    x.row(p, _strange(p, 6))
    return {"zombie": 1}


def _older_producer_epoch(x: Planted, p: int) -> dict[str, int]:
    for step, epoch in enumerate((2, 1)):
        name = f"w{p}-{TENURES}/{2_000_000_010 + step}"
        x.append("info", p, x.size.per, name)
        x.row(p, name, offset=x.size.per + step, producer_id=7, producer_epoch=epoch, sequence=0)
    return {"zombie": 1}


def _shared_identity(x: Planted, p: int) -> dict[str, int]:
    x.append("info", p, x.size.per, "guest/0")
    x.row(p, "guest/0", producer_id=1000 + p, producer_epoch=TENURES, sequence=x.size.tenure)
    return {"zombie": 1}


def _older_fence_epoch(x: Planted, p: int) -> dict[str, int]:
    for step, epoch in enumerate((2, 1)):
        name = f"w{p}-{TENURES}/{2_000_000_020 + step}"
        x.append("info", p, x.size.per, name, resource="older", epoch=epoch)
        x.row(p, name, offset=x.size.per + step)
    return {"zombie": 1}


def _unseen(x: Planted, p: int) -> dict[str, int]:
    x.note("drained", x.size.per)
    x.append("ok", p, x.size.per, _strange(p, 7), offset=x.size.per)
    x.row(p, _strange(p, 7))
    return {"unseen": 1}


def _phantom(x: Planted, p: int) -> dict[str, int]:
    x.row(p, _strange(p, 8))
    return {"phantom": 1}


def _lost(x: Planted, p: int, n: int) -> dict[str, int]:
    x.append("ok", p, n, "lost/0", offset=n)
    return {"lost-write": 1, "unseen": 1}


def _vanished(x: Planted, p: int, n: int) -> dict[str, int]:
    x.append("info", p, n, "vanished/0")
    x.poll(p, n, n, "vanished/0")
    return {"lost-write": 1}


def _acked_elsewhere(x: Planted, p: int, n: int) -> dict[str, int]:
    x.append("ok", p, n + 2, x.name(p, n), offset=n + 1)
    return {"inconsistent-offset": 1}


def _read_elsewhere(x: Planted, p: int, n: int) -> dict[str, int]:
    x.poll(p, n + 9, n, x.name(p, n + 5))
    return {"inconsistent-offset": 1}


def _went_back(x: Planted, p: int, n: int) -> dict[str, int]:
    x.poll(p, n + 9, n - 5, x.name(p, n - 5), asked=n)
    return {"nonmonotonic-poll": 1}


def _skipped(x: Planted, p: int, n: int) -> dict[str, int]:
    x.poll(p, n + 9, n + 5, x.name(p, n + 5), asked=n)
    return {"skipped-poll": 1}


def _sent_backwards(x: Planted, p: int, n: int) -> dict[str, int]:
    for offset in (n + 1, n):
        x.append("ok", p, n + 9, x.name(p, offset), offset=offset, process="s-back")
    return {"nonmonotonic-send": 1}


def _late_success(x: Planted, p: int, n: int) -> dict[str, int]:
    x.append("ok", p, n, x.name(p, 0), offset=0, epoch=1)
    return {"zombie": 1}


def _granted_twice(x: Planted, p: int, n: int) -> dict[str, int]:
    # Of the first epoch: a grant of the last one would make zombies of all other writers.
    x.op("acquire", "ok", p, n, end={"epoch": 1}, process="thief")
    return {"epoch-uniqueness": 1}


def _late_owner(x: Planted, p: int, n: int) -> dict[str, int]:
    for epoch in (1, 2):
        x.op("own", "ok", p, n - 9 + epoch, end={"epoch": epoch}, resource="late")
    x.append("ok", p, n, x.name(p, n), offset=n, resource="late", epoch=1)
    return {"zombie": 1}


def _late_producer(x: Planted, p: int, n: int) -> dict[str, int]:
    for epoch in (1, 2):
        x.op("init", "ok", None, n - 9 + epoch, end={"producer_id": 8, "producer_epoch": epoch}, value="late")
    x.append("ok", p, n, x.name(p, n), offset=n, producer_id=8, producer_epoch=1, seq=0)
    return {"zombie": 1}


def _named_twice(x: Planted, p: int, n: int) -> dict[str, int]:
    for _ in range(2):
        x.op("init", "ok", None, n, end={"producer_id": 9, "producer_epoch": 0}, value="twice")
    return {"epoch-uniqueness": 1}


def _stale(x: Planted, p: int, n: int) -> dict[str, int]:
    x.op("fetch", "ok", p, n, end={"offset": n // 2})
    return {"stale-read": 1}


def _stale_poll(x: Planted, p: int, n: int) -> dict[str, int]:
    x.op("poll", "ok", p, n, end={"offset": 1, "log_end": 1, "records": [(x.name(p, 0), 1)]}, offset=0)
    return {"stale-read": 1}


def _certified_absent(x: Planted, p: int, n: int) -> dict[str, int]:
    _certificate(x, p, n, ("absent", None, None))
    return {"outcome-certificate": 1}


def _certified_elsewhere(x: Planted, p: int, n: int) -> dict[str, int]:
    _certificate(x, p, n, ("committed", n + 1, n + 1))
    return {"outcome-certificate": 1}


def _certified_to_another_end(x: Planted, p: int, n: int) -> dict[str, int]:
    _certificate(x, p, n, ("committed", n, n + 1))
    return {"outcome-certificate": 1}


def _certificate(x: Planted, p: int, n: int, outcome: tuple[str, int | None, int | None]) -> None:
    epoch, seq = n // x.size.tenure + 1, n % x.size.tenure
    stamp = {"producer_id": 1000 + p, "producer_epoch": epoch, "seq": seq, "epoch": epoch}
    x.op("append", "info", p, n + 9, end={"outcome": outcome}, value=x.name(p, n), count=1, **stamp)


def _position_back(x: Planted, p: int, n: int) -> dict[str, int]:
    for step, offset in enumerate((n, n - 5)):
        x.op("commit", "ok", p, n + 9 + step, end={}, resource="g-back", offset=offset)
    return {"position": 1}


def _replaced_member(x: Planted, p: int, n: int) -> dict[str, int]:
    for epoch in (4, 5):
        x.op("own", "ok", p, n + epoch, end={"epoch": epoch}, resource=f"t/{p}")
    x.op("commit", "ok", p, n + 9, end={}, resource="g-fenced", offset=n, epoch=4)
    x.poll(p, n + 9, n, x.name(p, n), epoch=4)
    return {"position": 2}


def _no_recovery(x: Planted, p: int, n: int) -> dict[str, int]:
    healed = x.size.per + 1_000_000
    x.append("info", PARTITIONS, n, "quiet/0")
    x.note("healed", healed)
    x.append("info", PARTITIONS, healed + 11_000, "quiet/1")
    return {"recovery": 1}


def _no_poll_answered(x: Planted, p: int, n: int) -> dict[str, int]:
    alone = PARTITIONS + 1
    x.append("ok", alone, n, "unread/0", offset=0)
    x.row(alone, "unread/0", offset=0)
    x.op("poll", "info", alone, n + 1, end={}, offset=0)
    return {"unseen": 1}


_AT_THE_END: tuple[Callable[[Planted, int], dict[str, int]], ...] = (
    *(_duplicate, _repeated_stamp, _aborted, _gap, _sequence),
    *(_older_epoch, _two_writers, _other_epoch, _unseen, _phantom),
    *(_older_producer_epoch, _shared_identity, _older_fence_epoch),
)
_INSIDE: tuple[Callable[[Planted, int, int], dict[str, int]], ...] = (
    *(_lost, _vanished, _acked_elsewhere, _read_elsewhere, _went_back, _skipped, _sent_backwards, _late_success),
    *(_late_owner, _late_producer, _granted_twice, _named_twice, _stale, _stale_poll),
    *(_certified_absent, _certified_elsewhere, _certified_to_another_end, _position_back, _replaced_member),
    *(_no_recovery, _no_poll_answered),
)


def kinds() -> Iterator[str]:
    """The names of the kinds of faults."""
    yield from (each.__name__.strip("_").replace("_", " ") for each in (*_AT_THE_END, *_INSIDE))
