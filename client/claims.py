"""Owning things: claims on resources of a group, and the positions that only their owner may commit. Part of Client."""

from collections.abc import Sequence

from .calls import Calls, present, quoted
from .model import OwnAnswer, Owned, Position, Resource, Resources


class Claims:
    """A base of Client."""

    _calls: Calls

    async def own(
        self,
        group: str,
        session: str,
        resources: Sequence[str],
        *,
        generation: int | None = None,
        atomic: bool = True,
        sever: str = "session",
    ) -> list[Owned]:
        """Claim resources: any texts of 1 to 1024 bytes. ``<topic>/<partition>`` of a partition guards it as well.

        ``generation`` None: what is free, or a renewal; at least the owner's: take it over; 0: reset, always wins.
        ``sever``: what a loser loses, its whole session or this resource. With ``atomic`` all or none, and a refusal is
        raised: GenerationFenced.
        """
        claims = [{"resource": resource} | present(generation=generation) for resource in resources]
        body = {"claims": claims, "atomic": atomic, "sever": sever}
        path, headers = f"/v1/groups/{quoted(group)}/own", {"Stockade-Session": session}
        return (await self._calls.call(OwnAnswer, "POST", path, headers=headers, body=body)).results

    async def disown(self, group: str, session: str, resource: str) -> None:
        """Give a resource up; its generation and fence_epoch stay. Raises NotOwner."""
        path, headers = f"/v1/groups/{quoted(group)}/own", {"Stockade-Session": session}
        await self._calls.send("DELETE", path, headers=headers, params={"resource": resource})

    async def resources(self, group: str, *, patience_ms: int | None = None) -> list[Resource]:
        """Every resource ever owned in the group; a linearizable read."""
        path = f"/v1/groups/{quoted(group)}/resources"
        return (await self._calls.call(Resources, "GET", path, patience_ms=patience_ms)).resources

    async def position(self, group: str, topic: str, partition: int) -> Position:
        """Where the group goes on."""
        return await self._calls.call(Position, "GET", _position(group, topic, partition))

    async def commit_position(
        self, group: str, topic: str, partition: int, offset: int, *, fence_epoch: int | None = None
    ) -> Position:
        """The group has done everything below ``offset``. Raises NotOwner, OffsetOutOfRange."""
        body = {"offset": offset} | present(fence_epoch=fence_epoch)
        return await self._calls.call(Position, "PUT", _position(group, topic, partition), body=body)


def _position(group: str, topic: str, partition: int) -> str:
    return f"/v1/groups/{quoted(group)}/positions/{quoted(topic)}/{partition}"
