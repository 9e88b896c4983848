"""Judges a history one partition of one topic at a time, so that a run of any length fits into memory.

That is sound because every claim of the checkers is about one partition, or one producer name within a topic.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..checkers.verdicts import Verdict, judge
from ..history.evidence import Evidence, ReplicaLog, Stamp
from ..history.history import Event, payload

Place = tuple[str, int | None]
"""Topic and partition; partition None for events about the topic as a whole."""
LogKey = tuple[str, int]
SINKS_MAX = 200
"""Files open at once while a history is split."""


class Extent(msgspec.Struct, frozen=True):
    """Log start and end of one replica of a partition; its rows are in ``logs.parquet``."""

    topic: str
    partition: int
    replica: str
    log_start: int
    log_end: int


class Judgement(msgspec.Struct, frozen=True):
    """The verdicts over all parts, the number of operations judged, and of records compared over all replicas."""

    verdicts: Sequence[Verdict] = ()
    operations: int = 0
    records: int = 0

    @property
    def violations(self) -> int:
        return sum(verdict.violations for verdict in self.verdicts)

    def plus(self, other: "Judgement") -> "Judgement":
        """Both judgements together. One without verdicts, of a round that could not be carried out, adds nothing."""
        if not self.verdicts or not other.verdicts:
            return other if other.verdicts else self
        verdicts = [mine.plus(theirs) for mine, theirs in zip(self.verdicts, other.verdicts, strict=True)]
        return Judgement(verdicts, self.operations + other.operations, self.records + other.records)


def judge_events(events: Iterable[Event], logs: Mapping[LogKey, Sequence[ReplicaLog]]) -> Judgement:
    """Judge the events of a round and the logs of all its replicas, all in memory."""
    parts: dict[Place, list[Event]] = {}
    notes: list[Event] = []
    for event in events:
        if event.topic is None:
            notes.append(event)
        else:
            parts.setdefault((event.topic, event.partition), []).append(event)
    return judge_parts(
        parts.keys() | logs.keys(), lambda place: parts.get(place, []), notes, lambda key: logs.get(key, ())
    )


def judge_files(history: Path, logs: Path, extents: Sequence[Extent]) -> Judgement:
    """Judge the files of a run, with memory for one partition. Raises ValueError on files of another format."""
    with tempfile.TemporaryDirectory(prefix="stockade-judge-") as scratch:
        split = _EventsByPartition(Path(scratch))
        notes = split.take(history)
        found = _StoredLogs(logs, extents)
        places = split.places | {(extent.topic, extent.partition) for extent in extents}
        return judge_parts(places, split.events, notes, found.of)


def judge_parts(
    places: Iterable[Place],
    events: Callable[[Place], list[Event]],
    notes: list[Event],
    logs: Callable[[LogKey], Sequence[ReplicaLog]],
) -> Judgement:
    """Judge each partition by its own events, those of its topic as a whole, and those of the nemesis."""
    whole = Judgement()
    wanted = sorted({(topic, partition) for topic, partition in places if partition is not None})
    for topic, partition in wanted:
        mine = events((topic, partition))
        about = [*mine, *events((topic, None)), *notes]
        replicas = logs((topic, partition))
        verdicts = judge(Evidence.of(about, replicas, payload))
        invoked = sum(event.type == "invoke" for event in mine)
        whole = whole.plus(Judgement(verdicts, invoked, sum(len(log.offsets) for log in replicas)))
    return whole


class _EventsByPartition:
    """A history, split into one file for each partition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Place, Path] = {}
        self._decoder = msgspec.json.Decoder(Event)

    @property
    def places(self) -> set[Place]:
        return set(self._files)

    def take(self, history: Path) -> list[Event]:
        """Split the history; return the events without a topic."""
        where = msgspec.json.Decoder(_EventPlace)
        notes: list[Event] = []
        sinks: dict[Place, IO[bytes]] = {}
        try:
            with history.open("rb") as lines:
                for line in lines:
                    at = where.decode(line)
                    if at.topic is None:
                        notes.append(self._decoder.decode(line))
                    else:
                        self._sink(sinks, (at.topic, at.partition)).write(line)
        finally:
            for sink in sinks.values():
                sink.close()
        return notes

    def events(self, place: Place) -> list[Event]:
        path = self._files.get(place)
        if path is None:
            return []
        with path.open("rb") as lines:
            return [self._decoder.decode(line) for line in lines]

    def _sink(self, sinks: dict[Place, IO[bytes]], place: Place) -> IO[bytes]:
        if place not in sinks:
            if len(sinks) >= SINKS_MAX:
                sinks.pop(next(iter(sinks))).close()
            path = self._files.setdefault(place, self._folder / f"{len(self._files)}.jsonl")
            sinks[place] = path.open("ab")
        return sinks[place]


class _EventPlace(msgspec.Struct, frozen=True):
    topic: str | None = None
    partition: int | None = None


class _StoredLogs:
    """``logs.parquet``, read replica by replica: the rows of a row group are those of one replica."""

    def __init__(self, path: Path, extents: Sequence[Extent]) -> None:
        self._path = path
        self._extents = extents
        self._groups: dict[tuple[str, int, str], list[int]] = {}
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            self._groups.setdefault(_group_key(file, number), []).append(number)

    def of(self, place: LogKey) -> list[ReplicaLog]:
        """The logs of all replicas of a partition. Replicas with equal content share it in memory."""
        file = pq.ParquetFile(self._path)
        found: list[ReplicaLog] = []
        for extent in self._extents:
            if (extent.topic, extent.partition) == place:
                groups = self._groups.get((*place, extent.replica), [])
                log = _log(extent, file.read_row_groups(groups) if groups else None)
                same = next((other for other in found if log.same_as(other)), None)
                found.append(msgspec.structs.replace(same, node=log.node) if same else log)
        return found


def _group_key(file: pq.ParquetFile, number: int) -> tuple[str, int, str]:
    """Topic, partition and replica of a row group; all its rows have the same."""
    [row] = file.read_row_group(number, columns=["topic", "partition", "replica"]).slice(0, 1).to_pylist()
    return row["topic"], row["partition"], row["replica"]


def _log(extent: Extent, table: pa.Table | None) -> ReplicaLog:
    columns = table.to_pydict() if table is not None else {}
    stamps: list[Stamp | None] = [
        None if pid is None else (pid, epoch, seq)
        for pid, epoch, seq in zip(
            *(columns.get(name, []) for name in ("producer_id", "producer_epoch", "sequence")), strict=True
        )
    ]
    return ReplicaLog(
        extent.replica,
        extent.partition,
        extent.log_start,
        extent.log_end,
        columns.get("offset", []),
        columns.get("key", []),
        columns.get("value", []),
        stamps,
        columns.get("writer_epoch", []),
    )
