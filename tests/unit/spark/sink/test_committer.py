"""What a committer refuses, and what it says then: one driver at a time, without faults."""

import random
from typing import Any

import pytest
from msgspec import structs

from stockade.client.blocking.writer import TopicShape
from stockade.partition.commands import Configure
from stockade.partition.errors import LeaderNotAvailable, NotFound, UnknownTopicOrPartition
from stockade.spark.sink import committer as committers
from stockade.spark.sink.committer import SinkCommitter, append_all, control_topic
from stockade.spark.sink.history import History, Manifest, Piece, history
from stockade.spark.sink.store import (
    CheckpointWentBack,
    DecidedStageLost,
    OtherQuery,
    RunRetired,
    StageLost,
    StagesRefused,
    TopicRefused,
)

from ..sink_world import HOUR_MS, Died, ModelStore, World


class Alone:
    """An actor whose steps no other actor interrupts."""

    def step(self) -> None:
        pass


class Calm(random.Random):
    """Nothing happens by chance."""

    def random(self) -> float:
        return 0.99


class Sink:
    def __init__(self) -> None:
        self.world = World(Calm(), {"out": 2})
        actor: Any = Alone()
        self.store = ModelStore(self.world, actor, 0.0)

    def stage(self, name: str, *values: bytes, partition: int = 0) -> Piece:
        self.store.put_stage("out", partition, f"s~{name}", list(values))
        return Piece("out", partition, f"s~{name}", len(values))

    def commit(self, batch: int, *pieces: Piece, run: str = "r1", query: str = "q", takeover: bool = False) -> bool:
        return SinkCommitter(self.store, "s", query, run, takeover=takeover).commit(batch, pieces)

    def values(self, partition: int = 0) -> list[bytes]:
        return self.world.values(("out", partition))


@pytest.fixture
def sink() -> Sink:
    found = Sink()
    assert found.commit(0, found.stage("a", b"1", b"2"), found.stage("b", b"3", partition=1))
    return found


def test_a_batch_is_written_where_it_was_staged_and_nothing_is_left(sink: Sink) -> None:
    assert sink.commit(1, sink.stage("c", b"4"))
    assert (sink.values(0), sink.values(1)) == ([b"1", b"2", b"4"], [b"3"])
    assert all(not machine.stages.stages for machine in sink.world.machines.values())


def test_a_batch_that_comes_again_is_taken_as_it_was_decided_first_and_says_so(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    assert not caplog.text
    assert not sink.commit(0, sink.stage("other", b"1"), run="r2")
    assert "batch 0 of sink s was decided by an earlier run" in caplog.text
    assert sink.values() == [b"1", b"2"]
    assert not sink.world.machines["out", 0].stages.stages


def test_a_commit_that_comes_again_with_the_same_pieces_does_not_say_that_its_rows_are_not_there(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    piece = sink.stage("c", b"4")
    assert sink.commit(1, piece)
    assert sink.commit(1, piece)
    assert not caplog.text
    assert sink.values() == [b"1", b"2", b"4"]


def test_a_run_that_was_replaced_is_refused(sink: Sink) -> None:
    sink.commit(1, run="r2")
    with pytest.raises(RunRetired, match=r"run r2 has taken over sink s. Two drivers .* let one of them run"):
        sink.commit(2, sink.stage("c", b"4"))
    assert sink.values() == [b"1", b"2"]


def test_another_query_is_refused_unless_it_takes_over(sink: Sink) -> None:
    with pytest.raises(OtherQuery, match="takeover=true: what this query reads again is then written again"):
        sink.commit(0, run="r2", query="q2")
    assert sink.commit(0, sink.stage("c", b"4"), run="r2", query="q2", takeover=True)
    assert sink.values() == [b"1", b"2", b"4"]
    with pytest.raises(RunRetired):
        sink.commit(1)


@pytest.mark.parametrize("request_name", ["create_topic", "init_producer", "append_at", "keep_stages"])
def test_of_two_queries_that_begin_one_sink_at_once_one_is_refused_and_the_other_goes_on(
    monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    """The one that was refused had taken the other one's producer over, so that both ended."""
    sink, ends = Sink(), dict[str, str]()
    request = getattr(sink.store, request_name)

    def commit(query: str) -> None:
        try:
            sink.commit(0, sink.stage(query, query.encode()), run=f"run of {query}", query=query)
            ends[query] = "committed"
        except OtherQuery:
            ends[query] = "refused"

    def interrupted(*words: Any) -> Any:
        monkeypatch.undo()
        commit("q2")
        return request(*words)

    monkeypatch.setattr(sink.store, request_name, interrupted)
    commit("q1")
    assert sorted(ends.values()) == ["committed", "refused"]
    winner = next(query for query in ends if ends[query] == "committed")
    assert sink.commit(1, sink.stage("next", b"next"), run=f"run of {winner}", query=winner)
    assert sink.values() == [winner.encode(), b"next"]
    assert all(not machine.stages.stages for machine in sink.world.machines.values())


def test_an_older_checkpoint_is_refused(sink: Sink) -> None:
    sink.commit(1)
    sink.commit(2)
    with pytest.raises(CheckpointWentBack, match="has batch 2 already, and the checkpoint is at 1"):
        sink.commit(1, sink.stage("c", b"4"), run="r2")


def test_a_stage_that_expired_before_the_decision_is_not_decided_on(sink: Sink) -> None:
    late = sink.stage("c", b"4")
    sink.world.pass_time(HOUR_MS)
    with pytest.raises(StageLost, match="Nothing was decided: start the query again"):
        sink.commit(1, late)
    assert sink.commit(1, sink.stage("d", b"5"), run="r2")
    assert sink.values() == [b"1", b"2", b"5"]


def test_a_decided_stage_that_was_deleted_is_told_as_a_loss(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    piece = sink.stage("c", b"4")
    monkeypatch.setattr(SinkCommitter, "_roll", lambda self, manifest, pair: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sink.commit(1, piece)
    monkeypatch.undo()
    pair = sink.store.init_producer("operator", "n")
    sink.store.delete_stages("out", 0, [piece.stage], pair)
    with pytest.raises(DecidedStageLost, match=r"s~c, and its rows are not in the log. Give the sink another name"):
        sink.commit(1, run="r2")


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_deleted_after_the_decision_stops_no_other_topic(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_made_anew: bool
) -> None:
    sink.world.create("other", 1)
    other = sink.store.shape("other").topic_id
    for name in ("s~x1", "s~x2"):
        sink.store.put_stage("other", 0, name, [b"8"])
    decided = [*(Piece("other", 0, name, 1, other) for name in ("s~x1", "s~x2")), sink.stage("c", b"4")]
    monkeypatch.setattr(SinkCommitter, "_roll", lambda self, manifest, pair: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sink.commit(1, *decided)
    monkeypatch.undo()
    sink.world.delete("other")
    if is_made_anew:
        sink.world.create("other", 1)
    assert not sink.commit(1, sink.stage("d", b"5"), run="r2")
    assert sink.values() == [b"1", b"2", b"4"]
    assert caplog.text.count("batch 1 of sink s: topic other was deleted, and the rows for it with it") == 1
    assert sink.commit(2, sink.stage("e", b"6"), run="r2")


@pytest.mark.parametrize(("config", "code"), [({"sealed": True}, "TOPIC_SEALED"), ({"require_fence": True}, "FENCING")])
@pytest.mark.parametrize("appended", [0, 1, 2])
def test_a_topic_that_takes_no_rows_after_the_decision_stops_the_sink_only_if_rows_are_missing(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, config: dict[str, bool], code: str, appended: int
) -> None:
    """It stopped the sink for good even when all rows were in the topic, and named neither topic nor batch."""
    pieces = [sink.stage("c", b"4"), sink.stage("d", b"5")]
    append = SinkCommitter._append_piece

    def interrupted(self: SinkCommitter, piece: Piece, *more: Any) -> Any:
        if piece in pieces[appended:]:
            raise ZeroDivisionError
        return append(self, piece, *more)

    monkeypatch.setattr(SinkCommitter, "_append_piece", interrupted)
    monkeypatch.setattr(SinkCommitter, "_mark_done", lambda self, decided: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sink.commit(1, *pieces)
    monkeypatch.undo()
    place = ("out", 0)
    before = sink.world.machines[place].config
    sink.world.apply(place, Configure(2, structs.replace(before, **config)))
    if appended < len(pieces):
        with pytest.raises(TopicRefused, match=f"batch 1 of sink s was decided, and out/0 refuses its rows: {code}"):
            sink.commit(1, run="r2")
        sink.world.apply(place, Configure(3, before))
    if appended == len(pieces) or "sealed" not in config:
        assert not sink.commit(1, run="r3")
        assert sink.values() == [b"1", b"2", b"4", b"5"]
        assert sink.commit(2, sink.stage("e", b"6", partition=1), run="r3")


def test_a_batch_is_not_decided_for_a_topic_that_would_refuse_its_rows(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = sink.store.shape("out")._replace(refuses="require_fence")
    monkeypatch.setattr(sink.store, "shape", lambda name: refusing)
    with pytest.raises(TopicRefused, match=r"topic out refuses .*\(require_fence\), so nothing was decided"):
        sink.commit(1, sink.stage("c", b"4"))
    assert all(not machine.stages.stages for machine in sink.world.machines.values())
    assert not sink.commit(0, sink.stage("d", b"5"), run="r2"), "its rows are in the topic since before the setting"
    assert sink.values() == [b"1", b"2"]


def test_a_node_that_knows_an_older_topic_of_the_name_makes_no_decided_rows_go(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the newer topic, of which this node has not heard yet."""
    shape = sink.store.shape("out")
    piece = sink.stage("c", b"4")._replace(topic_id=shape.topic_id)

    def unheard(*place: Any) -> bool:
        raise UnknownTopicOrPartition(topic="out", partition=None)

    monkeypatch.setattr(sink.store, "append_stage", unheard)
    monkeypatch.setattr(sink.store, "shape", lambda name: shape._replace(topic_id=shape.topic_id - 1))
    with pytest.raises(UnknownTopicOrPartition):
        sink.commit(1, piece)
    monkeypatch.undo()
    sink.commit(1, run="r2")
    assert sink.values() == [b"1", b"2", b"4"]


def test_a_batch_of_too_many_stages_is_refused_before_any_is_kept_and_says_so(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was MESSAGE_TOO_LARGE, "send shorter records", from the decision."""
    monkeypatch.setattr(committers, "MANIFEST_BYTES_MAX", 500)
    monkeypatch.setattr(sink.store, "keep_stages", lambda *request: pytest.fail("they were kept"))
    pieces = [sink.stage(f"n{number}", b"4") for number in range(20)]
    with pytest.raises(StagesRefused, match=r"the list of the 20 stages of batch 1 has .* at most 500:"):
        sink.commit(1, *pieces)
    assert all(not machine.stages.stages for machine in sink.world.machines.values())


def test_the_next_run_deletes_the_stages_that_a_run_kept_and_left_behind_in_every_topic(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.world.create("elsewhere", 1)
    sink.store.put_stage("elsewhere", 0, "s~x", [b"8"])
    left = [sink.stage("c", b"4"), sink.stage("d", b"5", partition=1), Piece("elsewhere", 0, "s~x", 1)]

    def die(self: SinkCommitter, wanted: Manifest) -> History:
        raise Died

    monkeypatch.setattr(SinkCommitter, "_decide", die)
    with pytest.raises(Died):
        sink.commit(1, *left)
    monkeypatch.undo()
    assert sum(stage.kept for machine in sink.world.machines.values() for stage in machine.stages.stages.values()) == 3
    assert sink.commit(1, sink.stage("e", b"6"), run="r2")
    assert all(not machine.stages.stages for machine in sink.world.machines.values())


def test_a_commit_that_is_refused_before_it_decides_leaves_no_stages(sink: Sink) -> None:
    sink.commit(1, run="r2")
    for refused, batch, run, query in (
        (RunRetired, 2, "r1", "q"),
        (OtherQuery, 2, "r3", "q2"),
        (CheckpointWentBack, 0, "r4", "q"),
    ):
        pieces = [sink.stage("c", b"4"), sink.stage("d", b"5", partition=1)]
        with pytest.raises(refused):
            sink.commit(batch, *pieces, run=run, query=query)
        assert all(not machine.stages.stages for machine in sink.world.machines.values()), refused


def test_a_commit_that_fails_once_it_may_have_decided_leaves_its_stages_to_the_next(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_at = sink.store.append_at

    def unheard(topic: str, partition: int, value: bytes, log_end: int) -> bool:
        append_at(topic, partition, value, log_end)
        raise LeaderNotAvailable

    piece = sink.stage("c", b"4")
    monkeypatch.setattr(sink.store, "append_at", unheard)
    with pytest.raises(LeaderNotAvailable):
        sink.commit(1, piece)
    monkeypatch.undo()
    assert not sink.commit(1, sink.stage("d", b"5"), run="r2")
    assert sink.values() == [b"1", b"2", b"4"]


def test_a_topic_that_was_deleted_does_not_stop_a_sink(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    def shape(topic: str) -> TopicShape:
        raise UnknownTopicOrPartition(topic=topic, partition=None)

    monkeypatch.setattr(sink.store, "shape", shape)
    assert sink.commit(1, sink.stage("c", b"4"), run="r2")


@pytest.mark.parametrize("rows_every", [1, 40])
def test_the_control_partition_stays_short_also_while_batches_have_no_rows(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, rows_every: int
) -> None:
    """A query that read much and wrote nothing added a record with each batch, and each commit read them all."""
    monkeypatch.setattr(committers, "TRIM_EVERY", 6)
    for batch in range(1, 30):
        pieces = [sink.stage(f"n{batch}", b"x")] if batch % rows_every == 0 else []
        sink.commit(batch, *pieces, run=f"run-{batch // 7}")
    records, end = sink.store.read(control_topic("s"), 0)
    assert len(records) <= 12
    summed = history(records, end)
    assert (summed.run, summed.done) == ("run-4", True)
    assert summed.manifest is not None
    assert summed.manifest.batch == 29
    with pytest.raises(RunRetired):
        sink.commit(30, run="run-1")


def test_without_a_name_pieces_are_appended_at_once_in_order() -> None:
    sink = Sink()
    pieces = [sink.stage("a", b"1"), sink.stage("b", b"2", b"3")]
    append_all(sink.store, pieces, "job")
    assert sink.values() == [b"1", b"2", b"3"]
    assert not sink.world.machines["out", 0].stages.stages


def test_without_a_name_a_stage_whose_first_answer_was_lost_has_used_its_sequence_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = Sink()
    append_stage = sink.store.append_stage

    def twice(*request: Any) -> bool:
        append_stage(*request)
        return append_stage(*request)

    monkeypatch.setattr(sink.store, "append_stage", twice)
    append_all(sink.store, [sink.stage("a", b"1"), sink.stage("b", b"2", b"3"), sink.stage("c", b"4")], "job")
    assert sink.values() == [b"1", b"2", b"3", b"4"]


def test_without_a_name_a_write_that_fails_leaves_no_stages() -> None:
    sink = Sink()
    missing = Piece("out", 1, "s~missing", 1)
    with pytest.raises(NotFound):
        append_all(sink.store, [sink.stage("a", b"1"), missing, sink.stage("b", b"2")], "job")
    assert sink.values() == [b"1"]
    assert not sink.world.machines["out", 0].stages.stages
