"""Committers with a mistake in them, which the fuzz has to find: otherwise it would prove nothing."""

from collections.abc import Iterable, Sequence
from typing import Any

from stockade.client.blocking.writer import Pair
from stockade.partition.commands import AppendStage
from stockade.spark.sink.committer import SinkCommitter
from stockade.spark.sink.history import History, Manifest, Piece

from .sink_world import ModelStore


class NoManifest(SinkCommitter):
    """Appends what it has, and says afterwards that the batch is done."""

    def _decide(self, wanted: Manifest) -> History:
        self._roll(wanted, self._store.init_producer(f"spark-sink:{self._sink}", self._run))
        return super()._decide(wanted)


class OwnRows(SinkCommitter):
    """Finishes a batch that another committer decided with rows of its own."""

    def _commit(self, batch: int, pieces: Sequence[Piece]) -> bool:
        pair = self._enter({piece.topic for piece in pieces})
        now = self._read()
        if now.manifest is not None and not now.done and now.manifest.batch == batch:
            self._keep(pieces, pair)
            self._roll(Manifest(self._query, batch, tuple(pieces)), pair)
            self._mark_done(now)
            return True
        return super()._commit(batch, pieces)


class DropsEarly(SinkCommitter):
    """Deletes the stages before it says that they are in the log."""

    def _mark_done(self, decided: History) -> None:
        assert decided.manifest is not None
        self._drop(decided.manifest.pieces, self._store.init_producer(f"spark-sink:{self._sink}", self._run))
        super()._mark_done(decided)


class KeepsNothing(SinkCommitter):
    """What was decided may expire."""

    def _keep(self, pieces: Sequence[Piece], pair: Pair) -> None:
        pass


class NoFence(SinkCommitter):
    """Every run is the same instance of the producer."""

    def __init__(self, store: ModelStore, sink: str, query: str, run: str) -> None:
        super().__init__(OneInstance(store), sink, query, run)


class OneInstance:
    """A store that never fences."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def init_producer(self, name: str | None, nonce: str, *, patience_s: float | None = None) -> Pair:
        return self._store.init_producer(name, "always the same")


class Unconditional(SinkCommitter):
    """Decides without looking whether another committer has meanwhile."""

    def _append(self, now: History, record: bytes) -> None:
        end = self._store.read(self._control, 0)[1]
        while not self._store.append_at(self._control, 0, record, end):
            end = self._store.read(self._control, 0)[1]


class TrustsCheckpoints(SinkCommitter):
    """Writes a batch again that it has left behind."""

    def _decided(self, now: History, batch: int) -> Manifest | None:
        return now.manifest if now.manifest is not None and now.manifest.batch == batch else None


class SweepsFirst(SinkCommitter):
    """Deletes what an earlier run kept before it has finished what that decided."""

    def _finish(self, now: History, pair: Pair) -> None:
        if self._is_new and not now.done:
            self._sweep([], now, pair)
        super()._finish(now, pair)


class NoSequence(SinkCommitter):
    """Appends without numbers, on a server that does not remember what it appended either."""

    def __init__(self, store: ModelStore, sink: str, query: str, run: str) -> None:
        super().__init__(Numberless(store), sink, query, run)


class Numberless(OneInstance):
    """Forgets that a stage was appended, and numbers nothing."""

    def init_producer(self, name: str | None, nonce: str, *, patience_s: float | None = None) -> Pair:
        return self._store.init_producer(name, nonce)

    def append_stage(self, topic: str, partition: int, name: str, pair: Pair, sequence: int) -> bool:
        world = self._store._world

        def forgetful() -> Any:
            stages = world.machines[topic, partition].stages
            stage, message = stages.stages.get(name), None
            if stage is not None and not stage.is_appended:
                message = stages.files.read(stage)
            appended = world.apply((topic, partition), AppendStage(name, 5))
            if stage is not None and message is not None:
                stages.files.write(stage.number, message)
                stages.put_back([*(s for s in stages.stages.values() if s.name != name), stage], stages.next_number)
            return appended

        return not self._store._ask(forgetful).duplicate


MUTANTS: Iterable[type[SinkCommitter]] = (
    NoManifest,
    OwnRows,
    DropsEarly,
    KeepsNothing,
    NoFence,
    Unconditional,
    TrustsCheckpoints,
    SweepsFirst,
    NoSequence,
)
