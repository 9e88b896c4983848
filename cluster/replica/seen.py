"""Which objects of its replicas this node has found itself in the place of the tiered store that its own configuration
names.

The list of objects is the same on every replica, and was made by one leader, which verified the objects in its own
place. A node that is configured with another place, or whose mount is missing, would drop its last readable copy of the
records. So it looks for each object once before it drops files; that is enough, since only the cluster removes objects.
Nothing is kept over a restart, which may change the place.
"""

import logging
import time
from bisect import bisect_right
from collections.abc import Sequence, Set
from operator import attrgetter
from typing import NamedTuple

from ...partition.commands import Offset, TierObject
from ...partition.state.tier import name_of
from ..tiered.store import EXPECTED, TieredStore
from .replica import Replica

PAUSE_S = 60.0
"""Before a node looks again for an object that was not there, and before it asks a store again that did not answer."""

_log = logging.getLogger(__name__)


class _Range(NamedTuple):
    """All objects with records between these offsets were seen."""

    start: Offset
    end: Offset


class Seen:
    """The objects that this node has seen in its place: one range of offsets a group. Used on the loop only."""

    def __init__(self, store: TieredStore) -> None:
        self._store = store
        self._ranges: dict[int, _Range] = {}  # by group
        self._absent: dict[int, float] = {}  # group -> when to look for its objects again
        self._away_until = 0.0

    def end(self, replica: Replica) -> Offset:
        """The offset up to which this node has seen all objects of the local records; ``local_start``: none of them."""
        start = replica.log.local_start
        seen = self._ranges.get(replica.group.group_id)
        # A replica that was copied anew may have older local files than it had: the range does not cover them.
        return start if seen is None or seen.start > start else max(start, seen.end)

    def keep(self, groups: Set[int]) -> None:
        """Forget what was seen of all groups but these: the others have no replica here any more."""
        for known in (self._ranges, self._absent):
            for group in known.keys() - groups:
                del known[group]

    async def look(self, wanted: Sequence[tuple[Replica, Offset]]) -> None:
        """For each replica, look for those objects of its local records below an offset that were not seen yet. The
        first object that is missing, or has another size, ends the look for its replica; a store that does not answer
        ends it for all replicas, and after a pause the look begins with others.
        """
        for replica, before in wanted:
            now = time.monotonic()
            if now < self._away_until:
                return
            if now < self._absent.get(replica.group.group_id, now):
                continue
            try:
                await self._look(replica, before)
            except (*EXPECTED, TimeoutError) as error:
                self._away_until = time.monotonic() + PAUSE_S
                self._absent[replica.group.group_id] = self._away_until + PAUSE_S  # the others come first
                where = f"{replica.topic}/{replica.partition}"
                _log.warning("%s keeps its local files: %s: %r", where, self._store.name, error)

    async def _look(self, replica: Replica, before: Offset) -> None:
        group = replica.group.group_id
        while (item := _next(replica, at := self.end(replica), before)) is not None:
            seen = self._ranges.get(group)
            # The range grows if it reaches this object. Elsewhere unseen objects lie between, and a new one begins.
            start = seen.start if seen is not None and seen.start <= at <= seen.end else at
            if not await self._store.has(replica.machine.tier.folder, item):
                self._absent[group] = time.monotonic() + PAUSE_S
                where = f"{replica.topic}/{replica.partition}"
                _log.warning("%s keeps its local files: %s is not in %s", where, name_of(item), self._store.name)
                return
            self._ranges[group] = _Range(start, max(at, item.end))


def _next(replica: Replica, at: Offset, before: Offset) -> TierObject | None:
    """The first object with records from ``at`` on, if it has some below ``before``."""
    objects = replica.machine.tier.objects
    number = bisect_right(objects, at, key=attrgetter("end"))
    return objects[number] if number < len(objects) and at < before else None
