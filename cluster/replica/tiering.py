"""A node's work for the tiered store: leaders upload full segments and remove useless objects; every replica drops the
local files whose records its node has seen in the store, and that are outside the topic's local retention.

docs/tiered.md says why it is right. Nothing here decides what is in the list: the partition's machine does, when it
applies the command.
"""

import asyncio
import logging
import secrets
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from ...partition.commands import AddTierObject, BeginTier, Offset, Tiered, TierObject, encode_command
from ...partition.errors import InternalError, StockadeError
from ...partition.log.image import ImageDamaged
from ...partition.log.index import SegmentIndex
from ...partition.places.place import CannotReach, Place
from ...partition.state.tier import dead, name_of
from ...raft.wal.errors import DiskRefused
from ..condition import aligned_s
from ..features import TIERS
from ..tiered import objects
from ..tiered.store import EXPECTED, REMOVALS_A_TURN, TieredStore
from .replica import Replica
from .replica_manager import ReplicaManager
from .seen import Seen

LOOK_S = 2.0
"""Between two looks at all replicas."""
PAUSE_MAX_S = 60.0
"""Longest pause after uploads that failed; it doubles from LOOK_S on."""
OBJECTS_A_TURN = 10
"""Most objects of one partition before the others have their turn: some ten seconds."""
SWEEP_PAUSE_S = 60.0
"""Between two sweeps of one folder."""
_TOPIC_CHARACTERS_MAX = 80
_ALL = -1
"""In place of a group's id: all groups, while the store is away."""
_FAILURES = (*EXPECTED, TimeoutError, StockadeError)

_log = logging.getLogger(__name__)


class _Swept(NamedTuple):
    """The state of a folder at its last sweep: term, first offset in the list, lost uploads. Another sweep is due when
    one of them has changed.
    """

    term: int
    first: Offset
    lost: int


class _Pause(NamedTuple):
    """A pause of ``length_s``, before ``until``."""

    length_s: float
    until: float


class Tiering:
    """The tasks of one node; uploads one object at a time. ``dropped`` is called when files were dropped."""

    def __init__(
        self,
        replicas: ReplicaManager,
        store: TieredStore,
        is_low: Callable[[], bool],
        dropped: Callable[[], None],
    ) -> None:
        """``is_low``: whether this node's disk has little room."""
        self._replicas = replicas
        self._store = store
        self._is_low = is_low
        self._dropped = dropped
        self._seen = Seen(store)
        self._unseen: list[tuple[Replica, Offset]] = []  # replica, offset below which it may drop what is seen
        self._pauses: dict[int, _Pause] = {}  # by group, or _ALL
        self._is_away = False  # whether the store could not be reached at the last try
        self._is_stuck = False  # whether a call did not end in time: other work would wait for its thread
        self._waiting: dict[int, float] = {}  # group -> since when a segment of it waits
        self._swept: dict[int, tuple[_Swept, float]] = {}
        self._lost: dict[int, int] = {}  # group -> number of uploads that failed or were refused

    async def run(self) -> None:
        """Runs until cancelled."""
        await asyncio.gather(self._keep_dropping(), self._keep_looking(), self._keep_uploading())

    async def _keep_dropping(self) -> None:
        while True:
            self.drop(int(time.time() * 1000))
            await asyncio.sleep(aligned_s(LOOK_S))

    async def _keep_looking(self) -> None:
        """Look for objects in a task of its own: drops go on while the store is slow to answer."""
        while True:
            await self.look()
            await asyncio.sleep(aligned_s(LOOK_S))

    async def _keep_uploading(self) -> None:
        looks = 0
        while True:
            led = [replica for replica in self._replicas.all() if may_upload(replica)]
            self._forget_others(led)
            first, looks = looks % max(1, len(led)), looks + 1
            await asyncio.sleep(aligned_s(await self._give_turns([*led[first:], *led[:first]])))

    async def _give_turns(self, led: list[Replica]) -> float:
        """Give each partition its turn, unless it pauses; returns the seconds until their next turns."""
        waiting = [replica for replica in led if next_segment(replica) is not None]
        for replica in waiting:
            self._waiting.setdefault(replica.group.group_id, time.monotonic())
        stored, self._is_away = self._store.counts.stored, False
        for replica in led:
            if self._may_try(replica):
                self._pause(replica.group.group_id, is_fine=await self._serve(replica))
            if self._is_away:
                break  # the next turns begin with another partition
        pause_s = self._pause(_ALL, is_fine=not self._is_away or self._store.counts.stored > stored)
        is_due = any(self._may_try(replica) and next_segment(replica) is not None for replica in waiting)
        return pause_s or (0.0 if is_due else LOOK_S)

    def _may_try(self, replica: Replica) -> bool:
        pause = self._pauses.get(replica.group.group_id)
        return pause is None or pause.until <= time.monotonic()

    def _pause(self, group: int, *, is_fine: bool) -> float:
        """Note how a turn of a group, or of _ALL, ended; returns the seconds before its next one."""
        before = self._pauses.pop(group, None)
        if is_fine:
            return 0.0
        length_s = min(2 * (LOOK_S if before is None else before.length_s), PAUSE_MAX_S)
        self._pauses[group] = _Pause(length_s, time.monotonic() + length_s)
        return length_s

    @property
    def waiting_s(self) -> float:
        """Seconds that the longest waiting segment has waited for its upload; 0: none waits."""
        return max((time.monotonic() - since for since in self._waiting.values()), default=0.0)

    @property
    def store(self) -> TieredStore:
        """Where the objects are."""
        return self._store

    def drop(self, wall_ms: int) -> None:
        """Drop the local files of every replica whose objects this node has seen, and that are outside the topic's
        local retention at ``wall_ms`` (since 1970). A disk with little room keeps none whose objects were seen, and
        little of the cache: that is better than to refuse appends. Of objects in no list, the cache keeps nothing.
        """
        count, is_low, self._unseen = 0, self._is_low(), []
        for replica in self._replicas.all():
            log, config, tier = replica.log, replica.config, replica.machine.tier
            if config.is_tiered and tier.objects:
                before = log.retained_from(wall_ms, config.local_retention_ms, config.local_retention_bytes)
                before = tier.end if is_low else min(before, tier.end)
                start, end = log.local_start, self._seen.end(replica)
                log.drop_local(min(before, end))
                count += log.local_start > start
                if end < before:
                    self._unseen.append((replica, before))
        if count:
            self._dropped()
        tiers = {replica.machine.tier.folder: replica.machine.tier for replica in self._replicas.all()}
        self._store.keep_cached(lambda key: key[0] in tiers and tiers[key[0]].lists(key[1]), is_low=is_low)

    async def look(self) -> None:
        """Look in this node's place for the objects of the files that the last ``drop`` had to keep."""
        self._seen.keep({replica.group.group_id for replica in self._replicas.all()})
        await self._seen.look(self._unseen)

    async def _serve(self, replica: Replica) -> bool:
        """One partition's turn: upload what waits in it, and sweep its folder; returns whether nothing failed."""
        self._is_away = self._is_stuck = False
        is_fine = await self._tried(replica, self._upload_waiting)
        if self._is_stuck or not may_upload(replica):
            return is_fine
        # Sweep also after an upload that failed: a full store takes no upload before a sweep has made room.
        return await self._tried(replica, self._sweep_if_due) and is_fine

    async def _tried(self, replica: Replica, work: Callable[[Replica], Awaitable[bool]]) -> bool:
        """The answer of ``work``; False, with a line in the log, if it fails."""
        try:
            return await work(replica)
        except _FAILURES as error:
            self._is_stuck = isinstance(error, TimeoutError)
            self._is_away = self._is_stuck or isinstance(error, CannotReach)
            self._count_lost(replica)
            self._store.counts.upload_failed += 1
            _log.warning("%s/%d: %s: %s", replica.topic, replica.partition, self._store.name, error)
            return False

    async def _upload_waiting(self, replica: Replica) -> bool:
        """Upload what waits in one partition, as much as one turn has; returns False if its list is full. Raises
        _FAILURES.
        """
        group = replica.group.group_id
        for _ in range(OBJECTS_A_TURN):
            if (segment := next_segment(replica)) is None or not may_upload(replica):
                break
            self._waiting.setdefault(group, time.monotonic())
            if replica.machine.tier.is_full:
                _log.warning("%s/%d has as many objects as it may have", replica.topic, replica.partition)
                return False
            if not await self.upload(replica, segment):
                return True  # another leader goes on
            self._waiting[group] = time.monotonic()
        if next_segment(replica) is None:
            self._waiting.pop(group, None)
        return True

    async def upload(self, replica: Replica, segment: SegmentIndex) -> bool:
        """Upload the next object of a full segment, and list it; returns whether it is listed. Raises _FAILURES.

        Raises DiskRefused, which stops the node as in the scrubber, if the segment has other bytes than were written
        and there are other replicas, of which one leads then.
        """
        await self._check_place(replica)
        await replica.barrier()
        term, tier = replica.group.term, replica.machine.tier
        if not tier.folder:
            await _ask(replica, BeginTier(_new_folder(replica)))
        start, folder = max(tier.end, replica.machine.log_start), tier.folder
        if replica.is_gone or next_segment(replica) is not segment:
            return False
        # From here to the thread's queue there is no await: the removal of a deleted topic's folder comes after it.
        try:
            item = await self._store.run(partial(self._make_and_upload, segment, start, term, folder))
        except ImageDamaged as error:
            is_kept = segment in replica.log.full_segments and not replica.is_gone  # else its files may go
            if is_kept and len(replica.group.voters) > 1:
                raise DiskRefused(Path(segment.segment), str(error)) from error
            raise
        if not (await _ask(replica, AddTierObject(folder, item))).is_taken:
            self._count_lost(replica)
            self._store.counts.refused += 1
            return False
        self._store.counts.stored += 1
        _log.info("%s/%d: %s is in %s", replica.topic, replica.partition, name_of(item), self._store.name)
        return True

    async def _check_place(self, replica: Replica) -> None:
        """Raises CannotReach unless the place has the newest object of the partition or, if that has none, of another
        partition of this node. The folder of a share that is not mounted would take uploads, and the share would hide
        them as soon as it is mounted again.
        """
        for each in (replica, *self._replicas.all()):
            tier = each.machine.tier
            if tier.objects:
                if not await self._store.has(tier.folder, tier.objects[-1]):
                    raise CannotReach(f"{tier.folder}/{name_of(tier.objects[-1])} is not there: is the place mounted?")
                return

    def _make_and_upload(
        self, segment: SegmentIndex, start: Offset, term: int, folder: str, place: Place
    ) -> TierObject:
        made = objects.make(segment, start, term, secrets.token_hex(8))
        self._store.upload(folder, made, place)
        return made.item

    async def _sweep_if_due(self, replica: Replica) -> bool:
        """Sweep, if the state has changed since the last sweep. Returns True. Raises _FAILURES."""
        group, tier = replica.group.group_id, replica.machine.tier
        if not tier.folder:
            return True
        first = tier.objects[0].first if tier.objects else tier.end
        now = _Swept(replica.group.term, first, self._lost.get(group, 0))
        last, at = self._swept.get(group, (None, 0.0))
        is_due = now != last and (last is None or time.monotonic() - at >= SWEEP_PAUSE_S)
        if is_due and len(await self.sweep(replica)) < REMOVALS_A_TURN:  # otherwise the next turn goes on
            self._swept[group] = (now, time.monotonic())
        return True

    async def sweep(self, replica: Replica) -> list[str]:
        """Remove objects that are not in the list and can never get into it, REMOVALS_A_TURN at most; returns their
        names. Raises _FAILURES.
        """
        term, folder = replica.group.term, replica.machine.tier.folder
        await replica.barrier()
        snapshot = replica.machine.tier.snapshot(replica.machine.log_start, term)
        doomed = await self._store.run(partial(self._store.sweep, folder, lambda names: dead(names, snapshot)))
        if doomed:
            _log.info("%s/%d: removed %d objects", replica.topic, replica.partition, len(doomed))
        return doomed

    def _count_lost(self, replica: Replica) -> None:
        group = replica.group.group_id
        self._lost[group] = self._lost.get(group, 0) + 1

    def _forget_others(self, led: list[Replica]) -> None:
        groups = {replica.group.group_id for replica in led}
        for known in (self._waiting, self._swept, self._lost, self._pauses):
            for group in known.keys() - groups - {_ALL}:
                del known[group]


def may_upload(replica: Replica) -> bool:
    """Whether this node looks after the objects of a partition: it leads, and the topic is tiered or was."""
    has_objects = bool(replica.machine.tier.folder)
    return replica.group.is_leader and replica.features.at_least(TIERS) and (replica.config.is_tiered or has_objects)


def next_segment(replica: Replica) -> SegmentIndex | None:
    """The full segment that goes to the store next; None: there is none."""
    tier = replica.machine.tier
    if not replica.config.is_tiered:
        return None
    start, segments = max(tier.end, replica.machine.log_start), replica.log.full_segments
    number = bisect_right(segments, start, key=attrgetter("next_offset"))
    return segments[number] if number < len(segments) else None


def _new_folder(replica: Replica) -> str:
    topic = f"{replica.topic_id}-{replica.topic[:_TOPIC_CHARACTERS_MAX]}"
    return f"{topic}/{replica.partition}-{secrets.token_hex(8)}"


async def _ask(replica: Replica, command: BeginTier | AddTierObject) -> Tiered:
    answer = await replica.answer_to(encode_command(command), replica.timeout_s)
    if not isinstance(answer, Tiered):
        raise InternalError(f"a partition answered {answer!r}")
    return answer
