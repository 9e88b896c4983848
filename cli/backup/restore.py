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
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from ...client.api.client import Client
from ...client.api.conditions import Conditions
from ...client.retry import is_momentary, pause_before_next
from ...partition.api.topics import BATCH_BYTES_MAX, TopicConfig
from ...partition.errors import FeatureLevelTooLow, NotFound, OffsetMismatch, StockadeError, TopicAlreadyExists
from ...partition.records.batch import compressed
from .create import record_at
from .manifest import Damaged, DataFile, Manifest, PartitionBackup, PrincipalBackup, TopicBackup
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


async def restore(
    client: Client,
    store: Store,
    manifest: Manifest,
    names: Mapping[str, str],
    manner: Manner,
    restored: Callable[[int], None],
) -> list[Restored]:
    """Restore the topics of ``names``, each under the name that it is mapped to. ``restored`` is called with numbers of
    records. Raises CannotRestore, Damaged, CannotReach, StockadeError.
    """
    known = {topic.topic: topic for topic in manifest.topics}
    if missing := sorted(set(names) - set(known)):
        raise CannotRestore(f"the backup {manifest.name} has no topic {', '.join(missing)}")
    done: list[Restored] = []
    for old, new in names.items():
        done += await _TopicRestore(client, store, known[old], new, manner, restored).run()
    by_partition = {(old, each.partition): each for old, new in names.items() for each in done if each.topic == new}
    for position in manifest.positions:
        place = by_partition.get((position.topic, position.partition))
        if place is not None:
            offset = min(max(0, position.offset + place.shift), place.log_end)
            await client.commit_position(
                position.group, place.topic, place.partition, offset, metadata=position.metadata
            )
    return done


async def restore_principals(client: Client, manifest: Manifest) -> list[PrincipalBackup]:
    """Create the principals of a backup that the cluster does not have; answers which. Raises CannotRestore."""
    if (await client.caller()).open:
        raise CannotRestore(
            "principals end the time in which every client may do everything, and these have no tokens yet: first make"
            " one for yourself with `stockade principals put NAME --right all --new-token`, and restore as that one"
        )
    made = []
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
            made.append(each)
    return made


class _TopicRestore:
    def __init__(
        self,
        client: Client,
        store: Store,
        topic: TopicBackup,
        name: str,
        manner: Manner,
        restored: Callable[[int], None],
    ) -> None:
        self._client, self._store, self._topic, self._name = client, store, topic, name
        self._manner, self._restored = manner, restored
        self._slots = asyncio.Semaphore(AT_A_TIME)

    async def run(self) -> list[Restored]:
        topic, client = self._topic, self._client
        if faults := [fault for each in topic.partitions for fault in gaps(f"{topic.topic}/{each.partition}", each)]:
            raise Damaged("; ".join(faults))
        quota = -1 if topic.config.quota_bytes < 0 else OPEN_QUOTA
        config = structs.replace(topic.config, **OPEN, quota_bytes=quota)
        count = len(topic.partitions)
        is_complete = await self._create(config)
        logs = [await client.offsets(self._name, number) for number in range(count)]
        if any(log.log_end for log in logs) and not self._manner.resume:
            raise CannotRestore(f"topic {self._name} has records already: choose another name, or let it be resumed")
        starts = [
            await self._start(each, log.log_start, log.log_end)
            for each, log in zip(topic.partitions, logs, strict=True)
        ]
        stops = [self._stop(each) for each in topic.partitions]
        if self._manner.resume:
            stops = await asyncio.gather(*map(self._resumed, topic.partitions, starts, stops))
        done = await asyncio.gather(*map(self._partition, topic.partitions, starts, stops))
        if topic.config != config and not is_complete:
            await client.change_topic(self._name, config=_changes(config, topic.config))
        if topic.sealed:
            await client.change_topic(self._name, seal=True)
        return list(done)

    async def _create(self, config: TopicConfig) -> bool:
        """Create the topic, or find it; whether it is complete: an earlier attempt gave it its own configuration."""
        count, is_complete = len(self._topic.partitions), False
        try:
            topic = await self._client.create_topic(
                self._name, partitions=count, replication_factor=self._manner.replication_factor, config=config
            )
        except TopicAlreadyExists as other:
            topic = await self._client.topic(self._name)
            is_complete = len(topic.partitions) == count and topic.config == self._topic.config
            if not is_complete or not self._manner.resume:
                raise CannotRestore(f"topic {self._name} is there already: choose another name") from other
        self._topic_id = topic.topic_id
        return is_complete

    async def _start(self, partition: PartitionBackup, log_start: int, log_end: int) -> tuple[int, int]:
        """The next offset of a partition, and what is added to an offset of the backup."""
        first, where = partition.first_offset, f"{self._name}/{partition.partition}"
        if self._manner.renumber or not first:
            return log_end, -first
        if not log_end:
            await self._begin_at(partition.partition, first)
            return first, 0
        if log_start < first:
            raise CannotRestore(
                f"{where} begins at offset {log_start}, not at {first}: it was restored with --renumber"
            )
        return log_end, 0

    async def _begin_at(self, number: int, first: int) -> None:
        try:
            await self._client.begin_at(self._name, number, first, topic_id=self._topic_id)
        except (FeatureLevelTooLow, NotFound) as old:
            raise CannotRestore(
                f"{self._name}/{number} is to begin at offset {first}, and this cluster cannot do that yet: see"
                " `stockade cluster upgrade`, or say --renumber"
            ) from old

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
