"""The history of a sink: the records of its control partition, and the state that they add up to. Pure, without Spark.

A record is appended only directly after the last one that its writer has read, so the records of all drivers are one
history.
"""

import json
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

RUNS_REMEMBERED = 100
"""Replaced runs that the history remembers, to refuse them."""


class Piece(NamedTuple):
    """A stage of a task: ``records`` rows for one partition of the topic with this id."""

    topic: str
    partition: int
    stage: str
    records: int
    topic_id: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The stages of batch ``batch`` of ``query``, in order. Written once, never changed."""

    query: str
    batch: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class History:
    """The state after all records. ``query`` and ``run`` announced themselves last; ``retired`` are the replaced runs.
    Stages of the sink may be in any of ``topics``.

    ``manifest`` is the last decision, of run ``decided_by`` at offset ``decided_at``; ``done``: all of it is in the
    log. ``end`` is where the next record goes, ``start`` the first one kept.
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
        """The state after one more record."""
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
    """The state after all records of a control partition whose log end is ``end``."""
    summed: History | None = None
    for offset, value in records:
        summed = (summed or History(start=offset)).and_record(offset, value)
    return replace(summed or History(start=end), end=end)


def run_record(before: History, query: str, run: str, topics: Set[str]) -> bytes:
    """A run of the sink announces itself, and the topics that it writes to."""
    is_other = before.run not in (None, run)
    retired = (*before.retired, before.run) if is_other else before.retired
    known = sorted({*before.topics, *topics})
    return _dump(kind="run", query=query, run=run, retired=retired[-RUNS_REMEMBERED:], topics=known)


def manifest_record(before: History, manifest: Manifest) -> bytes:
    """A decision, by the run that announced itself last."""
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
    """Everything of the last decision is in the log."""
    return _dump(kind="done", batch=batch)


def _dump(**record: Any) -> bytes:
    return json.dumps(record).encode()
