"""Writes the rows of a task: gathers them by partition, and stages or appends them piece by piece. Without Spark.

A task holds the rows of at most one piece for each partition.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ...client.blocking.writer import SEQUENCES, BlockingWriter, Pair, TopicShape
from .committer import discard
from .history import Piece
from .rows import Group, Router, stream

ROWS_MAX = 50_000
_FILL = 0.9
"""The share of max_batch_bytes that rows fill; the rest is for what Arrow adds to many rows."""
_BYTES_ADDED = 640
"""The bytes that Arrow adds even to a single row."""

WritePiece = Callable[[str, int, pa.RecordBatch], None]
"""A function of (topic, partition, rows) that stages or appends the rows of one piece."""


class Topics:
    """The shapes of topics, each asked for once."""

    def __init__(self, writer: BlockingWriter) -> None:
        self._writer = writer
        self._shapes: dict[str, TopicShape] = {}

    def shape(self, topic: str) -> TopicShape:
        """The shape of a topic. Raises UnknownTopicOrPartition."""
        if topic not in self._shapes:
            self._shapes[topic] = self._writer.shape(topic)
        return self._shapes[topic]


@dataclass
class _Waiting:
    """The rows of a piece that is not full yet, with their counts: a piece may come in thousands of parts."""

    parts: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.parts.append(rows)
        self.rows += len(rows)
        self.size += rows.nbytes


class Gatherer:
    """Gathers rows into pieces, and gives each full piece to ``write``.

    Invariant: a waiting piece has at most ROWS_MAX rows and fits a batch of its topic, unless it is a single row.
    """

    def __init__(self, topics: Topics, write: WritePiece) -> None:
        self._topics = topics
        self._write = write
        self._waiting: defaultdict[tuple[str, int], _Waiting] = defaultdict(_Waiting)

    def add(self, group: Group) -> None:
        """Add rows of one partition; write a waiting piece when the rows do not fit into it any more."""
        place = group.topic, group.partition
        bytes_max = self._topics.shape(group.topic).batch_bytes_max
        room = min(int(bytes_max * _FILL), bytes_max - _BYTES_ADDED)
        for rows in _cut(group.rows, room):
            waiting = self._waiting[place]
            if waiting.parts and (waiting.size + rows.nbytes > room or waiting.rows + len(rows) > ROWS_MAX):
                self._flush(place)
            self._waiting[place].add(rows)

    def finish(self) -> None:
        """Write the remaining rows."""
        for place in sorted(self._waiting):
            self._flush(place)

    def _flush(self, place: tuple[str, int]) -> None:
        self._write(*place, pa.concat_batches(self._waiting.pop(place).parts))


def stage_rows(
    batches: Iterable[pa.RecordBatch], writer: BlockingWriter, topic: str | None, prefix: str, task: int
) -> tuple[Piece, ...]:
    """Stage rows; return the pieces, in order. Each attempt of a task uses new names, so attempts never collide. An
    attempt that fails deletes the stages that it has stored.
    """
    pieces: list[Piece] = []
    attempt = uuid.uuid4().hex
    topics = Topics(writer)

    def write(name: str, partition: int, rows: pa.RecordBatch) -> None:
        stage = f"{prefix}{task}~{attempt}~{len(pieces)}"
        # Listed before the request, because a request that fails may have stored the stage.
        pieces.append(Piece(name, partition, stage, len(rows), topics.shape(name).topic_id))
        writer.put_stage(name, partition, stage, stream(rows))

    try:
        _gather(batches, topics, topic, task, write)
    except Exception as failure:
        discard(writer, pieces, attempt, failure)
        raise
    return tuple(pieces)


def append_rows(batches: Iterable[pa.RecordBatch], writer: BlockingWriter, topic: str | None, task: int) -> None:
    """Append rows directly, at least once: a task that fails after some appends, and is run again, repeats them."""
    sequences: dict[tuple[str, int], int] = {}
    pair: list[Pair] = []

    def write(name: str, partition: int, rows: pa.RecordBatch) -> None:
        if not pair:
            pair.append(writer.init_producer(None, uuid.uuid4().hex))
        sequence = sequences.get((name, partition), 0)
        writer.append(name, partition, stream(rows), pair[0], sequence)
        sequences[name, partition] = (sequence + len(rows)) % SEQUENCES

    _gather(batches, Topics(writer), topic, task, write)


def _gather(batches: Iterable[pa.RecordBatch], topics: Topics, topic: str | None, task: int, write: WritePiece) -> None:
    """Give all rows of a task, each with its partition, to a gatherer, and let it finish."""
    router = Router(topic, lambda name: topics.shape(name).partitions, task)
    gatherer = Gatherer(topics, write)
    for batch in batches:
        for group in router.groups(batch):
            gatherer.add(group)
    gatherer.finish()


def _cut(rows: pa.RecordBatch, room: int) -> Iterator[pa.RecordBatch]:
    """Cut rows in halves until each part has at most ``room`` bytes and ROWS_MAX rows; a single row may be larger."""
    if len(rows) == 1 or (rows.nbytes <= room and len(rows) <= ROWS_MAX):
        yield rows
        return
    middle = len(rows) // 2
    yield from _cut(rows.slice(0, middle), room)
    yield from _cut(rows.slice(middle), room)
