"""Makes a backup of a running cluster through its public API: no file of a node is touched, and any user with the right
to read may do it.

The cut: the end of every partition is read first, with its configuration; then the records up to there are copied.
Records that are written meanwhile are left to the next backup. Ends are read one after the other, so the cut is a
vector of offsets and no single moment; no append spans partitions, so it tears none. Records below an end never change,
which is why an incremental backup copies only those beyond the last one. Positions are read last: a group that has read
beyond the cut meanwhile goes on at the cut after a restore, as what it has read there is gone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from ...client.api.client import Client
from ...client.retry import pause_before_next
from ...partition.api.topics import Topic
from ...partition.errors import InconsistentTopicId, OffsetOutOfRange, StockadeError, UnknownTopicOrPartition
from ...partition.version import VERSION
from .begin import Begun, CannotBackUp, begin, end
from .files import PartitionFiles, kept, whole
from .manifest import Manifest, PartitionBackup, PositionBackup, PrincipalBackup, TopicBackup
from .store import Store

FETCH_BYTES = 8 * 1024 * 1024
"""Asked for at a time."""
ASKED_AT_A_TIME = 16
"""Small questions that are asked at the same time."""
COPIED_AT_A_TIME = 4
"""Partitions that are copied at the same time; each has one fetch and one file of the backup in memory."""
GONE = UnknownTopicOrPartition, InconsistentTopicId
"""The topic was deleted meanwhile; there may be another one of its name."""

_T = TypeVar("_T")
_In = TypeVar("_In")


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
    client: Client,
    store: Store,
    topics: Iterable[str],
    groups: Iterable[str],
    progress: Progress,
    *,
    principals: bool = False,
) -> tuple[Manifest, list[str]]:
    """Back up these topics (none: all), with the positions of groups; ``groups``: of these in any case. Also answers
    what was wrong with earlier manifests. ``principals``: with those of the cluster, and their rights.

    Raises CannotBackUp, CannotReach, Damaged, StockadeError.
    """
    cluster = await client.connect()
    begun = await asyncio.to_thread(begin, store, cluster.cluster_id)
    wanted = list(topics) or [each.name for each in await client.topics()]
    found = await _each(wanted, lambda name: _described(client, name, must_exist=name in topics))
    described = [topic for topic in found if topic is not None]
    cuts = await _each(described, lambda topic: _cut(client, topic))
    cut_ms = _now_ms()
    copy = _Copy(client, store, begun, progress)
    copied = await _in_order(copy.topic(topic, cut) for topic, cut in zip(described, cuts, strict=True))
    backups = [topic for topic in copied if topic is not None]
    names = {each.topic for each in backups}
    manifest = Manifest(
        name=begun.name,
        cluster_id=cluster.cluster_id,
        software=VERSION,
        started_ms=begun.started_ms,
        cut_ms=cut_ms,
        ended_ms=_now_ms(),
        topics=backups,
        positions=await _positions(client, [topic for topic in described if topic.name in names], groups),
        left_out=sorted(set(wanted) - names),
        has_digest=True,
        principals=await _principals(client) if principals else [],
        copied_again=sorted(copy.missing),
    )
    await asyncio.to_thread(end, store, begun, manifest)
    return manifest, begun.damaged


async def _each(given: Iterable[_In], ask: Callable[[_In], Awaitable[_T]]) -> list[_T]:
    """What ``ask`` answers, in the same order; so many at a time."""
    slots = asyncio.Semaphore(ASKED_AT_A_TIME)

    async def one(each: _In) -> _T:
        async with slots:
            return await ask(each)

    return await _in_order(one(each) for each in given)


async def _in_order(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """What all of these answer; when one fails, the others are ended."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _described(client: Client, name: str, *, must_exist: bool) -> Topic | None:
    try:
        return await client.topic(name)
    except UnknownTopicOrPartition:
        if must_exist:
            raise
        return None


async def _cut(client: Client, topic: Topic) -> list[Cut]:
    """Empty if the topic is gone."""

    async def ask(partition: int) -> Cut:
        offsets = await client.offsets(topic.name, partition)
        return Cut(offsets.log_start, offsets.log_end)

    try:
        return await _each(range(len(topic.partitions)), ask)
    except GONE:
        return []


class _Copy:
    def __init__(self, client: Client, store: Store, begun: Begun, progress: Progress) -> None:
        self._client, self._store, self._begun, self._progress = client, store, begun, progress
        self._slots = asyncio.Semaphore(COPIED_AT_A_TIME)
        self._before = {topic.topic: topic for topic in (begun.previous.topics if begun.previous else [])}
        self.missing: list[str] = []
        """Files of earlier backups that are not as they were."""

    async def topic(self, topic: Topic, cuts: Sequence[Cut]) -> TopicBackup | None:
        """A topic's backup; None: it was deleted meanwhile."""
        if not cuts:
            return None
        before = self._before.get(topic.name)
        same = before.partitions if before is not None and before.topic_id == topic.topic_id else []
        known = [same[number] if number < len(same) else None for number in range(len(cuts))]
        work = zip(range(len(cuts)), known, cuts, strict=True)
        try:
            partitions = await _in_order(self._partition(topic, *each) for each in work)
        except GONE:
            return None
        return TopicBackup(topic.name, topic.topic_id, topic.replication_factor, topic.sealed, topic.config, partitions)

    async def _partition(self, topic: Topic, number: int, before: PartitionBackup | None, cut: Cut) -> PartitionBackup:
        if before is not None and before.end_offset > cut.log_end:
            raise CannotBackUp(
                f"{topic.name}/{number} ends at {cut.log_end}, and its last backup at {before.end_offset}: the"
                " cluster has lost records, or it is not the same one. Back it up to another place"
            )
        usable = whole(kept(before, cut.log_start), self._begun.sizes, self.missing.append)
        at = usable[-1].end_offset if usable else cut.log_start
        self._progress.found(cut.log_end - at)
        files = PartitionFiles(self._store, f"{topic.topic_id}-{topic.name}/{number}", self._begun.name, usable, at)
        async with self._slots:
            first = await self._copy(topic, number, at, cut, files)
            made = await asyncio.to_thread(files.finish, cut.log_end)
        return PartitionBackup(number, first, cut.log_end, topic.partitions[number].topic_epoch, made)

    async def _copy(self, topic: Topic, number: int, at: int, cut: Cut, files: PartitionFiles) -> int:
        """Copy up to the cut; answers where the backup begins."""
        first = cut.log_start
        while at < cut.log_end:
            try:
                fetched = await patiently(
                    self._client,
                    lambda at=at: self._client.fetch(  # type: ignore[misc]
                        topic.name, number, at, max_bytes=FETCH_BYTES, topic_id=topic.topic_id
                    ),
                )
            except OffsetOutOfRange as trimmed:  # by retention, while the backup was made
                first = at = min(trimmed.fields["log_start"], cut.log_end)
                files.begin_at(at)
                continue
            for base, batch in fetched.after(at):
                part = batch.slice(0, max(0, cut.log_end - base))
                await asyncio.to_thread(files.add, part, base + part.num_rows)
            end_offset = min(fetched.next_offset, cut.log_end)
            self._progress.copied(end_offset - at)
            at = end_offset
        return first


async def _positions(client: Client, topics: Sequence[Topic], groups: Iterable[str]) -> list[PositionBackup]:
    """The positions of ``groups``, and of as many other groups as a partition lists: the furthest behind."""
    places = [(topic.name, each.partition) for topic in topics for each in topic.partitions]

    async def listed(place: tuple[str, int]) -> list[tuple[str, str, int]]:
        try:
            found = await client.contents(*place)
        except GONE:
            return []
        return [(each.group, *place) for each in found.positions]

    async def ask(where: tuple[str, str, int]) -> PositionBackup | None:
        try:
            found = await client.position(*where)
        except GONE:
            return None
        if found.offset is None:
            return None
        return PositionBackup(found.group, found.topic, found.partition, found.offset, found.metadata)

    wanted = {(group, *place) for group in groups for place in places}
    wanted.update(*await _each(places, listed))
    return [each for each in await _each(sorted(wanted), ask) if each is not None]


async def _principals(client: Client) -> list[PrincipalBackup]:
    found = await client.principals()
    if found.total > len(found.principals):
        raise CannotBackUp(f"the cluster has {found.total} principals; at most {len(found.principals)} can be listed")
    return [
        PrincipalBackup(
            each.principal, each.rights, each.certificates, each.subjects, each.quota, tokens=len(each.tokens)
        )
        for each in found.principals
        if not each.configured
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
