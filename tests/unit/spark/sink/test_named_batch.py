"""Whose rows are in the topic under a name, as the sink's history tells."""

import pytest

from stockade.spark.sink.committer import NAMED_BATCH, SinkCommitter
from stockade.spark.sink.named_batch import BatchRefused, NamedBatch

from .test_committer import Sink


def write(sink: Sink, value: bytes, run: str = "r1") -> bool:
    piece = sink.stage(run, value)._replace(topic_id=sink.store.shape("out").topic_id)
    return SinkCommitter(sink.store, "s", NAMED_BATCH, run).commit(0, [piece])


def test_a_batch_was_decided_once_a_run_has_written_it() -> None:
    sink = Sink()
    batch = NamedBatch(sink.store, "s")
    assert not batch.was_decided()
    assert write(sink, b"1")
    batch.check_alone()
    assert NamedBatch(sink.store, "s").was_decided()


def test_a_batch_that_a_crash_left_undone_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    monkeypatch.setattr(SinkCommitter, "_roll", lambda self, manifest, pair: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(sink, b"1")
    monkeypatch.undo()
    assert NamedBatch(sink.store, "s").was_decided()
    assert sink.values() == [b"1"]


def test_a_run_that_was_not_alone_may_not_be_the_one_that_was_written() -> None:
    sink = Sink()
    batch = NamedBatch(sink.store, "s")
    assert write(sink, b"1", run="r1")
    assert not write(sink, b"2", run="r2")
    with pytest.raises(BatchRefused, match="by several runs at once"):
        batch.check_alone()


def test_an_older_run_that_decides_late_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    with monkeypatch.context() as patch:
        patch.setattr(SinkCommitter, "_keep", lambda self, pieces, pair: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write(sink, b"1", run="older")
    batch = NamedBatch(sink.store, "s")
    assert not batch.was_decided()
    assert write(sink, b"1", run="older")
    assert not write(sink, b"2", run="newer")
    with pytest.raises(BatchRefused):
        batch.check_alone()


@pytest.mark.parametrize("partitions", [0, 1])
def test_a_batch_of_a_topic_that_was_deleted_since_is_refused(partitions: int) -> None:
    sink = Sink()
    assert write(sink, b"1")
    for partition in range(2):
        del sink.world.machines["out", partition]
    sink.world.create("out", partitions)
    with pytest.raises(BatchRefused, match="a topic out that has been deleted since"):
        NamedBatch(sink.store, "s").was_decided()


def test_a_batch_that_was_decided_before_decisions_had_topic_ids_was_decided() -> None:
    sink = Sink()
    assert SinkCommitter(sink.store, "s", NAMED_BATCH, "r1").commit(0, [sink.stage("r1", b"1")._replace(topic_id=None)])
    assert NamedBatch(sink.store, "s").was_decided()


def test_the_history_of_a_stream_is_no_batch() -> None:
    sink = Sink()
    sink.commit(0, sink.stage("a", b"1"))
    assert not NamedBatch(sink.store, "s").was_decided()
