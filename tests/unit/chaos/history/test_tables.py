from pathlib import Path

import pyarrow.parquet as pq

from stockade.chaos.history.evidence import ReplicaLog
from stockade.chaos.history.history import Event
from stockade.chaos.history.tables import HISTORY_SCHEMA, LOGS_SCHEMA, TableWriter, log_table, write_history


def test_a_history_as_a_table_says_what_its_lines_say(tmp_path: Path) -> None:
    outcome = {"state": "committed", "base_offset": 4, "last_offset": 5}
    events = [
        Event(i=0, t_mono_ns=10, process="w", type="invoke", f="append", value="w/0", count=2, epoch=7),
        Event(i=1, t_mono_ns=11, process="w", type="fail", f="append", of=0, error="PRODUCER_FENCED", outcome=outcome),
        Event(i=2, t_mono_ns=12, process="r", type="ok", f="poll", of=0, records=[("w/0", 2), ("v/3", 1)]),
    ]
    write_history(tmp_path / "history.parquet", events)
    table = pq.read_table(tmp_path / "history.parquet")
    assert table.schema.equals(HISTORY_SCHEMA)
    first, second, third = table.to_pylist()
    assert (first["i"], first["value"], first["count"], first["epoch"], first["of"]) == (0, "w/0", 2, 7, None)
    assert second["outcome"] == outcome
    assert third["records"] == [{"value": "w/0", "count": 2}, {"value": "v/3", "count": 1}]


def test_a_log_as_a_table_has_a_row_for_each_record(tmp_path: Path) -> None:
    log = ReplicaLog("n1", 3, 0, 2, [0, 1], ["w/0", "w/1"], [b"a", b"\xff"], [(5, 0, 0), None], [2, 2])
    with TableWriter(tmp_path / "logs.parquet", LOGS_SCHEMA) as file:
        file.add(log_table("t", log))
        file.add(log_table("t", ReplicaLog("n2", 3, 0, 0, [], [], [], [], [])))
    first, second = pq.read_table(tmp_path / "logs.parquet").to_pylist()
    place = {"topic": "t", "partition": 3, "replica": "n1", "writer_epoch": 2}
    assert first == place | {
        "offset": 0, "key": "w/0", "value": b"a", "producer_id": 5, "producer_epoch": 0, "sequence": 0,
    }  # fmt: skip
    assert (second["offset"], second["value"], second["producer_id"]) == (1, b"\xff", None)
