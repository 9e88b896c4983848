"""The audit and the checkers of chaos judge the same histories alike: each falsified one, and each honest one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import falsified_clients
import falsified_logs
import pytest
from msgspec.structs import replace
from pyspark.sql import functions as F  # noqa: N812

from stockade.chaos.checkers.verdicts import judge
from stockade.chaos.history.evidence import Evidence, ReplicaLog
from stockade.chaos.history.history import Event, Operation
from stockade.chaos.history.tables import LOGS_SCHEMA, TableWriter, log_table, write_history
from stockade.spark.pipelines.audit.audit import PASSES
from stockade.spark.pipelines.audit.evidence import read, settings

ONLY_CHAOS = {"byte-exact", "order", "slot-history"}
ONLY_AUDIT = {"phantom"}
End = frozenset[str]
"""Which marks of its end a run has. They are about a whole file, and so about all topics in it."""
DRAINED, LOST, UNREAD = frozenset({"drained"}), frozenset({"drained", "lost"}), frozenset[str]()
APART_NS = 10_000 * falsified_clients.S
"""Between two runs: the healing of one says nothing of the others."""


def runs() -> Iterator[tuple[str, Evidence]]:
    """Every run by what it has of its own. A topic each, at a time of its own."""
    logs, clients = falsified_logs.honest(), falsified_clients.honest()
    found = [
        ("as it was", logs),
        *((name, falsify(logs)) for _, name, falsify in falsified_logs.FALSIFIED),
        *((name, change(clients)) for name, change in falsified_clients.HONEST),
        *((name, falsify(clients)) for _, name, falsify in falsified_clients.FALSIFIED),
    ]
    for number, (name, run) in enumerate(found):
        yield f"{number}: {name}", moved(run, f"{number}: {name}", number)


def moved(run: Evidence, topic: str, number: int) -> Evidence:
    """The run with numbers, times, and a topic that no other run has."""

    def event(one: Event) -> Event:
        place = {"topic": topic} if one.type == "invoke" or one.of is not None else {}
        resource = one.resource and one.resource.replace(falsified_clients.RESOURCE, f"{topic}/0")
        number_of = None if one.of is None else one.of + 10_000 * number
        at_ns = one.t_mono_ns + APART_NS * number
        return replace(one, i=one.i + 10_000 * number, of=number_of, t_mono_ns=at_ns, resource=resource, **place)

    operations = [Operation(event(op.invoke), op.end and event(op.end)) for op in run.operations]
    logs, notes = [stored(log) for log in run.logs], [event(note) for note in run.notes]
    return replace(run, operations=operations, logs=logs, notes=notes)


def stored(log: ReplicaLog) -> ReplicaLog:
    """The log as its rows tell of it: the file has neither its start nor its end."""
    return replace(log, log_start=log.offsets[0], log_end=log.offsets[-1] + 1)


def end_of(run: Evidence) -> End:
    """The end of a run; without readers it is no matter whether they had the time to read."""
    has_readers = any(op.invoke.f == "poll" for op in run.operations)
    return LOST & {note.f for note in run.notes} if has_readers else DRAINED


def events_of(run: Evidence) -> list[Event]:
    return [*(event for op in run.operations for event in (op.invoke, op.end) if event is not None), *run.notes]


def judged_by_chaos(run: Evidence) -> set[str]:
    """The checkers that find a violation. Where replicas differ, the audit says so and judges the first one."""
    differ = {"inconsistent-offset"} if any(not log.same_as(run.logs[0]) for log in run.logs) else set()
    verdicts = judge(replace(run, logs=run.logs[:1], expected=None))
    return differ | {verdict.checker for verdict in verdicts if verdict.violations} - ONLY_CHAOS


def judged_by_audit(spark: Any, folder: Path, several: Mapping[str, Evidence]) -> dict[str, set[str]]:
    """The checkers that find a violation in each topic: all topics in one audit, and the passes that look at the marks
    of a file again for runs that end in another way than most.
    """
    history, logs = folder / "history.parquet", folder / "logs.parquet"
    write_history(history, (event for run in several.values() for event in events_of(run)))
    with TableWriter(logs, LOGS_SCHEMA) as table:
        for topic, run in several.items():
            for log in run.logs:
                table.add(log_table(topic, log))
    found: dict[tuple[End, str], set[tuple[str, str]]] = {}
    with settings(spark):
        evidence = read(spark, str(history), str(logs))
        for end, passes in ((DRAINED, tuple(PASSES)), (LOST, ("recovery", "replicas")), (UNREAD, ("records",))):
            seen = evidence._replace(marks=evidence.marks.where(F.col("f").isin("healed", "heal", *end)))
            for name in passes:
                rows = PASSES[name](seen).select("topic", "checker").distinct().collect()
                found[end, name] = {(row["topic"], row["checker"]) for row in rows}
        evidence.forget()
    return {
        topic: {
            checker
            for name in PASSES
            for at, checker in found.get((end_of(run), name), found[DRAINED, name])
            if at == topic and checker not in ONLY_AUDIT
        }
        for topic, run in several.items()
    }


@pytest.mark.timeout(600)
def test_the_audit_finds_in_each_falsified_history_what_chaos_finds(spark: Any, tmp_path: Path) -> None:
    several = dict(runs())
    chaos = {topic: judged_by_chaos(run) for topic, run in several.items()}
    audit = judged_by_audit(spark, tmp_path, several)
    different = {topic: (chaos[topic], audit[topic]) for topic in several if chaos[topic] != audit[topic]}
    assert different == {}, "(chaos, audit)"
