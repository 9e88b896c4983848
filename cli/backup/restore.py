"""Restores topics from a backup into a running cluster, through its public API: a new cluster, or the same one under
other names.

What comes back: topics with their configuration, their records with keys, values, headers, timestamps and offsets; and
positions of groups; on request principals with their rights. What does not: sessions, grants, tickets, owners and
fencing epochs (writers acquire anew), producer ids and sequence numbers (a producer that repeats a batch from before
the backup stores it once more), stages, message ids, tokens, and the times of receipt, from which retention by age
counts.

A log that began later than offset 0, as records had been dropped before the backup, begins there again: its partition
is told so (``begin_at``) while it has never had a record. ``renumber`` is for a cluster that does not know this: its
logs begin at 0, and offsets and positions are less by ``first_offset``.

Each append names the log's end that it expects, so a record is stored once, whatever is repeated, and a restore that
was cut short goes on where it was (``resume``). Topics take no fences, and drop nothing, before they are complete. What
others write meanwhile is at the log's end, so no append follows it; ``resume`` finds it there, as the last record is
not the backup's.

All topics are looked at before the first one is written to (``prepare``), so what can be refused then leaves nothing
behind. A topic is complete with its configuration and positions before the next one begins. What others have changed in
one that is complete stays: settings, and the positions of groups, which would read records twice, or skip them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from ...client.api.client import Client
from ...client.api.conditions import Conditions
from ...client.retry import is_momentary, pause_before_next
from ...partition.api.topics import BATCH_BYTES_MAX, Topic, TopicConfig
from ...partition.errors import NotFound, OffsetMismatch, StockadeError, UnknownTopicOrPartition
from ...partition.records.batch import compressed
from .create import record_at
from .manifest import Damaged, DataFile, Manifest, PartitionBackup, PositionBackup, PrincipalBackup, TopicBackup
from .store import Store
from .verify import TIMESTAMP, batches_of, gaps, row_at

RECORDS_MAX = 50_000
"""Of one append."""
AT_A_TIME = 4
"""Partitions that are restored at the same time; each has a file of the backup in memory."""
OPEN = {
    "require_fence": False,
    "writer_group": None,
    "retention_ms": -1,
    "retention_bytes": -1,
    "max_batch_bytes": BATCH_BYTES_MAX,
}
"""The configuration of a topic that is not complete yet, where it differs from its own. Its max_batch_bytes may be less
than when it took its largest record."""
KEPT_OFFSETS = 2
"""From this feature level of the cluster on (cluster/features.py) a log can begin later than at offset 0."""
OPEN_QUOTA = (1 << 63) - 1
"""In place of its quota, if it has one: the records are taken, and a cluster that knows no quotas refuses the topic."""


class CannotRestore(Exception):
    """The cluster has something where the records should go, or the backup has not what was asked for."""


class Until(NamedTuple):
    """Where to stop: before the first record of a partition with this timestamp (ms) or a later one, and before these
    offsets of the backup, by (topic, partition).
    """

    timestamp_ms: int | None = None
    offsets: Mapping[tuple[str, int], int] = {}


NEVER = Until()


class Manner(NamedTuple):
    """How to restore. ``renumber``: every log begins at offset 0. ``resume``: what is there already is of an earlier
    attempt, in the same manner. ``replication_factor`` None: that of the cluster for new topics.
    """

    until: Until = NEVER
    renumber: bool = False
    resume: bool = False
    replication_factor: int | None = None


class Restored(NamedTuple):
    """A partition as it is now. ``shift``: the offset of a record here, less that in the backup."""

    topic: str
    partition: int
    records: int
    log_end: int
    shift: int


async def prepare(
    client: Client, store: Store, manifest: Manifest, names: Mapping[str, str], manner: Manner
) -> list["TopicRestore"]:
    """What restores the topics of ``names``, each under the name that it is mapped to. Changes nothing yet, and raises
    CannotRestore, Damaged, CannotReach or StockadeError if one of them cannot be restored.
    """
    known = {topic.topic: topic for topic in manifest.topics}
    if missing := sorted(set(names) - set(known)):
        raise CannotRestore(f"the backup {manifest.name} has no topic {', '.join(missing)}")
    work = [TopicRestore(client, store, manifest, known[old], new, manner) for old, new in names.items()]
    level = (await client.connect()).feature_level
    for topic in work:
        await topic.check(level)
    return work


async def check_principals(client: Client) -> None:
    """Raises CannotRestore if this cluster cannot have principals of a backup."""
    if (await client.caller()).open:
        raise CannotRestore(
            "principals end the time in which every client may do everything, and these have no tokens yet: first make"
            " one for yourself with `stockade principals put NAME --right all --new-token`, and restore as that one"
        )


async def restore_principals(client: Client, manifest: Manifest) -> AsyncIterator[PrincipalBackup]:
    """Create the principals of a backup that the cluster does not have; yields each one when it is there."""
    for each in manifest.principals:
        try:
            await client.principal(each.principal)
        except NotFound:
            await client.put_principal(
                each.principal,
                each.rights,
                certificates=each.certificates,
                subjects=each.subjects,
                quota=each.quota,
            )
            yield each


class TopicRestore:
    """A topic of a backup, to be restored as ``name``: first ``check``, then ``run``."""

    def __init__(
        self, client: Client, store: Store, manifest: Manifest, topic: TopicBackup, name: str, manner: Manner
    ) -> None:
        self._client, self._store, self._topic, self._name, self._manner = client, store, topic, name, manner
        self._positions = [each for each in manifest.positions if each.topic == topic.topic]
        quota = -1 if topic.config.quota_bytes < 0 else OPEN_QUOTA
        self._open = structs.replace(topic.config, **OPEN, quota_bytes=quota)
        self._slots = asyncio.Semaphore(AT_A_TIME)
        self._restored: Callable[[int], None] = lambda records: None

    async def check(self, feature_level: int) -> None:
        """Find what is there, and where to begin and to stop. Changes nothing. Raises CannotRestore, Damaged."""
        topic = self._topic
        if faults := [fault for each in topic.partitions for fault in gaps(f"{topic.topic}/{each.partition}", each)]:
            raise Damaged("; ".join(faults))
        self._present = await self._find()
        logs = [(0, 0)] * len(topic.partitions)
        if self._present is not None:
            self._topic_id = self._present.topic_id
            found = [await self._client.offsets(self._name, number) for number in range(len(logs))]
            logs = [(each.log_start, each.log_end) for each in found]
        if any(end for _, end in logs) and not self._manner.resume:
            raise CannotRestore(f"topic {self._name} has records already: choose another name, or let it be resumed")
        self._starts = [self._start(each, *log) for each, log in zip(topic.partitions, logs, strict=True)]
        self._late = [
            each for each, (_, end) in zip(topic.partitions, logs, strict=True) if self._is_late(each) and not end
        ]
        if self._late and feature_level < KEPT_OFFSETS:
            raise CannotRestore(
                f"{self._name}/{self._late[0].partition} is to begin at offset {self._late[0].first_offset}, and this"
                " cluster cannot do that yet: see `stockade cluster upgrade`, or say --renumber"
            )
        self._stops = [self._stop(each) for each in topic.partitions]
        if self._present is not None and self._manner.resume:
            await self._check_resumed(self._present)

    async def _find(self) -> Topic | None:
        """The topic, if an earlier attempt created it. Raises CannotRestore: it is another one, as it seems."""
        try:
            found = await self._client.topic(self._name)
        except UnknownTopicOrPartition:
            return None
        is_fit = len(found.partitions) == len(self._topic.partitions)
        if not is_fit or (found.config != self._open and not self._manner.resume):
            raise CannotRestore(f"topic {self._name} is there already: choose another name")
        return found

    async def _check_resumed(self, present: Topic) -> None:
        partitions = self._topic.partitions
        self._stops = await asyncio.gather(*map(self._resumed, partitions, self._starts, self._stops))
        is_whole = all(end - shift >= stop for (end, shift), stop in zip(self._starts, self._stops, strict=True))
        if present.config not in (self._open, self._topic.config) and not is_whole:
            raise CannotRestore(f"topic {self._name} is there already, with other settings: choose another name")

    async def run(self, restored: Callable[[int], None]) -> list[Restored]:
        """Restore it; ``restored`` is called with numbers of records."""
        self._restored = restored
        topic, client = self._topic, self._client
        found = self._present or await client.create_topic(
            self._name,
            partitions=len(topic.partitions),
            replication_factor=self._manner.replication_factor,
            config=self._open,
        )
        self._topic_id = found.topic_id
        for each in self._late:
            await client.begin_at(self._name, each.partition, each.first_offset, topic_id=self._topic_id)
        done = await asyncio.gather(*map(self._partition, topic.partitions, self._starts, self._stops))
        if self._present is None or self._present.config == self._open:
            await self._close()
        if topic.sealed:
            await client.change_topic(self._name, seal=True)
        for position in self._positions:
            await self._commit(position, done[position.partition])
        return list(done)

    async def _close(self) -> None:
        """Give the topic, which has all its records, its own configuration."""
        present = await self._client.topic(self._name)
        if present.config == self._topic.config:
            return
        if present.config != self._open:
            raise CannotRestore(
                f"others changed the settings of {self._name} before it was complete, so it keeps them. It has all its"
                " records: compare its settings with those of the backup, and let it be resumed"
            )
        await self._client.change_topic(self._name, config=_changes(self._open, self._topic.config))

    async def _commit(self, position: PositionBackup, place: Restored) -> None:
        """Let a group go on where it was; one that has a position since an earlier attempt stays there."""
        where = position.group, place.topic, place.partition
        if self._manner.resume and (await self._client.position(*where)).offset is not None:
            return
        offset = min(max(0, position.offset + place.shift), place.log_end)
        await self._client.commit_position(*where, offset, metadata=position.metadata)

    def _is_late(self, partition: PartitionBackup) -> bool:
        """Whether its log begins later than at offset 0."""
        return partition.first_offset > 0 and not self._manner.renumber

    def _start(self, partition: PartitionBackup, log_start: int, log_end: int) -> tuple[int, int]:
        """The next offset of a partition, and what is added to an offset of the backup."""
        first, where = partition.first_offset, f"{self._name}/{partition.partition}"
        if not self._is_late(partition):
            return log_end, -first
        if log_end and log_start < first:
            raise CannotRestore(
                f"{where} begins at offset {log_start}, not at {first}: it was restored with --renumber"
            )
        return log_end or first, 0

    def _stop(self, partition: PartitionBackup) -> int:
        """Where a restore stops at the latest, by offset."""
        limits = self._manner.until.offsets
        return min(limits.get((self._topic.topic, partition.partition), partition.end_offset), partition.end_offset)

    async def _resumed(self, partition: PartitionBackup, start: tuple[int, int], stop: int) -> int:
        """Where a restore stops, by time too. Raises CannotRestore if the last record that earlier attempts restored,
        as it seems, is another one.
        """
        number, (end, shift) = partition.partition, start
        async with self._slots:
            stop = await asyncio.to_thread(self._stop_in_time, partition, stop)
            offset = min(end - shift, stop) - 1
            file = next((each for each in partition.files if each.first_offset <= offset < each.end_offset), None)
            if file is None or offset < partition.first_offset:  # nothing was restored
                return stop
            backed_up = await asyncio.to_thread(lambda: row_at(self._read(file), file, offset))
        present = await record_at(self._client, self._name, number, offset + shift, self._topic_id)
        if present is not None and not present.equals(backed_up):
            raise CannotRestore(
                f"the record at offset {offset + shift} of {self._name}/{number} is not the one of the backup: others"
                " wrote there before it was complete. Restore it under another name"
            )
        return stop

    def _stop_in_time(self, partition: PartitionBackup, stop: int) -> int:
        """The first offset before ``stop`` with a record of a time that is too late; or ``stop``. Blocks."""
        limit = self._manner.until.timestamp_ms
        for file in partition.files:
            if limit is not None and file.timestamp_ms_max >= limit and file.first_offset < stop:
                at = max(file.first_offset, partition.first_offset)
                for batch in _within(self._read(file), file.first_offset, at, stop):
                    kept = self._in_time(file, batch)
                    at += kept
                    if kept < batch.num_rows:
                        return at
        return stop

    async def _partition(self, partition: PartitionBackup, start: tuple[int, int], stop: int) -> Restored:
        number, (end, shift) = partition.partition, start
        at = end - shift  # the next offset, as the backup counts
        self._restored(at - partition.first_offset)
        for file in partition.files:
            if file.end_offset <= at or at >= stop:
                continue
            async with self._slots:
                batches = await asyncio.to_thread(self._read, file)
                for batch in _merged(_within(batches, file.first_offset, at, stop), self._topic.config):
                    kept = self._in_time(file, batch)
                    for part in _parts(batch.slice(0, kept), self._topic.config):
                        await self._append(number, part, at + shift)
                        at += part.num_rows
                        self._restored(part.num_rows)
                    if kept < batch.num_rows:
                        stop = at
                        break
        return Restored(self._name, number, at - partition.first_offset, at + shift, shift)

    def _read(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        return batches_of(self._store.read(file.path), file)

    def _in_time(self, file: DataFile, batch: pa.RecordBatch) -> int:
        """How many records of a batch come before the first one of a time that is too late."""
        limit = self._manner.until.timestamp_ms
        if limit is None or file.timestamp_ms_max < limit:
            return int(batch.num_rows)
        late = pc.index(pc.greater_equal(batch.column(TIMESTAMP).cast(pa.int64()), limit), True).as_py()
        return int(batch.num_rows) if late < 0 else int(late)

    async def _append(self, number: int, batch: pa.RecordBatch, log_end: int) -> None:
        """Store a batch at this offset, once: an attempt without an answer is looked for before the next one."""
        client, message = self._client, _message(batch)
        deadline = time.monotonic() + client.config.delivery_timeout_ms / 1000
        attempts = 0
        while True:
            try:
                await client.append(
                    self._name, number, message, topic_id=self._topic_id, conditions=Conditions(if_log_end=log_end)
                )
                return
            except OffsetMismatch as other:
                if attempts and other.fields["log_end"] == log_end + batch.num_rows:
                    return  # by an attempt whose answer was lost
                raise CannotRestore(f"someone else writes to {self._name}/{number}") from other
            except StockadeError as error:
                attempts += 1
                if not is_momentary(error):
                    raise
                await asyncio.sleep(pause_before_next(client.config, attempts, error, deadline - time.monotonic()))


def _message(batch: pa.RecordBatch) -> bytes:
    """The message of a batch; compressed where a topic takes it only so, as the one record in it came."""
    message: bytes = batch.serialize().to_pybytes()
    return message if len(message) <= BATCH_BYTES_MAX else compressed(message, "zstd")


def _within(batches: Iterable[pa.RecordBatch], base: int, at: int, stop: int) -> Iterator[pa.RecordBatch]:
    """The rows with ``at <= offset < stop`` of batches that begin at ``base``."""
    for batch in batches:
        low, high = max(base, at), min(base + batch.num_rows, stop)
        if low < high:
            yield batch.slice(low - base, high - low)
        base += batch.num_rows


def _merged(batches: Iterator[pa.RecordBatch], config: TopicConfig) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: each append costs a round of messages and a sync."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        size = sum(each.nbytes for each in (*held, batch))
        if held and (size > config.max_batch_bytes // 2 or sum(map(len, held)) + len(batch) > RECORDS_MAX):
            yield pa.concat_batches(held)
            held = []
        held.append(batch)
    if held:
        yield pa.concat_batches(held)


def _parts(batch: pa.RecordBatch, config: TopicConfig) -> Iterator[pa.RecordBatch]:
    """A batch in parts that the topic takes, but for single records that it would not take today."""
    rows = batch.num_rows
    if rows and (rows > RECORDS_MAX or (rows > 1 and pa.ipc.get_record_batch_size(batch) > config.max_batch_bytes)):
        yield from _parts(batch.slice(0, rows // 2), config)
        yield from _parts(batch.slice(rows // 2), config)
    elif rows:
        yield batch


def _changes(before: TopicConfig, after: TopicConfig) -> dict[str, object]:
    fields, wanted = structs.asdict(before), structs.asdict(after)
    return {name: value for name, value in wanted.items() if fields[name] != value}


def size_to_restore(manifest: Manifest, names: Mapping[str, str], until: Until) -> int:
    """How many records a restore would store at most."""
    return sum(
        max(
            0,
            min(each.end_offset, until.offsets.get((topic.topic, each.partition), each.end_offset)) - each.first_offset,
        )
        for topic in manifest.topics
        if topic.topic in names
        for each in topic.partitions
    )
