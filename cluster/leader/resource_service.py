"""Resources of groups, and fences that operators order, as the controller's leader serves them."""

import asyncio
from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import Literal

from msgspec import structs

from ...partition.api.ledger import session_handle
from ...partition.api.ownership import Evicted, OwnResult, Resource
from ..controller.commands import Disown, FenceRef, FenceTopic, Own, Owned, TopicFenced
from ..controller.topology.catalog import group_id
from ..features import CHECKED_WRITERS
from ..model import NO_PRINCIPAL, By, Claim
from .controller_group import ControllerGroup

SLICE = 2_000
"""Resources of a group that are listed in one turn of the loop: a group may have a million."""


class ResourceService:
    """Decides on resources and fences; answers when the partitions have committed the installs that they are owed."""

    def __init__(self, control: ControllerGroup) -> None:
        self._control = control
        self._machine = control.machine

    async def own(
        self,
        group: str,
        session: str,
        claims: Sequence[Claim],
        *,
        atomic: bool,
        sever: Literal["session", "resource"],
        unwritable: Sequence[str] = (),
        by: By = NO_PRINCIPAL,
    ) -> list[OwnResult]:
        """Claim resources; returns the verdicts, in the order of the claims."""
        unwritable = unwritable if self._control.features.at_least(CHECKED_WRITERS) else ()
        owned = await self._control.decide(
            lambda now: Own(
                now_ms=now,
                by=by,
                session=session,
                group=group,
                claims=list(claims),
                atomic=atomic,
                sever=sever,
                unwritable=list(unwritable),
            ),
            Owned,
        )
        return await self._when_installed(owned)

    async def disown(
        self, group: str, session: str, resources: Sequence[str], by: By = NO_PRINCIPAL
    ) -> list[OwnResult]:
        """Give resources up."""
        owned = await self._control.decide(
            lambda now: Disown(now_ms=now, by=by, session=session, group=group, resources=list(resources)), Owned
        )
        return await self._when_installed(owned)

    async def list_resources(self, group: str) -> list[Resource]:
        """The resources of the group, owned or free, ascending; of more than SLICE, each as it is at its turn."""
        await self._control.barrier()
        names, found = list(self._machine.resources.rows.get(group, ())), list[Resource]()
        ordered: list[list[str]] = []
        for start in range(0, len(names), SLICE):
            if start:
                await asyncio.sleep(0)
            ordered.append(sorted(names[start : start + SLICE]))
        ascending = merge(*ordered)
        while some := list(islice(ascending, SLICE)):
            found += self._those(group, some)
            if len(ordered) > 1:
                await asyncio.sleep(0)
        return found

    def _those(self, group: str, names: Sequence[str]) -> list[Resource]:
        """The resources with these names, without those that were forgotten meanwhile."""
        there = self._machine.resources.rows.get(group, {})
        rows = [(name, row) for name in names if (row := there.get(name)) is not None]
        handles = {owner: session_handle(owner) for owner in {row.owner for _, row in rows} if owner is not None}
        return [
            Resource(
                name,
                row.owner is not None,
                self._client(row.owner),
                row.generation,
                row.fence_epoch,
                handles.get(row.owner or ""),
            )
            for name, row in rows
        ]

    async def fence_topic(
        self,
        topic: str,
        partitions: Sequence[int] | None,
        topic_id: int | None,
        reason: str | None,
        if_grants: Sequence[str] | None = None,
        by: By = NO_PRINCIPAL,
    ) -> list[Evicted]:
        """End every grant on these partitions; answers when each partition refuses their tokens."""
        order = FenceTopic(
            now_ms=0,
            by=by,
            topic=topic,
            partitions=None if partitions is None else sorted(partitions),
            topic_id=topic_id,
            reason=reason,
            if_grants=None if if_grants is None else list(if_grants),
        )
        fenced = await self._control.decide(lambda now: structs.replace(order, now_ms=now), TopicFenced)
        refs = [FenceRef(group_id(fenced.topic_id, item.partition), item.order) for item in fenced.partitions]
        await self._control.installed(refs, ())
        return [Evicted(item.partition, item.epoch, item.grants) for item in fenced.partitions]

    async def _when_installed(self, owned: Owned) -> list[OwnResult]:
        await self._control.installed(owned.fences, owned.pending)
        return [
            OwnResult(verdict.resource, verdict.granted, verdict.generation, verdict.fence_epoch, verdict.code)
            for verdict in owned.verdicts
        ]

    def _client(self, session: str | None) -> str | None:
        return self._machine.sessions.find(session).client_id if session is not None else None
