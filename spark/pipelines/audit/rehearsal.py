"""Makes up a history of any size, and its logs, without violations; planted.py adds one fault of each kind.

The audit is rehearsed on these: it must find every planted fault, and nothing else.
"""

from typing import Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

PARTITIONS = 16
REPLICAS = ("n1", "n2", "n3")
STEP_NS = 1_000_000
"""Time between two appends to one partition, in ns."""
TENURES = 5
"""Writers that follow each other in a partition, each with an epoch of its own."""
EVENTS_PER_APPEND = 2.12
POLLED = 100
"""Records in the answer of a poll."""

HISTORY = (
    "i long, t_mono_ns long, process string, type string, f string, of long, topic string, partition int, epoch long,"
    " producer_id long, producer_epoch int, seq int, value string, count int, offset long, log_end long,"
    " records array<struct<value: string, count: int>>, resource string, generation long, node string, error string,"
    " outcome struct<state: string, base_offset: long, last_offset: long>"
)
LOGS = (
    "topic string, partition int, replica string, offset long, key string, value binary, writer_epoch long,"
    " producer_id long, producer_epoch int, sequence int"
)


class Size(NamedTuple):
    """The size of a rehearsal: ``per`` records in each partition, ``tenure`` of them from each writer."""

    per: int
    tenure: int


def size_of(events: int) -> Size:
    """The size of a history with about so many events."""
    per = max(TENURES * 200, round(events / EVENTS_PER_APPEND / PARTITIONS))
    tenure = per // TENURES // POLLED * POLLED
    return Size(tenure * TENURES, tenure)


def history(spark: Any, size: Size) -> Any:
    """The events of a run without violations; some of its appends are refused, or have an unknown outcome."""
    n = spark.range(size.per * PARTITIONS).select(
        F.expr(f"cast(id % {PARTITIONS} as int)").alias("p"), F.expr(f"id div {PARTITIONS}").alias("n")
    )
    n = n.withColumn("e", F.expr(f"n div {size.tenure} + 1")).withColumn("w", F.expr("concat('w', p, '-', e)"))
    parts = [_appends(n, size), _refused(n), _fetches(n), _polls(n, size), _grants(n, size), _commits(n)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part, allowMissingColumns=True)
    typed = spark.createDataFrame([], HISTORY)
    return typed.unionByName(whole.withColumn("topic", F.lit("t")), allowMissingColumns=True)


def logs(spark: Any, size: Size) -> Any:
    """The logs of all replicas after the run of ``history``."""
    rows = spark.range(size.per * PARTITIONS).selectExpr(
        "'t' as topic",
        f"cast(id % {PARTITIONS} as int) as partition",
        f"id div {PARTITIONS} as offset",
        f"id div {PARTITIONS} div {size.tenure} + 1 as writer_epoch",
    )
    return rows.selectExpr(
        *("topic", "partition", "offset"),
        f"concat('w', partition, '-', writer_epoch, '/', offset % {size.tenure}) as key",
        "cast(rpad(cast(offset as string), 40, '.') as binary) as value",
        "writer_epoch",
        "1000L + partition as producer_id",
        "cast(writer_epoch as int) as producer_epoch",
        f"cast(offset % {size.tenure} as int) as sequence",
    ).crossJoin(spark.createDataFrame([(name,) for name in REPLICAS], "replica string"))


def _appends(n: Any, size: Size) -> Any:
    about = {
        "value": f"concat(w, '/', n % {size.tenure})",
        "count": "1",
        "epoch": "e",
        "producer_id": "1000L + p",
        "producer_epoch": "cast(e as int)",
        "seq": f"cast(n % {size.tenure} as int)",
    }
    kind = "if(n % 1000 = 7, 'info', 'ok')"
    return _both(n, 0, "append", "w", (0, 0.4), kind, about, {**about, "offset": "if(n % 1000 = 7, null, n)"})


def _refused(n: Any) -> Any:
    about = {"value": "concat(w, '/', 1000000000 + n)", "count": "1", "epoch": "e"}
    return _both(n.where("n % 1000 = 8"), 1, "append", "w", (0.41, 0.45), "'fail'", about, about)


def _fetches(n: Any) -> Any:
    return _both(n.where("n % 20 = 3"), 2, "fetch", "concat('r', p)", (0.5, 0.6), "'ok'", {}, {"offset": "n + 1"})


def _polls(n: Any, size: Size) -> Any:
    first = f"concat(w, '/', (n - {POLLED - 1}) % {size.tenure})"
    shown = {
        "offset": "n + 1",
        "log_end": "n + 1",
        "records": f"array(named_struct('value', {first}, 'count', {POLLED}))",
    }
    wanted = {"offset": f"n - {POLLED - 1}"}
    chosen = n.where(f"n % {POLLED} = {POLLED - 1}")
    return _both(chosen, 3, "poll", "concat('c', p)", (0.7, 0.8), "'ok'", wanted, shown)


def _grants(n: Any, size: Size) -> Any:
    return _both(n.where(f"n % {size.tenure} = 0"), 4, "acquire", "w", (-0.3, -0.2), "'ok'", {}, {"epoch": "e"})


def _commits(n: Any) -> Any:
    about = {"offset": "n + 1", "resource": "'group'"}
    return _both(n.where("n % 1000 = 999"), 5, "commit", "concat('c', p)", (0.85, 0.9), "'ok'", about, about)


def _both(
    n: Any,
    number: int,
    f: str,
    process: str,
    span: tuple[float, float],
    kind: str,
    begun: dict[str, str],
    ended: dict[str, str],
) -> Any:
    """The invocation and the end of an operation for each ``n``; ``span``: when they are, in steps after step ``n``."""
    i = f"(n * {PARTITIONS} + p) * 16 + {2 * number}"
    common = {"process": process, "f": f"'{f}'", "partition": "p"}
    times = [f"n * {STEP_NS} + {int((1 + at) * STEP_NS)}" for at in span]
    invoke = {"i": i, "t_mono_ns": times[0], "type": "'invoke'", **common, **begun}
    end = {"i": f"{i} + 1", "of": i, "t_mono_ns": times[1], "type": kind, **common, **ended}
    rows = [n.selectExpr(*(f"{text} as {name}" for name, text in each.items())) for each in (invoke, end)]
    return rows[0].unionByName(rows[1], allowMissingColumns=True)
