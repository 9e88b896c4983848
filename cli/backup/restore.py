"""Restores topics from a backup into a running cluster, through its public API: a new cluster, or the same one under
other names.

What comes back: topics with their configuration, their records with keys, values, headers and timestamps, in their
order; and positions of groups. What does not: sessions, grants, tickets, owners and fencing epochs (writers acquire
anew), producer ids and sequence numbers (a producer that repeats a batch from before the backup stores it once more),
stages, message ids, principals, and the times of receipt, by which retention by age counts. A new log begins at offset
0: where records had been dropped before the backup, offsets and positions are less by ``first_offset``.

Each append names the log's end that it expects, so a record is stored once, whatever is repeated, and a restore that
was cut short goes on where it was (``resume``). Topics take no fences, and drop nothing, before they are complete.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from ...client.api.client import Client
from ...client.api.conditions import Conditions
from ...client.retry import is_momentary, pause_before_next
from ...partition.api.topics import TopicConfig
from ...partition.errors import OffsetMismatch, StockadeError
from .manifest import Damaged, DataFile, Manifest, PartitionBackup, TopicBackup
from .store import Store
from .verify import TIMESTAMP, batches_of, gaps

RECORDS_MAX = 50_000
"""Of one append."""
AT_A_TIME = 4
"""Partitions that are restored at the same time; each has a file of the backup in memory."""
OPEN = {"require_fence": False, "writer_group": None, "retention_ms": -1, "retention_bytes": -1}
"""The configuration of a topic that is not complete yet, where it differs from its own."""


class CannotRestore(Exception):
    """The cluster has something where the records should go, or the backup has not what was asked for."""


class Until(NamedTuple):
    """Where to stop: before the first record of a partition with this timestamp (ms) or a later one, and before these
    offsets of the backup, by (topic, partition).
    """

    timestamp_ms: int | None = None
    offsets: Mapping[tuple[str, int], int] = {}


NEVER = Until()


class Restored(NamedTuple):
    """A partition as it is now. ``shift``: the offset of a record here, less that in the backup."""

    topic: str
    partition: int
    records: int
    shift: int


async def restore(
    client: Client,
    store: Store,
    manifest: Manifest,
    *,
    names: Mapping[str, str],
    until: Until = NEVER,
    replication_factor: int | None = None,
    resume: bool = False,
    restored: Callable[[int], None] = lambda records: None,
) -> list[Restored]:
    """Restore the topics of ``names``, each under the name that it is mapped to. ``restored`` is called with numbers of
    records. Raises CannotRestore, Damaged, CannotReach, StockadeError.
    """
    known = {topic.topic: topic for topic in manifest.topics}
    if missing := sorted(set(names) - set(known)):
        raise CannotRestore(f"the backup {manifest.name} has no topic {', '.join(missing)}")
    done: list[Restored] = []
    for old, new in names.items():
        one = _TopicRestore(client, store, known[old], new, until, restored)
        done += await one.run(replication_factor, resume=resume)
    by_partition = {(old, each.partition): each for old, new in names.items() for each in done if each.topic == new}
    for position in manifest.positions:
        place = by_partition.get((position.topic, position.partition))
        if place is not None:
            offset = min(max(0, position.offset + place.shift), place.records)
            await client.commit_position(position.group, place.topic, place.partition, offset)
    return done


class _TopicRestore:
    def __init__(
        self,
        client: Client,
        store: Store,
        topic: TopicBackup,
        name: str,
        until: Until,
        restored: Callable[[int], None],
    ) -> None:
        self._client, self._store, self._topic, self._name = client, store, topic, name
        self._until, self._restored = until, restored
        self._slots = asyncio.Semaphore(AT_A_TIME)

    async def run(self, replication_factor: int | None, *, resume: bool) -> list[Restored]:
        topic, client = self._topic, self._client
        if faults := [fault for each in topic.partitions for fault in gaps(f"{topic.topic}/{each.partition}", each)]:
            raise Damaged("; ".join(faults))
        config = structs.replace(topic.config, **OPEN)
        count = len(topic.partitions)
        made = await client.create_topic(
            self._name, partitions=count, replication_factor=replication_factor, config=config
        )
        ends = [(await client.offsets(self._name, number)).log_end for number in range(count)]
        if any(ends) and not resume:
            raise CannotRestore(f"topic {self._name} has records already: choose another name, or let it be resumed")
        self._topic_id = made.topic_id
        done = await asyncio.gather(*(self._partition(each, ends[each.partition]) for each in topic.partitions))
        if topic.config != config:
            await client.change_topic(self._name, config=_changes(config, topic.config))
        if topic.sealed:
            await client.change_topic(self._name, seal=True)
        return list(done)

    async def _partition(self, partition: PartitionBackup, end: int) -> Restored:
        first, number = partition.first_offset, partition.partition
        stop = min(self._until.offsets.get((self._topic.topic, number), partition.end_offset), partition.end_offset)
        at = first + end  # the next offset, as the backup counts
        self._restored(end)
        for file in partition.files:
            if file.end_offset <= at or at >= stop:
                continue
            async with self._slots:
                batches = await asyncio.to_thread(self._read, file)
                for batch in _merged(_within(batches, file.first_offset, at, stop), self._topic.config):
                    kept = self._in_time(file, batch)
                    for part in _parts(batch.slice(0, kept), self._topic.config):
                        await self._append(number, part, at - first)
                        at += part.num_rows
                        self._restored(part.num_rows)
                    if kept < batch.num_rows:
                        stop = at
                        break
        return Restored(self._name, number, at - first, -first)

    def _read(self, file: DataFile) -> list[pa.RecordBatch]:
        return batches_of(self._store.read(file.path), file)

    def _in_time(self, file: DataFile, batch: pa.RecordBatch) -> int:
        """How many records of a batch come before the first one of a time that is too late."""
        limit = self._until.timestamp_ms
        if limit is None or file.timestamp_ms_max < limit:
            return int(batch.num_rows)
        late = pc.index(pc.greater_equal(batch.column(TIMESTAMP).cast(pa.int64()), limit), True).as_py()
        return int(batch.num_rows) if late < 0 else int(late)

    async def _append(self, number: int, batch: pa.RecordBatch, log_end: int) -> None:
        """Store a batch at this offset, once: an attempt without an answer is looked for before the next one."""
        client, message = self._client, batch.serialize().to_pybytes()
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


def _within(batches: list[pa.RecordBatch], base: int, at: int, stop: int) -> Iterator[pa.RecordBatch]:
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
    """A batch in parts that the topic takes."""
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
