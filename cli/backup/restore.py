"""Restores topics from a backup into a running cluster, through its public API: into a new cluster, or into the same
one under other names.

Restored are topics with their configuration and their records with keys, values, headers, timestamps and offsets;
positions of groups; and on request principals with their rights. Not restored are sessions, grants, tickets, owners and
fencing epochs (writers acquire anew), producer ids and sequence numbers (a producer that repeats a batch from before
the backup stores it once more), stages, message ids, tokens, and the times of receipt, from which retention by age
counts.

A log may have begun above offset 0, because records had been dropped before the backup. The restored log begins at the
same offset: ``begin_at`` sets it while the partition has never had a record. ``renumber`` is for a cluster that cannot
do that: its logs begin at 0, and offsets and positions are less by ``first_offset``.

Each append names the log end that it expects (``if_log_end``), so each record is stored once even if an append is
repeated, and a restore that was cut short goes on where it stopped (``resume``). A topic requires no fence and drops
no record before it is complete. If another client writes meanwhile, its record moves the log's end, so the next append
is refused; ``resume`` notices it, because the last record is not the backup's.

``prepare`` checks all topics before the first one is written to, so a refusal at that time leaves nothing behind. A
topic is complete, with its configuration and positions, before the next one begins. In a complete topic later changes
by others stay: settings, and positions of groups, since groups with an overwritten position would read records twice,
or skip some.
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
from ...partition.errors import NotFound, OffsetMismatch, PlanChanged, StockadeError, UnknownTopicOrPartition
from ...partition.records.batch import compressed
from .create import record_at
from .manifest import Damaged, DataFile, Manifest, PartitionBackup, PositionBackup, PrincipalBackup, TopicBackup
from .store import Store
from .verify import TIMESTAMP, batches_of, gaps, row_at

RECORDS_MAX = 50_000
"""Records of one append at most."""
AT_A_TIME = 4
"""Partitions that are restored at the same time; each has a file of the backup in memory."""
OPEN = {
    "require_fence": False,
    "writer_group": None,
    "retention_ms": -1,
    "retention_bytes": -1,
    "max_batch_bytes": BATCH_BYTES_MAX,
}
"""Settings of a topic until it is complete, in place of its own. Its own max_batch_bytes may have been lowered since it
took its largest record."""
KEPT_OFFSETS = 2
"""The feature level (cluster/features.py) from which on a log can begin above offset 0."""
OPEN_QUOTA = (1 << 63) - 1
"""The quota of a topic with a quota until it is complete: no record exceeds it, and a cluster that knows no quotas
refuses the topic at its creation.
"""


class CannotRestore(Exception):
    """The cluster has other data where the records should go, or the backup lacks a topic that was asked for."""


class Until(NamedTuple):
    """Where a restore stops in each partition: before its first record with this timestamp (ms since 1970) or a later
    one, and before its offset in ``offsets``, by (topic, partition) of the backup.
    """

    timestamp_ms: int | None = None
    offsets: Mapping[tuple[str, int], int] = {}


NEVER = Until()


class Manner(NamedTuple):
    """How to restore. ``renumber``: every log begins at offset 0. ``resume``: records that are in the topics already
    come from an earlier attempt with the same options. ``replication_factor`` None: the cluster's default for new
    topics.
    """

    until: Until = NEVER
    renumber: bool = False
    resume: bool = False
    replication_factor: int | None = None


class Restored(NamedTuple):
    """A partition after its restore. ``shift``: offset of a record here - its offset in the backup; 0 or negative."""

    topic: str
    partition: int
    records: int
    log_end: int
    shift: int


async def prepare(
    client: Client, store: Store, manifest: Manifest, names: Mapping[str, str], manner: Manner
) -> list["TopicRestore"]:
    """A checked TopicRestore for each topic of ``names``, which maps its name in the backup to its new name. Changes
    nothing. Raises CannotRestore, Damaged, CannotReach or StockadeError if one of the topics cannot be restored.
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
    """Raises CannotRestore if the cluster is open: the first principal would close it, and those restored have no
    tokens.
    """
    if (await client.caller()).open:
        raise CannotRestore(
            "principals end the time in which every client may do everything, and these have no tokens yet: first make"
            " one for yourself with `stockade principals put NAME --right all --new-token`, and restore as that one"
        )


async def restore_principals(client: Client, manifest: Manifest) -> AsyncIterator[PrincipalBackup]:
    """Create the principals of a backup that the cluster does not have; yields each one after its creation."""
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
    """The restore of one topic of a backup under ``name``: call ``check``, then ``run``."""

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
        """Find the topic and its logs in the cluster, and choose where to begin and to stop. Changes nothing. Raises
        CannotRestore, Damaged, CannotReach, StockadeError.
        """
        topic = self._topic
        if faults := [fault for each in topic.partitions for fault in gaps(f"{topic.topic}/{each.partition}", each)]:
            raise Damaged("; ".join(faults))
        self._present = await self._find()
        logs = [(0, 0)] * len(topic.partitions)
        if self._present is not None:
            self._topic_id = self._present.topic_id
            logs = await self._logs()
            is_new = self._present.config == self._open and not any(end for _, end in logs)
            if is_new and self._topic_id == topic.topic_id:  # as where ``_created`` was cut short
                await self._check_unused(self._present)
                self._present = None
        if any(end for _, end in logs) and not self._manner.resume:
            raise CannotRestore(f"topic {self._name} has records already: {self._elsewhere}, or go on with --resume")
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

    async def _logs(self) -> list[tuple[int, int]]:
        """(log_start, log_end) of each partition."""
        found = [await self._client.offsets(self._name, each.partition) for each in self._topic.partitions]
        return [(each.log_start, each.log_end) for each in found]

    async def _check_unused(self, present: Topic) -> None:
        """Raises CannotRestore if others use the topic, which has no records, and is to be created anew."""
        contents = [await self._client.contents(self._name, each.partition, 1) for each in present.partitions]
        if any(each.slot_mode is not None for each in present.partitions) or any(each.total for each in contents):
            raise CannotRestore(
                f"topic {self._name} is there already, with the id that it has in the backup, and writers hold it or"
                f" groups have positions there: delete it, or {self._elsewhere}"
            )

    @property
    def _elsewhere(self) -> str:
        return f"choose another name with --topic {self._topic.topic} --as NAME"

    async def _find(self) -> Topic | None:
        """The topic, if an earlier attempt created it; None if there is none. Raises CannotRestore if its partitions or
        settings show that it is another topic.
        """
        try:
            found = await self._client.topic(self._name)
        except UnknownTopicOrPartition:
            return None
        is_fit = len(found.partitions) == len(self._topic.partitions)
        if not is_fit or (found.config != self._open and not self._manner.resume):
            raise CannotRestore(f"topic {self._name} is there already: {self._elsewhere}")
        return found

    async def _check_resumed(self, present: Topic) -> None:
        partitions = self._topic.partitions
        self._stops = await asyncio.gather(*map(self._resumed, partitions, self._starts, self._stops))
        is_whole = all(end - shift >= stop for (end, shift), stop in zip(self._starts, self._stops, strict=True))
        if present.config not in (self._open, self._topic.config) and not is_whole:
            raise CannotRestore(f"topic {self._name} is there already, with other settings: {self._elsewhere}")

    async def run(self, restored: Callable[[int], None]) -> list[Restored]:
        """Restore the topic; ``restored`` is called with the number of records of each step."""
        self._restored = restored
        topic, client = self._topic, self._client
        self._topic_id = (self._present or await self._created()).topic_id
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

    async def _created(self) -> Topic:
        """Create the topic, with another id than in the backup: by that, a reader that had read beyond the backup sees
        that this log is another one. The ids of a new cluster may coincide with those of the one that was lost; they
        never return, so the next attempt has another one. Raises CannotRestore if others write to the topic.
        """
        while True:
            made = await self._client.create_topic(
                self._name,
                partitions=len(self._topic.partitions),
                replication_factor=self._manner.replication_factor,
                config=self._open,
            )
            if made.topic_id != self._topic.topic_id:
                return made
            await self._client.change_topic(self._name, seal=True)  # so that no record is deleted
            if any(end for _, end in await self._logs()):
                raise CannotRestore(f"another client writes to {self._name}, which is sealed now")
            try:
                await self._client.delete_topic(self._name, topic_id=made.topic_id, if_grants=())
            except PlanChanged as error:
                raise CannotRestore(f"another client holds {self._name}, which is sealed now") from error

    async def _close(self) -> None:
        """Give the topic its own configuration, when it has all its records. Raises CannotRestore if others changed its
        settings meanwhile.
        """
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
        """Commit a group's position of the backup; with ``resume``, only if the group has no position yet."""
        where = position.group, place.topic, place.partition
        if self._manner.resume and (await self._client.position(*where)).offset is not None:
            return
        offset = min(max(0, position.offset + place.shift), place.log_end)
        await self._client.commit_position(*where, offset, metadata=position.metadata)

    def _is_late(self, partition: PartitionBackup) -> bool:
        """Whether the restored log begins above offset 0."""
        return partition.first_offset > 0 and not self._manner.renumber

    def _start(self, partition: PartitionBackup, log_start: int, log_end: int) -> tuple[int, int]:
        """(The next offset of the partition in the cluster, the shift from offsets of the backup to the cluster's.)"""
        first, where = partition.first_offset, f"{self._name}/{partition.partition}"
        if not self._is_late(partition):
            return log_end, -first
        if log_end and log_start < first:
            raise CannotRestore(
                f"{where} begins at offset {log_start}, not at {first}: it was restored with --renumber"
            )
        return log_end or first, 0

    def _stop(self, partition: PartitionBackup) -> int:
        """The offset of the backup before which the restore stops at the latest; timestamps are not considered."""
        limits = self._manner.until.offsets
        return min(limits.get((self._topic.topic, partition.partition), partition.end_offset), partition.end_offset)

    async def _resumed(self, partition: PartitionBackup, start: tuple[int, int], stop: int) -> int:
        """The offset of the backup before which the restore stops, by offset and by time. Raises CannotRestore if the
        record at the end of what earlier attempts restored is not the backup's.
        """
        number, (end, shift) = partition.partition, start
        async with self._slots:
            stop = await asyncio.to_thread(self._stop_in_time, partition, stop)
            offset = min(end - shift, stop) - 1
            file = next((each for each in partition.files if each.first_offset <= offset < each.end_offset), None)
            if file is None or offset < partition.first_offset:  # no record was restored yet
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
        """The first offset below ``stop`` whose record has a timestamp at or after the limit; else ``stop``. Blocks."""
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
                for batch in merge(_within(batches, file.first_offset, at, stop), self._topic.config):
                    kept = self._in_time(file, batch)
                    for part in split(batch.slice(0, kept), self._topic.config):
                        await append_once(self._client, self._name, number, self._topic_id, part, at + shift)
                        at += part.num_rows
                        self._restored(part.num_rows)
                    if kept < batch.num_rows:
                        stop = at
                        break
        return Restored(self._name, number, at - partition.first_offset, at + shift, shift)

    def _read(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        return batches_of(self._store.read(file.path), file)

    def _in_time(self, file: DataFile, batch: pa.RecordBatch) -> int:
        """How many records of a batch come before its first one with a timestamp at or after the limit."""
        limit = self._manner.until.timestamp_ms
        if limit is None or file.timestamp_ms_max < limit:
            return int(batch.num_rows)
        late = pc.index(pc.greater_equal(batch.column(TIMESTAMP).cast(pa.int64()), limit), True).as_py()
        return int(batch.num_rows) if late < 0 else int(late)


async def append_once(client: Client, topic: str, number: int, topic_id: int, batch: pa.RecordBatch, end: int) -> None:
    """Store a batch at offset ``end`` of a partition, once. If an attempt had no answer, the log has grown by exactly
    the batch, and its last record is that of the batch, it is taken as stored. Raises CannotRestore if the log ends
    elsewhere, or StockadeError.
    """
    message = _message(batch)
    deadline = time.monotonic() + client.config.delivery_timeout_ms / 1000
    attempts = 0
    while True:
        try:
            await client.append(topic, number, message, topic_id=topic_id, conditions=Conditions(if_log_end=end))
            return
        except OffsetMismatch as other:
            if attempts and other.fields["log_end"] == end + batch.num_rows:
                last = batch.num_rows - 1
                present = await record_at(client, topic, number, end + last, topic_id)
                if present is not None and present.equals(batch.slice(last)):
                    return  # an attempt whose answer was lost stored the batch
            raise CannotRestore(f"another client writes to {topic}/{number}") from other
        except StockadeError as error:
            attempts += 1
            if not is_momentary(error):
                raise
            await asyncio.sleep(pause_before_next(client.config, attempts, error, deadline - time.monotonic()))


def _message(batch: pa.RecordBatch) -> bytes:
    """The Arrow message of a batch; compressed if it is too large otherwise, as is a single record that came
    compressed.
    """
    message: bytes = batch.serialize().to_pybytes()
    return message if len(message) <= BATCH_BYTES_MAX else compressed(message, "zstd")


def _within(batches: Iterable[pa.RecordBatch], base: int, at: int, stop: int) -> Iterator[pa.RecordBatch]:
    """The rows with ``at <= offset < stop`` of batches, of which the first begins at offset ``base``."""
    for batch in batches:
        low, high = max(base, at), min(base + batch.num_rows, stop)
        if low < high:
            yield batch.slice(low - base, high - low)
        base += batch.num_rows


def merge(batches: Iterator[pa.RecordBatch], config: TopicConfig) -> Iterator[pa.RecordBatch]:
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


def split(batch: pa.RecordBatch, config: TopicConfig) -> Iterator[pa.RecordBatch]:
    """A batch, halved until each part is within the topic's own bounds; a single record that exceeds them is a part."""
    rows = batch.num_rows
    if rows and (rows > RECORDS_MAX or (rows > 1 and pa.ipc.get_record_batch_size(batch) > config.max_batch_bytes)):
        yield from split(batch.slice(0, rows // 2), config)
        yield from split(batch.slice(rows // 2), config)
    elif rows:
        yield batch


def _changes(before: TopicConfig, after: TopicConfig) -> dict[str, object]:
    fields, wanted = structs.asdict(before), structs.asdict(after)
    return {name: value for name, value in wanted.items() if fields[name] != value}


def size_to_restore(manifest: Manifest, names: Mapping[str, str], until: Until) -> int:
    """How many records a restore stores at most: timestamps are not considered."""
    return sum(
        max(
            0,
            min(each.end_offset, until.offsets.get((topic.topic, each.partition), each.end_offset)) - each.first_offset,
        )
        for topic in manifest.topics
        if topic.topic in names
        for each in topic.partitions
    )
