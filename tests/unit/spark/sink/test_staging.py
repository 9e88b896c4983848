"""An attempt of a task that fails takes its stages with it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from stockade.client.blocking.writer import Pair, TopicShape
from stockade.client.errors import ClusterUnreachable
from stockade.partition.errors import LeaderNotAvailable, StockadeError, ThrottlingQuotaExceeded
from stockade.spark.sink.committer import DISCARD_S, discard
from stockade.spark.sink.history import Piece
from stockade.spark.sink.staging import stage_rows

ROWS = pa.record_batch({"value": [b"x" * 300, b"y" * 300, b"z" * 300]})


class Stages:
    """Takes so many stages of a batch each; stores the next one, too, although it raises ``failure``."""

    def __init__(self, most: int, failure: StockadeError) -> None:
        self.names: set[str] = set()
        self.deletes_refused = False
        self.without_leader: int | None = None
        self.before_delete: Callable[[], None] = lambda: None
        self.asked = 0
        self._most, self._failure = most, failure

    def shape(self, name: str) -> TopicShape:
        return TopicShape(1, 500, 7)

    def put_stage(self, topic: str, partition: int, name: str, stream: bytes) -> None:
        self.names.add(name)
        if len(self.names) > self._most:
            raise self._failure

    def init_producer(self, name: str | None, nonce: str, *, patience_s: float | None = None) -> Pair:
        assert patience_s is not None and patience_s < 20
        self.asked += 1
        return Pair(1, 0)

    def delete_stages(
        self, topic: str, partition: int, names: Sequence[str], pair: Pair, *, patience_s: float | None = None
    ) -> None:
        assert patience_s is not None and patience_s < 20
        self.before_delete()
        if self.deletes_refused or partition == self.without_leader:
            raise LeaderNotAvailable
        self.names -= set(names)


def stage(stages: Any, batches: Iterator[pa.RecordBatch]) -> int:
    return len(stage_rows(batches, stages, "t", "s~", 0))


def failing() -> Iterator[pa.RecordBatch]:
    yield ROWS
    raise ZeroDivisionError


def test_an_attempt_whose_rows_fail_deletes_what_it_has_staged() -> None:
    stages = Stages(9, ThrottlingQuotaExceeded())
    with pytest.raises(ZeroDivisionError):
        stage(stages, failing())
    assert stages.asked == 1
    assert not stages.names


def test_an_attempt_with_a_stage_of_unknown_outcome_deletes_that_too() -> None:
    stages = Stages(1, LeaderNotAvailable())
    with pytest.raises(LeaderNotAvailable):
        stage(stages, iter([ROWS, ROWS]))
    assert not stages.names


def test_a_refused_deletion_does_not_hide_why_the_attempt_failed(caplog: pytest.LogCaptureFixture) -> None:
    stages = Stages(1, ThrottlingQuotaExceeded())
    stages.deletes_refused = True
    with pytest.raises(ThrottlingQuotaExceeded):
        stage(stages, iter([ROWS, ROWS]))
    assert "2 stages stay until they expire" in caplog.text


def test_a_cluster_that_does_not_answer_is_not_waited_for_twice() -> None:
    stages = Stages(1, ClusterUnreachable())
    with pytest.raises(ClusterUnreachable):
        stage(stages, iter([ROWS, ROWS]))
    assert stages.asked == 0


PIECES = [Piece("t", number, f"s~{number}", 1, 7) for number in range(3)]


def staged() -> Stages:
    stages = Stages(9, ThrottlingQuotaExceeded())
    stages.names = {piece.stage for piece in PIECES}
    return stages


def test_a_partition_without_a_leader_keeps_its_stages_and_no_other_does(caplog: pytest.LogCaptureFixture) -> None:
    """Each failed attempt of a task would fill the stages of all partitions behind it."""
    stages = staged()
    stages.without_leader = 0
    discard(stages, PIECES, "n")  # type: ignore[arg-type]
    assert stages.names == {"s~0"}
    assert "1 stages stay until they expire" in caplog.text


def test_stages_are_deleted_for_so_long_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr("stockade.spark.sink.committer.time.monotonic", lambda: now[0])
    stages = staged()

    def slow() -> None:
        now[0] += DISCARD_S

    stages.before_delete = slow
    discard(stages, PIECES, "n")  # type: ignore[arg-type]
    assert stages.names == {"s~1", "s~2"}
    assert f"2 stages stay until they expire: {DISCARD_S:.0f} s were over" in caplog.text
