"""Commits the stages of a batch exactly once, even if drivers crash at any moment.

The decision which stages a batch has is one record of the sink's control partition, appended only if nothing was
appended since its driver read the partition. All later steps follow from this record: after a crash the next driver
repeats them, and a partition does not append a stage twice. docs/spark-sink.md argues why that is enough.

Without Spark. A driver may crash in any call of the store, which then may or may not have taken effect; the committer
itself has no state that must survive.
"""

import logging
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from itertools import groupby

from ...client.blocking.writer import SEQUENCES, Pair
from ...client.errors import ClusterUnreachable
from ...partition.errors import (
    FencingTokenRequired,
    InvalidProducerEpoch,
    NotFound,
    NotOwner,
    PermissionDenied,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    TopicSealed,
    UnknownTopicOrPartition,
)
from ...partition.internal_names import INTERNAL_TOPIC_PREFIX
from .history import History, Manifest, Piece, done_record, history, manifest_record, run_record
from .store import (
    CheckpointWentBack,
    DecidedStageLost,
    OtherQuery,
    RunRetired,
    StageLost,
    StagesRefused,
    Store,
    TopicRefused,
)

CONTROL_CONFIG = {"max_batch_bytes": 16 * 1024 * 1024}
MANIFEST_BYTES_MAX = CONTROL_CONFIG["max_batch_bytes"] - 64 * 1024
"""Largest decision; the rest of the batch is for what Arrow adds. A stage takes about a hundred bytes."""
TRIM_EVERY = 100
"""Records of the control partition beyond which the records before the last decision are trimmed."""
TELL_EVERY = 100
"""If the control partition may not be trimmed, a warning says so once in so many batches."""
DISCARD_S = 30.0
"""Time for ``discard`` to delete stages, in seconds."""
PARTITION_S = 1.0
"""Time in it for attempts at one partition, in seconds: enough to ask another node, but not to wait for a leader."""
NAMED_BATCH = "batch"
"""The query of every batch that is written under a sink's name: the same name is the same batch."""
_REFUSALS = (TopicSealed, FencingTokenRequired, ProducerBusy, NotOwner)
"""Refusals of an append that depend on the topic, and not on the stage or the run."""
_log = logging.getLogger(__name__)


def control_topic(sink: str) -> str:
    """The name of the topic whose only partition is the control partition of a sink."""
    return f"{INTERNAL_TOPIC_PREFIX}{sink}"


def producer_name(sink: str) -> str:
    """The name of a sink's producer; each run of the sink is an instance of it, and fences the earlier ones."""
    return f"spark-sink:{sink}"


def stage_prefix(sink: str) -> str:
    """The prefix of the names of a sink's stages."""
    return f"{sink}~"


class SinkCommitter:
    """Commits batches of one run of one query. ``takeover``: take the sink over even from another query."""

    def __init__(self, store: Store, sink: str, query: str, run: str, *, takeover: bool = False) -> None:
        self._store = store
        self._sink, self._query, self._run = sink, query, run
        self._takeover = takeover
        self._control = control_topic(sink)
        self._is_new = False
        self._has_proposed = False

    def commit(self, batch: int, pieces: Sequence[Piece]) -> bool:
        """Commit a batch as it was first decided. Returns True if the decision is on ``pieces``, also when an earlier
        call has made it. Returns False, and logs a warning, if it is on other pieces. A commit that fails before it
        proposes a decision deletes ``pieces``. Raises SinkRefused (StagesRefused: too many pieces), StageLost,
        DecidedStageLost.
        """
        try:
            is_ours = self._commit(batch, pieces)
        except Exception as failure:
            # No other commit has these pieces: unless this one has proposed a decision, no decision lists them.
            if not self._has_proposed:
                discard(self._store, pieces, self._run, failure)
            if isinstance(failure, InvalidProducerEpoch | ProducerFenced):
                raise self._replaced("a newer run") from failure
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
        wanted = Manifest(self._query, batch, tuple(pieces))
        decided = self._decided(now, batch)
        if decided is not None:
            self._drop(set(pieces) - set(decided.pieces), pair)
            return decided == wanted
        _check_size(now, wanted)
        self._check_topics(pieces)
        self._keep(pieces, pair)
        now = self._decide(wanted)
        self._finish(now, pair)
        self._trim(now, batch)
        return now.manifest == wanted

    def _enter(self, topics: Set[str]) -> Pair:
        """Become the present run: from now on every partition refuses older runs. Raises RunRetired if this run was
        replaced.

        The record that announces this run names the topics in which it may leave stages, so that later runs find them.
        A new sink is announced first: another query that begins it at this moment must not take its producer over.
        """
        now = self._first_look()
        self._is_new = now.run != self._run
        if now.run is None:
            now = self._announced(now, topics)
        pair = self._store.init_producer(producer_name(self._sink), self._run)
        self._announced(now, topics)
        return pair

    def _announced(self, now: History, topics: Set[str]) -> History:
        """The history with this run as the present one, and with ``topics``."""
        while now.run != self._run or not topics <= set(now.topics):
            self._append(now, run_record(now, self._query, self._run, topics))
            now = self._read()
        return now

    def _first_look(self) -> History:
        try:
            return self._read()
        except UnknownTopicOrPartition:
            self._store.create_topic(self._control, 1, CONTROL_CONFIG)
            return self._read()

    def _read(self) -> History:
        """The sink's history. Raises RunRetired, OtherQuery if this run must not go on with it."""
        now = history(*self._store.read(self._control, 0))
        if self._run in now.retired:
            raise self._replaced(f"run {now.run}")
        if now.query not in (None, self._query) and not self._takeover:
            raise OtherQuery(
                f"sink {self._sink} belongs to query {now.query}, and not to {self._query}: the checkpoint is new, or "
                f"the name is used twice. Choose another name, or let a stream have it with the option takeover=true:"
                " what this query reads again is then written again."
            )
        return now

    def _replaced(self, by: str) -> RunRetired:
        return RunRetired(
            f"run {self._run}: {by} has taken over sink {self._sink}. Two drivers of one checkpoint, or of a copy of"
            " it, end each other: let one of them run, and start it again if it has ended, too"
        )

    def _append(self, now: History, record: bytes) -> None:
        """Append a record if nothing was appended since ``now`` was read. The next read shows whether it was."""
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

    def _check_topics(self, pieces: Sequence[Piece]) -> None:
        """Raises TopicRefused for a topic that has the stages and would refuse their rows: after a decision on them no
        other batch could follow.
        """
        for topic in sorted({piece.topic for piece in pieces}):
            with suppress(UnknownTopicOrPartition):  # the next request to the topic tells of that
                if (refuses := self._store.shape(topic).refuses) is not None:
                    raise TopicRefused(
                        f"topic {topic} refuses the rows of every sink ({refuses}), so nothing was decided: withdraw"
                        " this setting of the topic (a seal stays for ever), or write to another one"
                    )

    def _keep(self, pieces: Sequence[Piece], pair: Pair) -> None:
        """Mark the stages as kept, because after a decision they must not expire. Raises StageLost if one is gone."""
        for (topic, partition), names in _by_partition(pieces):
            try:
                self._store.keep_stages(topic, partition, names, pair)
            except NotFound as refusal:
                raise StageLost(
                    f"{topic}/{partition}: {refusal.detail}; it was staged too long ago, or the topic was deleted and"
                    " created again since. Nothing was decided: start the query again, which computes the batch anew"
                ) from refusal

    def _decide(self, wanted: Manifest) -> History:
        """Append the decision on a batch, unless another driver has decided; return the history with it. Raises
        RunRetired.
        """
        while True:
            now = self._read()
            if now.run != self._run:
                raise self._replaced(f"run {now.run}")
            if self._decided(now, wanted.batch) is not None:
                return now
            self._has_proposed = True
            self._append(now, manifest_record(now, wanted))

    def _finish(self, now: History, pair: Pair) -> None:
        """Carry out the last decision, unless it is done: append its stages, record that, and delete them."""
        if now.manifest is None or now.done:
            return
        try:
            self._roll(now.manifest, pair)
        except NotFound as refusal:
            self._explain(now, refusal)
        self._mark_done(now)
        self._drop(now.manifest.pieces, pair)

    def _trim(self, now: History, batch: int) -> None:
        """Trim the control partition, if it is long, to the decision on ``batch``. Only log a PermissionDenied: the
        batch is committed with or without the trim.
        """
        if now.end - now.start <= TRIM_EVERY:
            return
        try:
            self._store.trim(self._control, 0, now.decided_at)
        except PermissionDenied as refusal:
            # Spark starts a process for each commit, so only the batch's number can limit how often this is logged.
            if batch % TELL_EVERY == 0:
                _log.warning(
                    "topic %s grows with every batch, and each commit reads it: %s", self._control, refusal.detail
                )

    def _roll(self, manifest: Manifest, pair: Pair) -> None:
        """Append every stage of the decision, in order, except those of deleted topics, with which their rows would be
        gone, too. Only this run may append, so the next sequence numbers are its own.
        """
        sequences = self._store.next_sequences(producer_name(self._sink), pair)
        gone: set[tuple[str, int | None]] = set()
        for piece in manifest.pieces:
            if (piece.topic, piece.topic_id) in gone:
                continue
            try:
                sequences = self._append_piece(piece, pair, sequences)
            except _REFUSALS as refusal:
                place = f"{piece.topic}/{piece.partition}"
                raise TopicRefused(
                    f"batch {manifest.batch} of sink {self._sink} was decided, and {place} refuses its rows: {refusal}."
                    " Let the topic take them. If it never will, give the sink another name: the batch is written anew,"
                    " and those of its rows that are in topics already are then there twice"
                ) from refusal
            except (NotFound, UnknownTopicOrPartition):
                if not self._is_deleted(piece):
                    raise
                gone.add((piece.topic, piece.topic_id))
                lost = f"topic {piece.topic} was deleted, and the rows for it with it; the other topics get theirs"
                _log.warning("batch %d of sink %s: %s", manifest.batch, self._sink, lost)

    def _append_piece(
        self, piece: Piece, pair: Pair, sequences: dict[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        """Append a stage, unless it was appended before; return the next sequence numbers. Raises NotFound, and the
        refusal of a topic that does not have its rows.
        """
        place = piece.topic, piece.partition
        sequence = sequences.get(place, 0)
        refusal: StockadeError = NotFound(f"{piece.stage} was a duplicate, and is gone", what="stage")
        try:
            if self._store.append_stage(*place, piece.stage, pair, sequence):
                sequences[place] = (sequence + piece.records) % SEQUENCES
                return sequences
        except _REFUSALS as error:  # a partition that takes no rows refuses also those that it has
            refusal = error
        # This run or an earlier one has appended the stage: only the cluster knows which sequence numbers it used.
        if not any(seen.appended for seen in self._store.stages(*place, piece.stage) if seen.name == piece.stage):
            raise refusal
        return self._store.next_sequences(producer_name(self._sink), pair)

    def _is_deleted(self, piece: Piece) -> bool:
        """Whether the topic in which a piece was staged is certainly deleted.

        A node that does not know a topic asks the controller. A node that lags may describe an earlier topic of this
        name, but never a later one; and ids grow, so a higher id proves that the piece's topic was deleted.
        """
        try:
            topic_id = self._store.shape(piece.topic).topic_id
        except UnknownTopicOrPartition:
            return True
        return piece.topic_id is not None and topic_id > piece.topic_id

    def _explain(self, before: History, refusal: NotFound) -> None:
        """Find out why a decided stage is gone. Raises DecidedStageLost if its rows are lost, RunRetired if another run
        took over; returns if the decision was carried out meanwhile.
        """
        now = self._read()
        if (now.decided_at, now.done) == (before.decided_at, False):
            raise DecidedStageLost(
                f"sink {self._sink}: {refusal.detail}, and its rows are not in the log. Give the sink another name: the"
                " batch is written anew, and those of its rows that are in topics already are then there twice"
            ) from refusal
        if now.run != self._run:
            raise self._replaced(f"run {now.run}") from refusal

    def _mark_done(self, decided: History) -> None:
        """Record that the decision is carried out, unless another driver has recorded that, or has decided since."""
        assert decided.manifest is not None
        now = self._read()
        while now.decided_at == decided.decided_at and not now.done:
            self._append(now, done_record(decided.manifest.batch))
            now = self._read()

    def _drop(self, pieces: Iterable[Piece], pair: Pair) -> None:
        for (topic, partition), names in _by_partition(pieces):
            with suppress(UnknownTopicOrPartition):  # the topic was deleted, and its stages with it
                self._store.delete_stages(topic, partition, names, pair)

    def _sweep(self, own: Sequence[Piece], now: History, pair: Pair) -> None:
        """Delete the kept stages that earlier runs left, but not ``own``. Every decision is carried out by now."""
        mine = {piece.stage for piece in own}
        for topic in now.topics:
            for partition in range(self._partitions(topic)):
                seen = self._store.stages(topic, partition, stage_prefix(self._sink))
                left = [stage.name for stage in seen if stage.kept and stage.name not in mine]
                if left:
                    self._store.delete_stages(topic, partition, left, pair)

    def _partitions(self, topic: str) -> int:
        try:
            return self._store.shape(topic).partitions
        except UnknownTopicOrPartition:  # the topic was deleted, and its stages with it
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
    """The names of stages, grouped by (topic, partition), ascending."""
    places = sorted(pieces, key=lambda piece: (piece.topic, piece.partition))
    groups = groupby(places, key=lambda piece: (piece.topic, piece.partition))
    return [(place, [piece.stage for piece in group]) for place, group in groups]


def append_all(store: Store, pieces: Sequence[Piece], nonce: str) -> None:
    """Append the stages of a batch without a sink's name, without a decision: a crash may leave some unappended."""
    failure: Exception | None = None
    try:
        pair = store.init_producer(None, nonce)
        sequences: dict[tuple[str, int], int] = {}
        for piece in pieces:
            place = piece.topic, piece.partition
            sequence = sequences.get(place, 0)
            # False (appended before) can only be a repeated attempt of this request: nothing else appends these.
            store.append_stage(*place, piece.stage, pair, sequence)
            sequences[place] = (sequence + piece.records) % SEQUENCES
    except Exception as error:
        failure = error
        raise
    finally:
        discard(store, pieces, nonce, failure)


def discard(store: Store, pieces: Sequence[Piece], nonce: str, failure: Exception | None = None) -> None:
    """Delete stages that nothing will append any more. A refusal is only logged, because stages expire after
    a day, and the next run sweeps those that were kept.

    ``failure``: the error that made them useless. If it says that the cluster did not answer, the cluster is not asked
    again. Otherwise each partition gets attempts for PARTITION_S, and after DISCARD_S in all no other partition is
    tried. So a partition without a leader keeps its stages, but does not keep the others from losing theirs.
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
