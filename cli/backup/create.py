"""Makes a backup of a running cluster through its public API: no file of a node is touched, and any user with the right
to read may do it.

The cut: the end of every partition is read first, with its configuration; then the records up to there are copied.
Records that are written meanwhile are left to the next backup. Ends are read one after the other, so the cut is a
vector of offsets and no single moment; no append spans partitions, so it tears none. Records below an end never change,
which is why an incremental backup copies only those beyond the last one.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import pyarrow as pa

from ...client.api.client import Client
from ...client.retry import pause_before_next
from ...partition.api.topics import Topic
from ...partition.errors import InconsistentTopicId, OffsetOutOfRange, StockadeError, UnknownTopicOrPartition
from ...partition.records.batch import SCHEMA
from ...partition.version import VERSION
from .manifest import DataFile, Manifest, PartitionBackup, PositionBackup, TopicBackup
from .store import Store
from .verify import times_of

FETCH_BYTES = 8 * 1024 * 1024
"""Asked for at a time."""
FILE_BYTES = 64 * 1024 * 1024
"""A file is complete when it has so many bytes."""
ASKED_AT_A_TIME = 16
"""Partitions whose ends are asked for at the same time."""

_T = TypeVar("_T")


class CannotBackUp(Exception):
    """The place has a backup that does not belong to this cluster."""


class Cut(NamedTuple):
    """Where a partition began and ended."""

    log_start: int
    log_end: int


class Progress(NamedTuple):
    """``found``: so many more records are to be copied. ``copied``: so many are."""

    found: Callable[[int], None]
    copied: Callable[[int], None]


async def patiently(client: Client, call: Callable[[], Awaitable[_T]]) -> _T:
    """What ``call`` answers, which changes nothing: repeated like every call of the client."""
    deadline = time.monotonic() + client.config.delivery_timeout_ms / 1000
    attempts = 0
    while True:
        try:
            return await call()
        except StockadeError as error:
            attempts += 1
            await asyncio.sleep(pause_before_next(client.config, attempts, error, deadline - time.monotonic()))


async def back_up(
    client: Client, store: Store, topics: Iterable[str], groups: Iterable[str], progress: Progress
) -> Manifest:
    """Back up these topics (none: all), and the positions of all groups that own partitions and of ``groups``.

    Raises CannotBackUp, CannotReach, StockadeError.
    """
    started = datetime.now(UTC)
    names, cluster = await asyncio.to_thread(store.manifests), await client.connect()
    previous = await asyncio.to_thread(store.manifest, names[-1]) if names else None
    if previous is not None and previous.cluster_id != cluster.cluster_id:
        raise CannotBackUp(f"{store.url} has backups of the cluster {previous.cluster_id}, not {cluster.cluster_id}")
    wanted = list(topics) or [each.name for each in await client.topics()]
    described = [await client.topic(name) for name in wanted]
    cuts = [await _cut(client, topic) for topic in described]
    cut_ms = _now_ms()
    found, left_out = [], []
    for topic, cut in zip(described, cuts, strict=True):
        try:
            found.append(await _TopicCopy(client, store, topic, previous, progress).run(cut))
        except (UnknownTopicOrPartition, InconsistentTopicId):
            left_out.append(topic.name)
    manifest = Manifest(
        name=started.strftime("%Y%m%dT%H%M%S.%fZ"),
        cluster_id=cluster.cluster_id,
        software=VERSION,
        started_ms=int(started.timestamp() * 1000),
        cut_ms=cut_ms,
        ended_ms=_now_ms(),
        topics=found,
        positions=await _positions(client, {topic.name: topic for topic in described}, groups),
        left_out=left_out,
    )
    await asyncio.to_thread(store.add, manifest)
    return manifest


async def _cut(client: Client, topic: Topic) -> list[Cut]:
    slots = asyncio.Semaphore(ASKED_AT_A_TIME)

    async def ask(partition: int) -> Cut:
        async with slots:
            offsets = await client.offsets(topic.name, partition)
            return Cut(offsets.log_start, offsets.log_end)

    return await asyncio.gather(*(ask(partition) for partition in range(len(topic.partitions))))


class _TopicCopy:
    def __init__(
        self, client: Client, store: Store, topic: Topic, previous: Manifest | None, progress: Progress
    ) -> None:
        self._client, self._store, self._topic, self._progress = client, store, topic, progress
        same = [each for each in (previous.topics if previous else []) if each.topic_id == topic.topic_id]
        self._before = {each.partition: each for one in same if one.topic == topic.name for each in one.partitions}

    async def run(self, cuts: list[Cut]) -> TopicBackup:
        topic, partitions = self._topic, []
        kept = [self._kept(number, cut) for number, cut in enumerate(cuts)]
        begins = [files[-1].end_offset if files else cut.log_start for cut, files in zip(cuts, kept, strict=True)]
        self._progress.found(sum(cut.log_end for cut in cuts) - sum(begins))
        for number, (cut, files) in enumerate(zip(cuts, kept, strict=True)):
            partitions.append(await self._copy(number, cut, files))
        return TopicBackup(topic.name, topic.topic_id, topic.replication_factor, topic.sealed, topic.config, partitions)

    def _kept(self, number: int, cut: Cut) -> list[DataFile]:
        """The files of earlier backups that go on to be needed: without a gap from the log's start on."""
        before = self._before.get(number)
        if before is None or before.end_offset < cut.log_start:
            return []
        if before.end_offset > cut.log_end:
            raise CannotBackUp(
                f"{self._topic.name}/{number} ends at {cut.log_end}, and its last backup at {before.end_offset}: the"
                " cluster has lost records, or it is not the same one. Back it up to another place"
            )
        return [file for file in before.files if file.end_offset > cut.log_start]

    async def _copy(self, number: int, cut: Cut, files: list[DataFile]) -> PartitionBackup:
        files, name, topic = list(files), self._topic.name, self._topic
        first, at = cut.log_start, files[-1].end_offset if files else cut.log_start
        writer = _FileWriter(at)
        while at < cut.log_end:
            try:
                fetched = await patiently(
                    self._client,
                    lambda at=at: self._client.fetch(  # type: ignore[misc]
                        name, number, at, max_bytes=FETCH_BYTES, topic_id=topic.topic_id
                    ),
                )
            except OffsetOutOfRange as trimmed:  # by retention, while the backup was made
                first = at = min(trimmed.fields["log_start"], cut.log_end)
                files, writer = [], _FileWriter(at)
                continue
            for base, batch in fetched.after(at):
                writer.add(batch.slice(0, max(0, cut.log_end - base)))
            self._progress.copied(min(fetched.next_offset, cut.log_end) - at)
            at = min(fetched.next_offset, cut.log_end)
            if writer.size >= FILE_BYTES:
                files.append(await self._written(number, writer, at))
                writer = _FileWriter(at)
        if writer.first_offset < at:
            files.append(await self._written(number, writer, at))
        return PartitionBackup(number, first, cut.log_end, topic.partitions[number].topic_epoch, files)

    async def _written(self, number: int, writer: "_FileWriter", end: int) -> DataFile:
        content, first = writer.close(), writer.first_offset
        folder = f"data/{self._topic.topic_id}-{self._topic.name}/{number}"
        path = f"{folder}/{first:020d}-{end:020d}.arrow"
        await asyncio.to_thread(self._store.write, path, content)
        return DataFile(path, first, end, len(content), hashlib.sha256(content).hexdigest(), *writer.times)


class _FileWriter:
    """An Arrow stream in memory, compressed with ZSTD."""

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.times: tuple[int, int] = (0, 0)
        self._sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._stream = pa.ipc.new_stream(self._sink, SCHEMA, options=options)

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        least, most = times_of([batch])
        is_first = self.times == (0, 0)
        self.times = (least, most) if is_first else (min(least, self.times[0]), max(most, self.times[1]))
        self._stream.write_batch(batch)

    def close(self) -> bytes:
        self._stream.close()
        content: bytes = self._sink.getvalue().to_pybytes()
        return content


async def _positions(client: Client, topics: dict[str, Topic], groups: Iterable[str]) -> list[PositionBackup]:
    """The positions of ``groups`` in all partitions, and of groups that own partitions in these."""
    everywhere = [(topic.name, each.partition) for topic in topics.values() for each in topic.partitions]
    wanted = {(group, *where) for group in groups for where in everywhere}
    for listed in (await client.groups()).groups:
        for resource in await client.resources(listed.group):
            name, _, number = resource.resource.rpartition("/")
            if name in topics and number.isdecimal() and int(number) < len(topics[name].partitions):
                wanted.add((listed.group, name, int(number)))
    found = [await client.position(*each) for each in sorted(wanted)]
    return [
        PositionBackup(each.group, each.topic, each.partition, each.offset, each.metadata)
        for each in found
        if each.offset is not None
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
