"""What a node passes on to the controller group's member on it: sessions, grants, groups, producers, changes of topics.

Each call is answered by the controller's leader alone; every other node says where that is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from .census import Census
from .control import Control
from .exclusive import Exclusive
from .groups import Groups
from .listing import GroupList, ProducerList, SessionList
from .members import Members
from .model import (
    Claim,
    Evicted,
    GrantInfo,
    Mode,
    OwnResult,
    ProducerPair,
    ProducerStatus,
    ResourceInfo,
    SessionInfo,
    TicketInfo,
    TopicInfo,
)
from .producer_states import ProducerStates
from .producers import Producers
from .topics import Observer, Topics


class Controlling(msgspec.Struct, frozen=True):
    """The operations of the controller group, on a node that is a member of it."""

    control: Control
    topics: Topics
    exclusive: Exclusive
    groups: Groups
    producers: Producers
    members: Members
    census: Census

    @staticmethod
    def of(control: Control, observer: Observer, states: ProducerStates) -> "Controlling":
        """All of them over one controller replica."""
        return Controlling(
            control,
            Topics(control, observer),
            Exclusive(control),
            Groups(control),
            Producers(control, states),
            Members(control),
            Census(control),
        )


class Delegating:
    """The part of service.Service that the controller's leader answers."""

    def _controller(self) -> Controlling:
        """The operations. Raises NotLeaderOrFollower where this node holds no replica of the controller group."""
        raise NotImplementedError

    async def change_topic(
        self,
        name: str,
        topic_id: int | None,
        *,
        partitions: int | None,
        seal: bool,
        config: Mapping[str, Any],
    ) -> TopicInfo:
        """Answers when every partition has a leader, and acts by the configuration."""
        topics = self._controller().topics
        return await topics.change(name, topic_id, partitions=partitions, seal=seal, config=config)

    async def open_session(self, client_id: str, ttl_ms: int) -> SessionInfo:
        """A new session."""
        return await self._controller().exclusive.open_session(client_id, ttl_ms)

    async def renew_session(self, session: str) -> SessionInfo:
        """Full ttl from now."""
        return await self._controller().exclusive.renew_session(session)

    async def close_session(self, session: str) -> None:
        """Answers when its slots are cleared."""
        await self._controller().exclusive.close_session(session)

    async def acquire(
        self,
        topic: str,
        session: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        producer_name: str,
        *,
        resume_epoch: int | None,
        topic_id: int | None,
        wait_ms: int = 0,
        ticket_ttl_ms: int | None = None,
    ) -> GrantInfo | TicketInfo:
        """All partitions of the set or none; or a place in line."""
        return await self._controller().exclusive.acquire(
            topic,
            session,
            partitions,
            mode,
            producer_name,
            resume_epoch=resume_epoch,
            topic_id=topic_id,
            wait_ms=wait_ms,
            ticket_ttl_ms=ticket_ttl_ms,
        )

    async def get_ticket(self, ticket: str, session: str, wait_ms: int) -> TicketInfo:
        """State of a ticket."""
        return await self._controller().exclusive.get_ticket(ticket, session, wait_ms)

    async def cancel_ticket(self, ticket: str, session: str) -> TicketInfo:
        """Leave the line."""
        return await self._controller().exclusive.cancel_ticket(ticket, session)

    async def release(self, grant: str, session: str) -> None:
        """Answers when the slots are cleared."""
        await self._controller().exclusive.release(grant, session)

    async def fence_topic(
        self, topic: str, partitions: Sequence[int] | None, topic_id: int | None, reason: str | None
    ) -> list[Evicted]:
        """Answers when every partition refuses whoever was there."""
        return await self._controller().groups.fence_topic(topic, partitions, topic_id, reason)

    async def own(
        self,
        group: str,
        session: str,
        claims: Sequence[Claim],
        *,
        atomic: bool,
        sever: Literal["session", "resource"],
    ) -> list[OwnResult]:
        """Answers when the partitions that are claimed know."""
        return await self._controller().groups.own(group, session, claims, atomic=atomic, sever=sever)

    async def disown(self, group: str, session: str, resources: Sequence[str]) -> list[OwnResult]:
        """Give resources up."""
        return await self._controller().groups.disown(group, session, resources)

    async def list_resources(self, group: str) -> list[ResourceInfo]:
        """Ascending; linearizable."""
        return await self._controller().groups.list_resources(group)

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, timeout_ms: int, nonce: str | None
    ) -> ProducerPair:
        """InitProducerId."""
        return await self._controller().producers.init_producer(name, pair, timeout_ms, nonce)

    async def fence_producer(self, name: str) -> ProducerPair:
        """The pair after the fence, in force everywhere."""
        return await self._controller().producers.fence_producer(name)

    async def get_producer(self, key: int | str) -> ProducerStatus:
        """By id or name; linearizable."""
        return await self._controller().producers.find(key)

    async def list_sessions(self, prefix: str, most: int) -> SessionList:
        """By client_id."""
        return await self._controller().census.sessions(prefix, most)

    async def list_groups(self, prefix: str, most: int) -> GroupList:
        """By name."""
        return await self._controller().census.groups(prefix, most)

    async def list_producers(self, prefix: str, most: int) -> ProducerList:
        """By name."""
        return await self._controller().census.producers(prefix, most)
