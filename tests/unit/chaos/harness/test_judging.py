"""A history is judged partition by partition, from memory and from files alike."""

from pathlib import Path

import msgspec

from stockade.chaos.checkers.verdicts import VIOLATIONS_SHOWN_MAX, Verdict
from stockade.chaos.harness.judging import Extent, Judgement, judge_events, judge_files
from stockade.chaos.history.evidence import ReplicaLog
from stockade.chaos.history.history import Event, payload
from stockade.chaos.history.tables import LOGS_SCHEMA, TableWriter, log_table

NAMES = ["w@0/0", "w@0/1"]


def stored(node: str, names: list[str]) -> ReplicaLog:
    values = [payload("w@0", k) or b"" for k in range(len(names))]
    stamps = [(7, 0, k) for k in range(len(names))]
    return ReplicaLog(node, 0, 0, len(names), range(len(names)), names, values, stamps, [0] * len(names))


def acknowledged(i: int, topic: str) -> list[Event]:
    about = {"process": "w", "f": "append", "topic": topic, "partition": 0, "value": "w@0/0", "count": 2}
    stamp = {"producer_id": 7, "producer_epoch": 0, "seq": 0}
    return [
        msgspec.convert({"i": i, "t_mono_ns": 10 * i, "type": "invoke", **about, **stamp}, Event),
        msgspec.convert({"i": i + 1, "t_mono_ns": 10 * i + 5, "type": "ok", "of": i, "offset": 0, **about}, Event),
    ]


def test_a_round_that_could_not_be_carried_out_takes_no_verdict_away() -> None:
    judged = Judgement([Verdict("lost-write", "none is lost", 0, [], 3)], 2, 1)
    assert judged.plus(Judgement()) == Judgement().plus(judged) == judged


def test_the_verdict_of_a_run_adds_up_all_its_rounds() -> None:
    def of_round(violations: int, number: int) -> Judgement:
        examples = [f"round {number}"] * min(violations, VIOLATIONS_SHOWN_MAX - 1)
        return Judgement([Verdict("order", "in order", violations, examples, 10), Verdict("gap", "dense", 0, [])], 2, 1)

    whole = of_round(0, 1).plus(of_round(30, 2)).plus(of_round(2, 3))
    order, gap = whole.verdicts
    assert (whole.violations, whole.operations, whole.records) == (32, 6, 3)
    assert (order.violations, order.checked) == (32, 30)
    assert order.examples == ["round 2"] * (VIOLATIONS_SHOWN_MAX - 1) + ["round 3"]
    assert (gap.checker, gap.violations) == ("gap", 0)


def test_a_run_in_files_is_judged_as_in_memory(tmp_path: Path) -> None:
    events = [*acknowledged(1, "whole"), *acknowledged(3, "torn")]
    logs = {
        ("whole", 0): [stored("n1", NAMES), stored("n2", NAMES)],
        ("torn", 0): [stored("n1", NAMES), stored("n2", NAMES[:1])],
    }
    with TableWriter(tmp_path / "logs.parquet", LOGS_SCHEMA) as table:
        for (topic, _), replicas in logs.items():
            for log in replicas:
                table.add(log_table(topic, log))
    (tmp_path / "history.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    extents = [
        Extent(topic, partition, log.node, log.log_start, log.log_end)
        for (topic, partition), replicas in logs.items()
        for log in replicas
    ]
    from_files = judge_files(tmp_path / "history.jsonl", tmp_path / "logs.parquet", extents)
    assert from_files == judge_events(events, logs)
    found = {verdict.checker: verdict.violations for verdict in from_files.verdicts if verdict.violations}
    assert found == {"lost-write": 1, "inconsistent-offset": 1}


def test_a_topic_of_which_no_replica_can_be_read_has_lost_what_it_acknowledged() -> None:
    judged = judge_events(acknowledged(1, "gone"), {})
    assert {verdict.checker for verdict in judged.verdicts if verdict.violations} == {"lost-write"}


def test_a_partition_without_a_leader_fails_alone() -> None:
    told = {"i": 5, "t_mono_ns": 99, "process": "nemesis", "type": "info", "f": "lost", "node": "all"}
    lost = msgspec.convert(told | {"topic": "torn", "partition": 0, "error": "no leader"}, Event)
    events = [*acknowledged(1, "sound"), *acknowledged(3, "torn"), lost]
    judged = judge_events(events, {("sound", 0): [stored("n1", NAMES)]})
    assert {each.checker: each.violations for each in judged.verdicts if each.violations} == {
        "lost-write": 1,
        "recovery": 1,
    }
