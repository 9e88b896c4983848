"""Commits the stages of a batch exactly once, even if drivers crash at any moment.

The decision which stages a batch has is one record of the sink's control partition, appended on condition that nothing
was appended since its writer read the partition. All later steps follow from this record: the next driver repeats them,
and the partition does not append a stage twice. docs/spark-sink.md argues why that is enough.

Without Spark. When the driver crashes, each call of the store may or may not have taken effect; the committer itself
has no state that must survive.
"""

import logging
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from itertools import groupby

from ...client.blocking.writer import Pair
from ...client.errors import ClusterUnreachable
from ...partition.errors import (
    InvalidProducerEpoch,
    NotFound,
    PermissionDenied,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    UnknownTopicOrPartition,
)
from ...partition.internal_names import INTERNAL_TOPIC_PREFIX
from .history import History, Manifest, Piece, done_record, history, manifest_record, run_record
from .store import CheckpointWentBack, DecidedStageLost, OtherQuery, RunRetired, StageLost, StagesRefused, Store

CONTROL_CONFIG = {"max_batch_bytes": 16 * 1024 * 1024}
MANIFEST_BYTES_MAX = CONTROL_CONFIG["max_batch_bytes"] - 64 * 1024
"""The rest is for what Arrow adds. A stage takes about a hundred bytes of it."""
TRIM_EVERY = 100
"""When the control partition has more records than this, the old ones are trimmed."""
TELL_EVERY = 100
"""Every so many batches a warning says that the control partition may not be trimmed."""
DISCARD_S = 30.0
"""Time for the deletion of stages that are not needed any more, in seconds."""
PARTITION_S = 1.0
"""Time for attempts at one partition then: enough to ask another node, and not to wait for a leader."""
NAMED_BATCH = "batch"
"""The query of every batch that is written under a sink's name: the same name is the same batch."""
_SEQUENCES = 1 << 31
_log = logging.getLogger(__name__)


def control_topic(sink: str) -> str:
    """The topic whose only partition has a sink's decisions."""
    return f"{INTERNAL_TOPIC_PREFIX}{sink}"


def producer_name(sink: str) -> str:
    """The producer of which each run of a sink is an instance."""
    return f"spark-sink:{sink}"


def stage_prefix(sink: str) -> str:
    """The prefix of the names of a sink's stages."""
    return f"{sink}~"


class SinkCommitter:
    """Commits batches of one run of one query. ``takeover``: also if the sink belongs to another query."""

    def __init__(self, store: Store, sink: str, query: str, run: str, *, takeover: bool = False) -> None:
        self._store = store
        self._sink, self._query, self._run = sink, query, run
        self._takeover = takeover
        self._control = control_topic(sink)
        self._is_new = False
        self._has_proposed = False

    def commit(self, batch: int, pieces: Sequence[Piece]) -> bool:
        """Commit a batch in the form in which it was first decided. Returns False, and logs a warning, if these are
        other pieces than ``pieces``. A commit that fails before it decides deletes ``pieces``.

        Raises SinkRefused (StagesRefused: there are too many), StageLost, DecidedStageLost.
        """
        try:
            is_ours = self._commit(batch, pieces)
        except Exception as failure:
            # No other commit has these pieces: without a decision proposed here there is none that names them.
            if not self._has_proposed:
                discard(self._store, pieces, self._run, failure)
            if isinstance(failure, InvalidProducerEpoch | ProducerFenced):
                raise RunRetired(f"run {self._run}: a newer run has taken over sink {self._sink}") from failure
            raise
        if not is_ours:
            decided = "was decided by an earlier run: its rows are in the topic, and those of this run are not"
            _log.warning("batch %d of sink %s %s", batch, self._sink, decided)
        return is_ours

    def _commit(self, batch: int, pieces: Sequence[Piece]) -> bool:
        pair = self._enter({piece.topic for piece in pieces})
        now = self._read()
        self._finish(now, pair)
        if self._is_new:
            self._sweep(pieces, now, pair)
        decided = self._decided(now, batch)
        if decided is not None:
            self._drop(set(pieces) - set(decided.pieces), pair)
            return False
        wanted = Manifest(self._query, batch, tuple(pieces))
        _check_size(now, wanted)
        self._keep(pieces, pair)
        now = self._decide(wanted)
        self._finish(now, pair)
        return now.manifest == wanted

    def _enter(self, topics: Set[str]) -> Pair:
        """Become the present run: every partition refuses older ones from now on. Raises RunRetired for a replaced run.

        The record that announces this run has the topics in which it may leave stages, for later runs.
        """
        now = self._first_look()
        pair = self._store.init_producer(producer_name(self._sink), self._run)
        self._is_new = now.run != self._run
        while now.run != self._run or not topics <= set(now.topics):
            self._append(now, run_record(now, self._query, self._run, topics))
            now = self._read()
        return pair

    def _first_look(self) -> History:
        try:
            return self._read()
        except UnknownTopicOrPartition:
            self._store.create_topic(self._control, 1, CONTROL_CONFIG)
            return self._read()

    def _read(self) -> History:
        """The sink's history. Raises RunRetired, OtherQuery if this run must not continue it."""
        now = history(*self._store.read(self._control, 0))
        if self._run in now.retired:
            raise RunRetired(f"run {self._run}: run {now.run} has taken over sink {self._sink}")
        if now.query not in (None, self._query) and not self._takeover:
            raise OtherQuery(
                f"sink {self._sink} belongs to query {now.query}, and not to {self._query}: the checkpoint is new, or "
                f"the name is used twice. Choose another name, or let a stream have it with the option takeover=true."
            )
        return now

    def _append(self, now: History, record: bytes) -> None:
        """Append after the records that were read, or not at all; the next read shows which."""
        self._store.append_at(self._control, 0, record, now.end)

    def _decided(self, now: History, batch: int) -> Manifest | None:
        """The decision on a batch, None if there is none. Raises CheckpointWentBack if a later batch was decided."""
        decided = now.manifest
        if decided is None or decided.query != self._query or decided.batch < batch:
            return None
        if decided.batch > batch:
            raise CheckpointWentBack(
                f"sink {self._sink} has batch {decided.batch} already, and the checkpoint is at {batch}: it was copied "
                f"or restored. To go on from it, with rows doubled, give the sink another name."
            )
        return decided

    def _keep(self, pieces: Sequence[Piece], pair: Pair) -> None:
        """Mark the stages as kept: after a decision they must not expire."""
        for (topic, partition), names in _by_partition(pieces):
            try:
                self._store.keep_stages(topic, partition, names, pair)
            except NotFound as refusal:
                raise StageLost(f"{topic}/{partition}: {refusal.detail}; it was staged too long ago") from refusal

    def _decide(self, wanted: Manifest) -> History:
        """Decide on a batch, unless another driver has."""
        while True:
            now = self._read()
            if now.run != self._run:
                raise RunRetired(f"run {self._run}: run {now.run} has taken over sink {self._sink}")
            if self._decided(now, wanted.batch) is not None:
                return now
            self._has_proposed = True
            self._append(now, manifest_record(now, wanted))

    def _finish(self, now: History, pair: Pair) -> None:
        """Carry out the last decision, unless it is done."""
        if now.manifest is None or now.done:
            return
        try:
            self._roll(now.manifest, pair)
        except NotFound as refusal:
            self._explain(now, refusal)
        self._mark_done(now)
        self._drop(now.manifest.pieces, pair)
        if now.end - now.start > TRIM_EVERY:
            self._trim(now.decided_at, now.manifest.batch)

    def _trim(self, before: int, batch: int) -> None:
        """Trim the control partition, if this is allowed: the batch is committed, whatever becomes of old records."""
        try:
            self._store.trim(self._control, 0, before)
        except PermissionDenied as refusal:
            # Spark makes a process for each commit: only the batch's number keeps this from being said each time.
            if batch % TELL_EVERY == 0:
                _log.warning(
                    "topic %s grows with every batch, and each commit reads it: %s", self._control, refusal.detail
                )

    def _roll(self, manifest: Manifest, pair: Pair) -> None:
        """Append every stage, in order, but those of deleted topics: their rows would be gone with the topic as well.
        Only this run may append, so its own sequence numbers are next.
        """
        sequences = self._store.next_sequences(producer_name(self._sink), pair)
        gone: set[tuple[str, int | None]] = set()
        for piece in manifest.pieces:
            if (piece.topic, piece.topic_id) in gone:
                continue
            try:
                sequences = self._append_piece(piece, pair, sequences)
            except (NotFound, UnknownTopicOrPartition):
                if not self._is_deleted(piece):
                    raise
                gone.add((piece.topic, piece.topic_id))
                lost = f"topic {piece.topic} was deleted, and the rows for it with it; the other topics get theirs"
                _log.warning("batch %d of sink %s: %s", manifest.batch, self._sink, lost)

    def _append_piece(
        self, piece: Piece, pair: Pair, sequences: dict[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        """Append a stage, unless it was appended before; return the sequence numbers that are next."""
        place = piece.topic, piece.partition
        sequence = sequences.get(place, 0)
        if self._store.append_stage(*place, piece.stage, pair, sequence):
            sequences[place] = (sequence + piece.records) % _SEQUENCES
            return sequences
        # This run or an earlier one has appended it: only the cluster knows the sequence numbers used.
        if not any(seen.appended for seen in self._store.stages(*place, piece.stage) if seen.name == piece.stage):
            raise NotFound(f"{piece.stage} was a duplicate, and is gone", what="stage")
        return self._store.next_sequences(producer_name(self._sink), pair)

    def _is_deleted(self, piece: Piece) -> bool:
        """Whether the topic in which a piece was staged is surely gone.

        A node that does not know a topic asks the controller. One that lags behind may describe the former topic of the
        name, but none that is yet to come: ids grow.
        """
        try:
            topic_id = self._store.shape(piece.topic)[2]
        except UnknownTopicOrPartition:
            return True
        return piece.topic_id is not None and topic_id > piece.topic_id

    def _explain(self, before: History, refusal: NotFound) -> None:
        """A decided stage is gone: another driver has finished the decision, or its rows are lost."""
        now = self._read()
        if (now.decided_at, now.done) == (before.decided_at, False):
            raise DecidedStageLost(f"sink {self._sink}: {refusal.detail}, and its rows are not in the log") from refusal
        if now.run != self._run:
            raise RunRetired(f"run {self._run}: run {now.run} has taken over sink {self._sink}") from refusal

    def _mark_done(self, decided: History) -> None:
        """Record that the decision is carried out, unless another driver has, or has decided again."""
        assert decided.manifest is not None
        now = self._read()
        while now.decided_at == decided.decided_at and not now.done:
            self._append(now, done_record(decided.manifest.batch))
            now = self._read()

    def _drop(self, pieces: Iterable[Piece], pair: Pair) -> None:
        for (topic, partition), names in _by_partition(pieces):
            with suppress(UnknownTopicOrPartition):  # deleted, and its stages with it
                self._store.delete_stages(topic, partition, names, pair)

    def _sweep(self, own: Sequence[Piece], now: History, pair: Pair) -> None:
        """Delete kept stages that earlier runs left. Every decision is carried out by now."""
        mine = {piece.stage for piece in own}
        for topic in now.topics:
            for partition in range(self._partitions(topic)):
                seen = self._store.stages(topic, partition, stage_prefix(self._sink))
                left = [stage.name for stage in seen if stage.kept and stage.name not in mine]
                if left:
                    self._store.delete_stages(topic, partition, left, pair)

    def _partitions(self, topic: str) -> int:
        try:
            return self._store.shape(topic)[0]
        except UnknownTopicOrPartition:  # deleted, and its stages with it
            return 0


def _check_size(now: History, wanted: Manifest) -> None:
    size = len(manifest_record(now, wanted))
    if size > MANIFEST_BYTES_MAX:
        raise StagesRefused(
            f"the list of the {len(wanted.pieces):,} stages of batch {wanted.batch} has {size:,} bytes, and a decision"
            f" at most {MANIFEST_BYTES_MAX:,}: write fewer rows at once, or make fewer stages, with fewer tasks or a"
            " larger max_batch_bytes of the topic"
        )


def _by_partition(pieces: Iterable[Piece]) -> list[tuple[tuple[str, int], list[str]]]:
    """Names of stages by topic and partition."""
    places = sorted(pieces, key=lambda piece: (piece.topic, piece.partition))
    groups = groupby(places, key=lambda piece: (piece.topic, piece.partition))
    return [(place, [piece.stage for piece in group]) for place, group in groups]


def append_all(store: Store, pieces: Sequence[Piece], nonce: str) -> None:
    """Append stages without a decision: after a crash some may be in the log, and the rest are not appended."""
    failure: Exception | None = None
    try:
        pair = store.init_producer(None, nonce)
        sequences: dict[tuple[str, int], int] = {}
        for piece in pieces:
            place = piece.topic, piece.partition
            sequence = sequences.get(place, 0)
            # A duplicate is one of this very request, repeated: nothing else appends these stages.
            store.append_stage(*place, piece.stage, pair, sequence)
            sequences[place] = (sequence + piece.records) % _SEQUENCES
    except Exception as error:
        failure = error
        raise
    finally:
        discard(store, pieces, nonce, failure)


def discard(store: Store, pieces: Sequence[Piece], nonce: str, failure: Exception | None = None) -> None:
    """Delete stages that nothing will append any more. They would expire after a day: a refusal is only logged.

    ``failure`` is why they are not needed. If the cluster did not answer, it is not asked again. Otherwise each
    partition is asked for PARTITION_S, and DISCARD_S after the beginning none is asked any more: one without a leader
    keeps its stages, and the others lose theirs.
    """
    if not pieces or isinstance(failure, ClusterUnreachable | RequestTimedOut):
        return
    ends_s = time.monotonic() + DISCARD_S
    left, reason = 0, f"{DISCARD_S:.0f} s were over"
    try:
        pair = store.init_producer(None, nonce, patience_s=DISCARD_S / 2)
    except StockadeError as refusal:
        _log.warning("%d stages stay until they expire: %s", len(pieces), refusal.detail)
        return
    for (topic, partition), names in _by_partition(pieces):
        try:
            if time.monotonic() < ends_s:
                store.delete_stages(topic, partition, names, pair, patience_s=PARTITION_S)
                continue
        except StockadeError as refusal:
            reason = refusal.detail
        left += len(names)
    if left:
        _log.warning("%d stages stay until they expire: %s", left, reason)
