import asyncio
from pathlib import Path

from stockade.chaos.demo.stalled_writer import Order, Permission, work
from stockade.chaos.history.history import History
from stockade.partition.records.batch import decode_batch

from ...client.fake_cluster import FakeCluster

BATCH, BATCHES = 5, 40


def test_each_batch_travels_as_it_is_so_that_the_zombie_can_repeat_the_last_one(tmp_path: Path) -> None:
    """Calls that were joined in one request would be one batch, and a part of it is no batch to repeat."""
    file = tmp_path / "lines"
    file.write_text("\n".join(map(str, range(BATCH * BATCHES))) + "\n", encoding="utf-8")
    with FakeCluster().running(nodes=1) as cluster, History.create(tmp_path / "history.jsonl") as history:
        cluster.create("t")
        order = Order([*cluster.nodes], "t", str(file), "w", 0, BATCH * BATCHES, BATCH, may_send=BATCH * BATCHES)
        asyncio.run(work(order, history, Permission(order.may_send)))
        messages = cluster.machine("t", 0).log.read(0, 1 << 40).messages()
        assert [decode_batch(message).num_rows for message in messages] == [BATCH] * BATCHES
