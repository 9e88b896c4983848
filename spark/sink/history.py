"""The history of a sink: the records of its control partition, and the state that they add up to. Pure, without Spark.

A driver's record is appended only if nothing was appended since the driver read the partition (if_log_end), so the
records of all drivers form one history.
"""

import json
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

RUNS_REMEMBERED = 100
"""Most replaced runs that the history remembers, so that they are refused."""


class Piece(NamedTuple):
    """A stage that a task stored: ``records`` rows for one partition of the topic with this id (None: not known)."""

    topic: str
    partition: int
    stage: str
    records: int
    topic_id: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The decision on batch ``batch`` of ``query``: its stages, in order. It is written once and never changed."""

    query: str
    batch: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class History:
    """The state of a sink after all records of its control partition.

    ``run`` of ``query`` is the present run, which announced itself last; ``retired`` are the runs before it. Stages of
    the sink may be in any of ``topics``. ``manifest`` is the last decision, made by run ``decided_by`` in the record at
    offset ``decided_at``; ``done``: its rows are all in the log. ``start`` is the offset of the first record that is
    kept, ``end`` that of the next record.
    """

    query: str | None = None
    run: str | None = None
    retired: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    manifest: Manifest | None = None
    decided_at: int = 0
    decided_by: str | None = None
    done: bool = True
    start: int = 0
    end: int = 0

    def and_record(self, offset: int, value: bytes) -> "History":
        """The state after one more record, at ``offset``."""
        record = json.loads(value)
        after = replace(self, end=offset + 1)
        if record["kind"] == "done":
            return replace(after, done=True)
        retired, topics = tuple(record["retired"]), tuple(record["topics"])
        after = replace(after, query=record["query"], run=record["run"], retired=retired, topics=topics)
        if record["kind"] == "run":
            return after
        pieces = tuple(Piece(*piece) for piece in record["pieces"])
        manifest = Manifest(record["query"], record["batch"], pieces)
        return replace(after, manifest=manifest, decided_at=offset, decided_by=after.run, done=not pieces)


def history(records: Iterable[tuple[int, bytes]], end: int) -> History:
    """The state after all records (offset, value) of a control partition whose log end is ``end``."""
    summed: History | None = None
    for offset, value in records:
        summed = (summed or History(start=offset)).and_record(offset, value)
    return replace(summed or History(start=end), end=end)


def run_record(before: History, query: str, run: str, topics: Set[str]) -> bytes:
    """The record by which ``run`` announces itself as the present run, and ``topics`` as those that it writes to."""
    is_other = before.run not in (None, run)
    retired = (*before.retired, before.run) if is_other else before.retired
    known = sorted({*before.topics, *topics})
    return _dump(kind="run", query=query, run=run, retired=retired[-RUNS_REMEMBERED:], topics=known)


def manifest_record(before: History, manifest: Manifest) -> bytes:
    """The record of a decision, made by the run that announced itself last (``before.run``)."""
    return _dump(
        kind="manifest",
        query=manifest.query,
        run=before.run,
        retired=before.retired,
        topics=before.topics,
        batch=manifest.batch,
        pieces=manifest.pieces,
    )


def done_record(batch: int) -> bytes:
    """The record that says that the decision on ``batch``, the last one, is carried out."""
    return _dump(kind="done", batch=batch)


def _dump(**record: Any) -> bytes:
    return json.dumps(record).encode()
