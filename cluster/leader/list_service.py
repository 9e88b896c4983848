"""Lists for operators, read on the controller's leader: sessions, groups, producers, and who waits for a topic."""

import asyncio
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import chain
from typing import TypeVar, cast

from ...partition.api.ledger import session_handle
from ...partition.api.ownership import (
    GroupList,
    HeldGrant,
    ListedGroup,
    ListedSession,
    ListedTicket,
    SessionList,
    TicketList,
)
from ...partition.api.producers import ProducerList, ProducerPair, is_throwaway
from ...partition.api.topics import Mode
from ...partition.errors import UnknownTopicOrPartition
from ..controller.ownership.grants import Grant, Ticket
from ..controller.ownership.resources import Resource
from ..controller.producers import ProducerRow
from ..controller.sessions import Session
from .controller_group import ControllerGroup

ITEMS_PER_TURN = 10_000
"""Items that are looked at before others get their turn of the event loop."""
GRANTS_PER_TURN = 1_000
"""Grants that are listed before others get their turn of the event loop."""

_Item = TypeVar("_Item")


class ListService:
    """Reads behind a barrier; changes nothing."""

    def __init__(self, control: ControllerGroup) -> None:
        self._control = control
        self._machine = control.machine

    async def list_sessions(
        self, prefix: str, most: int, *, holding: bool = False, handle: str | None = None
    ) -> SessionList:
        """Live sessions, by client_id. ``holding``: those with a grant or a resource. ``handle``: that one alone."""
        await self._control.barrier()
        now_ms = self._control.now_ms()
        fits = self._is_holding if holding else None
        sessions = self._machine.sessions
        named = None if handle is None else sessions.with_handle(handle)
        live = sessions.live() if handle is None else [named] if named is not None else []
        total, found = await _first(live, _client, prefix, most, fits)
        listed, built = [], 0
        for session in found:
            listed.append(self._session(session, now_ms))
            built += len(listed[-1].grants)
            if built >= GRANTS_PER_TURN:
                built = 0
                await asyncio.sleep(0)
        return SessionList(total, listed)

    async def list_groups(self, prefix: str, most: int) -> GroupList:
        """Groups, by name."""
        await self._control.barrier()
        resources = self._machine.resources
        total, found = await _first(resources.rows.items(), _group, prefix, most)
        return GroupList(total, [ListedGroup(name, len(rows), resources.owned_in[name]) for name, rows in found])

    async def list_producers(self, prefix: str, most: int, *, internal: bool) -> ProducerList:
        """Producers with names, by name; ``internal``: also those that drew their names themselves."""
        await self._control.barrier()
        rows = self._machine.registry.rows.values()
        chosen = rows if internal else [row for row in rows if not is_throwaway(row.name)]
        total, found = await _first(chosen, _name, prefix, most)
        return ProducerList(total, [ProducerPair(row.pid, row.epoch, row.name) for row in found])

    async def list_tickets(self, topic: str, partition: int | None, most: int) -> TicketList:
        """The tickets that wait for a topic, or for one of its partitions, in the order of the queue. Raises
        UnknownTopicOrPartition.
        """
        await self._control.barrier()
        placement = self._control.placement(topic)
        if placement is None or (partition is not None and partition >= len(placement.replicas)):
            raise UnknownTopicOrPartition(topic=topic, partition=partition)
        queue, now_ms = self._machine.slots.queue, self._control.now_ms()
        of_topic = placement.topic_id
        found = queue.of_topic(of_topic) if partition is None else queue.touching(of_topic, [partition])
        return TicketList(len(found), [_waiting(ticket, now_ms) for ticket in found[:most]])

    def _is_holding(self, session: Session) -> bool:
        key = session.session
        return bool(self._machine.slots.grants.of_session(key) or self._machine.resources.owned_by(key))

    def _session(self, session: Session, now_ms: int) -> ListedSession:
        deadline_ms = self._control.leases.deadline_ms(session)
        return ListedSession(
            session.client_id,
            session.ttl_ms,
            max(0, deadline_ms - now_ms),
            [_held(grant, now_ms) for grant in self._machine.slots.grants.of_session(session.session)],
            len(self._machine.resources.owned_by(session.session)),
            session_handle(session.session),
        )


def _waiting(ticket: Ticket, now_ms: int) -> ListedTicket:
    left_ms = None if ticket.deadline_ms is None else max(0, ticket.deadline_ms - now_ms)
    return ListedTicket(ticket.producer_name, ticket.client_id, len(ticket.partitions), left_ms)


def _held(grant: Grant, now_ms: int) -> HeldGrant:
    held_ms = max(0, now_ms - grant.at_ms)
    return HeldGrant(
        grant.grant_id,
        grant.topic,
        cast(Mode, grant.mode),
        grant.producer_name,
        grant.epoch,
        len(grant.partitions),
        held_ms,
    )


async def _first(
    items: Iterable[_Item],
    key: Callable[[_Item], str],
    prefix: str,
    most: int,
    fits: Callable[[_Item], bool] | None = None,
) -> tuple[int, list[_Item]]:
    """The number of items that fit and whose key has this ``prefix``, and the first ``most`` of them, at the call."""
    there = list(items)
    total = 0
    first: list[_Item] = []
    for start in range(0, len(there), ITEMS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        found = [item for item in there[start : start + ITEMS_PER_TURN] if key(item).startswith(prefix)]
        found = found if fits is None else [item for item in found if fits(item)]
        total += len(found)
        first = nsmallest(most, chain(first, found), key)
    return total, first


def _client(session: Session) -> str:
    return session.client_id


def _group(item: tuple[str, dict[str, Resource]]) -> str:
    return item[0]


def _name(row: ProducerRow) -> str:
    return row.name
