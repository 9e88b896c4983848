"""Makes a backup of a running cluster through its public API: it touches no file of a node, and any user with the right
to read may make one.

The cut: the backup first reads the configuration of every topic and the log end of every partition, and then copies the
records below these ends. Records that are written meanwhile go into the next backup. The ends are read one after the
other, so the cut is a vector of offsets and not one moment; no append spans partitions, so the cut tears no append.
Records below an end never change, so an incremental backup copies only those behind the last backup's ends. Positions
are read last: a group that has read beyond the cut meanwhile continues at the cut after a restore, because the records
that it read beyond are gone.

A cluster lists only topics that its caller may see, and a new cluster may have the id of one that was lost. So a topic
of the last backup that is not listed is asked for by its name; a cluster that has none of these topics is refused; and
before records are added to those of earlier backups, the last record of these is compared with the cluster's.

A restore takes the newest backup of a place, and a pruning may keep that one alone. So no backup has less than the last
one, but for what was deleted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa

from ...client.api.client import Client
from ...client.retry import pause_before_next
from ...partition.api.topics import Topic
from ...partition.errors import (
    InconsistentTopicId,
    OffsetOutOfRange,
    PermissionDenied,
    StockadeError,
    UnknownTopicOrPartition,
)
from ...partition.version import VERSION
from .begin import Begun, CannotBackUp, begin, end
from .files import Attempt, DamagedFile, PartitionFiles, kept, read_file, whole
from .manifest import DataFile, Manifest, PartitionBackup, PositionBackup, PrincipalBackup, TopicBackup
from .store import Store
from .verify import row_at

FETCH_BYTES = 8 * 1024 * 1024
"""Bytes that one fetch asks for at most."""
FETCH_BYTES_FIRST = 64 * 1024
"""Bytes that the first fetch of a partition asks for, while it is unknown how well its records are compressed."""
FETCH_BYTES_UNPACKED = 64 * 1024 * 1024
"""Bytes that an answer should take in memory at most, where it is unpacked: ZSTD makes a thousandth of some records."""
ASKED_AT_A_TIME = 16
"""Small requests in flight at the same time."""
COPIED_AT_A_TIME = 4
"""Partitions that are copied at the same time; each has one fetch and one file of the backup in memory."""
NAMED_MAX = 10
"""Topics that a refusal names at most."""
GONE = UnknownTopicOrPartition, InconsistentTopicId
"""Errors that mean that the topic was deleted meanwhile; another topic may have its name now."""

_T = TypeVar("_T")
_In = TypeVar("_In")


class Cut(NamedTuple):
    """Where the log of a partition began and ended when the cut was made."""

    log_start: int
    log_end: int


class Progress(NamedTuple):
    """Callbacks with numbers of records: ``found`` when more are to be copied, ``copied`` when some have been."""

    found: Callable[[int], None]
    copied: Callable[[int], None]


def next_fetch_bytes(asked: int, unpacked: int) -> int:
    """Bytes to ask for after an answer that took ``unpacked`` bytes in memory, as if the next one unpacks alike: at
    most four times ``asked`` and FETCH_BYTES, and no more than would take FETCH_BYTES_UNPACKED.
    """
    return max(1, min(FETCH_BYTES, 4 * asked, asked * FETCH_BYTES_UNPACKED // max(1, unpacked)))


async def patiently(client: Client, call: Callable[[], Awaitable[_T]]) -> _T:
    """The answer of ``call``, which must change nothing. It is repeated with the client's pauses and deadline, for
    refusals that only concern the moment; others are raised.
    """
    deadline = time.monotonic() + client.config.delivery_timeout_ms / 1000
    attempts = 0
    while True:
        try:
            return await call()
        except StockadeError as error:
            attempts += 1
            await asyncio.sleep(pause_before_next(client.config, attempts, error, deadline - time.monotonic()))


async def record_at(client: Client, topic: str, number: int, offset: int, topic_id: int) -> pa.RecordBatch | None:
    """The record at an offset below the log's end, as a batch of one row; None if it was trimmed."""
    try:
        found = await patiently(client, lambda: client.fetch(topic, number, offset, max_bytes=1, topic_id=topic_id))
    except OffsetOutOfRange:
        return None
    _, batch = next(found.after(offset))
    return batch.slice(0, 1)


async def back_up(
    client: Client,
    store: Store,
    topics: Iterable[str],
    groups: Iterable[str],
    progress: Progress,
    *,
    principals: bool = False,
    had_backups: bool = False,
) -> tuple[Manifest, list[str]]:
    """Back up these topics (none: all) with the positions of groups; returns the manifest, and the faults of earlier
    manifests that were passed over. ``groups``: groups whose positions are kept in any case. ``principals``: also keep
    the principals of the cluster with their rights. ``had_backups``: the place had one before.

    Raises CannotBackUp, CannotReach, Damaged, StockadeError.
    """
    cluster = await client.connect()
    begun = await asyncio.to_thread(begin, store, cluster.cluster_id, had_backups=had_backups)
    _check_principals(begun, has_principals=principals)
    chosen = await _chosen(client, list(topics), begun.previous.topics if begun.previous else [])
    cuts = await _each(chosen.topics, lambda topic: _cut(client, topic))
    cut_ms = _now_ms()
    copy = _Copy(client, store, begun, progress)
    async with copy.attempt:
        backups = await copy.topics(chosen.topics, cuts)
        names = {each.topic for each in backups}
        positions, unseen = await _positions(client, [topic for topic in chosen.topics if topic.name in names], groups)
        known = await _principals(client) if principals else []
    manifest = Manifest(
        name=begun.name,
        cluster_id=cluster.cluster_id,
        software=VERSION,
        started_ms=begun.started_ms,
        cut_ms=cut_ms,
        ended_ms=_now_ms(),
        topics=backups,
        positions=positions,
        positions_left_out=unseen,
        left_out=sorted(chosen.names - names - set(chosen.deleted)),
        deleted=chosen.deleted,
        has_digest=True,
        principals=known,
        copied_again=sorted(copy.missing),
    )
    await asyncio.to_thread(end, store, begun, manifest)
    return manifest, begun.damaged


def _check_principals(begun: Begun, *, has_principals: bool) -> None:
    if begun.previous is not None and begun.previous.principals and not has_principals:
        raise CannotBackUp("the last backup here has principals: say --principals, or back up to another place")


async def _each(given: Iterable[_In], ask: Callable[[_In], Awaitable[_T]]) -> list[_T]:
    """The answers of ``ask`` in the order of ``given``; at most ASKED_AT_A_TIME are in flight."""
    slots = asyncio.Semaphore(ASKED_AT_A_TIME)

    async def one(each: _In) -> _T:
        async with slots:
            return await ask(each)

    return await _in_order(one(each) for each in given)


async def _in_order(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """The results of all of ``work``, in its order. When one fails, the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Chosen(NamedTuple):
    """What to back up. ``names``: the topics by name; ``topics``: those of them that exist; ``deleted``: topics of the
    last backup that were deleted since.
    """

    topics: list[Topic]
    names: set[str]
    deleted: list[str]


async def _chosen(client: Client, wanted: Sequence[str], before: Sequence[TopicBackup]) -> _Chosen:
    """What to back up: the topics of ``wanted``, or all if it is empty. ``before``: the topics of the last backup.
    Raises CannotBackUp.
    """
    listed = wanted or [each.name for each in await client.topics()]
    asked = [*dict.fromkeys([*listed, *(each.topic for each in before)])]
    answers = dict(zip(asked, await _each(asked, lambda name: _described(client, name)), strict=True))
    names = wanted or asked
    denied = {name: answer for name in names if isinstance(answer := answers[name], PermissionDenied)}
    if denied and not wanted:
        raise CannotBackUp(
            f"the cluster does not show all topics: {', '.join(sorted(denied))} ({next(iter(denied.values())).detail})."
            " Give the principal that makes backups the right `read topic:*`, or back up what it sees to another place"
        )
    for name in wanted:
        if isinstance(answer := answers[name], StockadeError):
            raise answer
    if before and all(_is_gone(each, answers[each.topic]) for each in before):
        raise CannotBackUp(
            "the cluster has none of the topics of the last backup: it is not the same one, or all of them were"
            " deleted. Back it up to another place"
        )
    gone = {each.topic for each in before if _is_gone(each, answers[each.topic])}
    if lacking := sorted({each.topic for each in before} - gone - set(names)):
        raise CannotBackUp(
            f"this backup would be the newest here, and lack what the last one has: {', '.join(lacking[:NAMED_MAX])}"
            f"{', …' if len(lacking) > NAMED_MAX else ''}. Name these topics, too, or back up to another place"
        )
    deleted = sorted(gone.intersection(names))
    return _Chosen([each for name in names if isinstance(each := answers[name], Topic)], set(names), deleted)


async def _described(client: Client, name: str) -> Topic | UnknownTopicOrPartition | PermissionDenied:
    try:
        return await client.topic(name)
    except (UnknownTopicOrPartition, PermissionDenied) as error:
        return error


def _is_gone(before: TopicBackup, now: Topic | UnknownTopicOrPartition | PermissionDenied) -> bool:
    """Whether the topic ``before`` was deleted; another topic may have its name now."""
    return now.topic_id != before.topic_id if isinstance(now, Topic) else isinstance(now, UnknownTopicOrPartition)


async def _cut(client: Client, topic: Topic) -> list[Cut]:
    """The cut of each partition of a topic; empty if the topic is gone."""

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
        self.attempt = Attempt(store)
        self.missing: list[str] = []
        """Paths of files of earlier backups that are missing or damaged."""

    async def topics(self, topics: Sequence[Topic], cuts: Sequence[Sequence[Cut]]) -> list[TopicBackup]:
        """Back up the topics that are not deleted meanwhile."""
        copied = await _in_order(self._topic(topic, cut) for topic, cut in zip(topics, cuts, strict=True))
        return [topic for topic in copied if topic is not None]

    async def _topic(self, topic: Topic, cuts: Sequence[Cut]) -> TopicBackup | None:
        """Back up one topic; None if it was deleted meanwhile."""
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
            now = await self._client.topic(topic.name)
            if now.topic_id != topic.topic_id:  # it was made anew before its ends were read
                raise InconsistentTopicId(topic_id=now.topic_id)
            raise CannotBackUp(
                f"{topic.name}/{number} ends at {cut.log_end}, and its last backup at {before.end_offset}: the"
                " cluster has lost records, or it is not the same one. Back it up to another place"
            )
        usable = whole(kept(before, cut.log_start), self._begun.sizes, self.missing.append)
        while True:
            try:
                return await self._from(topic, number, usable, cut)
            except DamagedFile as damage:
                if damage.file not in usable:  # a file of this backup
                    raise
                self.missing.append(damage.file.path)
                usable = usable[: usable.index(damage.file)]

    async def _from(self, topic: Topic, number: int, usable: Sequence[DataFile], cut: Cut) -> PartitionBackup:
        """Back up a partition; ``usable``: its files of earlier backups. Raises DamagedFile for a damaged one."""
        at = usable[-1].end_offset if usable else cut.log_start
        self._progress.found(cut.log_end - at)
        place = f"{topic.topic_id}-{topic.name}/{number}"
        files = PartitionFiles(self.attempt, self._store, place, self._begun.name, usable, at)
        async with self._slots:
            if usable and at < cut.log_end:
                await self._compare(topic, number, usable[-1])
            first = await self._copy(topic, number, at, cut, files)
            made = await asyncio.to_thread(files.finish, cut.log_end)
        return PartitionBackup(number, first, cut.log_end, topic.partitions[number].topic_epoch, made)

    async def _compare(self, topic: Topic, number: int, file: DataFile) -> None:
        """Raises CannotBackUp if the cluster has another record at the offset of the file's last one. Raises
        DamagedFile.
        """
        offset = file.end_offset - 1
        backed_up = await asyncio.to_thread(lambda: row_at(read_file(self._store, file), file, offset))
        present = await record_at(self._client, topic.name, number, offset, topic.topic_id)
        if present is not None and not present.equals(backed_up):
            raise CannotBackUp(
                f"the record at offset {offset} of {topic.name}/{number} is not the one that the last backup has: the"
                " cluster has lost records, or it is not the same one. Back it up to another place"
            )

    async def _copy(self, topic: Topic, number: int, at: int, cut: Cut, files: PartitionFiles) -> int:
        """Copy the records from ``at`` up to the cut. Returns the offset at which the partition's backup begins."""
        first, asked = cut.log_start, FETCH_BYTES_FIRST
        while at < cut.log_end:
            try:
                fetched = await patiently(
                    self._client,
                    lambda at=at, asked=asked: self._client.fetch(  # type: ignore[misc]
                        topic.name, number, at, max_bytes=asked, topic_id=topic.topic_id
                    ),
                )
            except OffsetOutOfRange as trimmed:  # by retention, while the backup was made
                first = at = min(trimmed.fields["log_start"], cut.log_end)
                files.begin_at(at)
                continue
            unpacked = 0
            for base, batch in fetched.after(at):
                unpacked += batch.nbytes
                part = batch.slice(0, max(0, cut.log_end - base))
                await asyncio.to_thread(files.add, part, base + part.num_rows)
            end_offset = min(fetched.next_offset, cut.log_end)
            self._progress.copied(end_offset - at)
            at, asked = end_offset, next_fetch_bytes(asked, unpacked)
        return first


async def _positions(
    client: Client, topics: Sequence[Topic], groups: Iterable[str]
) -> tuple[list[PositionBackup], int]:
    """The positions of ``groups``, and of the other groups that each partition lists: those furthest behind, of those
    that the caller may see. Also returns how many positions were left out.
    """
    places = [(topic.name, each.partition) for topic in topics for each in topic.partitions]

    totals: list[int] = []

    async def listed(place: tuple[str, int]) -> list[tuple[str, str, int]]:
        try:
            found = await client.contents(*place)
        except GONE:
            return []
        totals.append(found.total)
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
    found = [each for each in await _each(sorted(wanted), ask) if each is not None]
    return found, max(0, sum(totals) - len(found))


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
