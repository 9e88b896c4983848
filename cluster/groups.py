"""What sessions own in groups, and fences on purpose, as the controller's leader serves them."""

from collections.abc import Sequence
from typing import Literal

from .catalog import group_id
from .control import Control
from .group_commands import Disown, Own, Owned
from .model import Claim, Evicted, OwnResult, ResourceInfo
from .refs import FenceRef
from .topic_commands import FenceTopic, TopicFenced


class Groups:
    """Answers when the partitions that are concerned know."""

    def __init__(self, control: Control) -> None:
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
    ) -> list[OwnResult]:
        """Verdicts in the order of the claims."""
        owned = await self._control.decide(
            lambda now: Own(now_ms=now, session=session, group=group, claims=list(claims), atomic=atomic, sever=sever),
            Owned,
        )
        return await self._told(owned)

    async def disown(self, group: str, session: str, resources: Sequence[str]) -> list[OwnResult]:
        """Give resources up."""
        owned = await self._control.decide(
            lambda now: Disown(now_ms=now, session=session, group=group, resources=list(resources)), Owned
        )
        return await self._told(owned)

    async def list_resources(self, group: str) -> list[ResourceInfo]:
        """Every resource ever owned in the group, ascending."""
        await self._control.barrier()
        return [
            ResourceInfo(resource, row.owner is not None, self._client(row.owner), row.generation, row.fence_epoch)
            for resource, row in self._machine.resources_of(group)
        ]

    async def fence_topic(
        self, topic: str, partitions: Sequence[int] | None, topic_id: int | None, reason: str | None
    ) -> list[Evicted]:
        """Throw everybody out; answers when every partition refuses them."""
        numbers = None if partitions is None else sorted(partitions)
        fenced = await self._control.decide(
            lambda now: FenceTopic(now_ms=now, topic=topic, partitions=numbers, topic_id=topic_id, reason=reason),
            TopicFenced,
        )
        refs = [FenceRef(group_id(fenced.topic_id, item.partition), item.order) for item in fenced.partitions]
        await self._control.told(refs, ())
        return [Evicted(item.partition, item.epoch, item.grants) for item in fenced.partitions]

    async def _told(self, owned: Owned) -> list[OwnResult]:
        await self._control.told(owned.fences, owned.pending)
        return [
            OwnResult(verdict.resource, verdict.granted, verdict.generation, verdict.fence_epoch, verdict.code)
            for verdict in owned.verdicts
        ]

    def _client(self, session: str | None) -> str | None:
        return self._machine.session(session).client_id if session is not None else None
