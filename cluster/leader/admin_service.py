"""The lists of sessions, groups and producers, as the controller's leader makes them of its machine."""

import asyncio
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import chain
from typing import TypeVar

from .control import Control
from .grants import Grant
from .listing import GroupList, HeldGrant, ListedGroup, ListedSession, ProducerList, SessionList
from .model import ProducerPair
from .registry import Row
from .resources import Resource
from .sessions import Session

ITEMS_PER_TURN = 10_000
"""Looked at before others get their turn of the event loop."""

_Item = TypeVar("_Item")


class Census:
    """Reads behind a barrier; changes nothing."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._machine = control.machine

    async def sessions(self, prefix: str, most: int) -> SessionList:
        """By client_id."""
        await self._control.barrier()
        now_ms = self._control.now_ms()
        total, found = await _first(self._machine.sessions.live(), _client, prefix, most)
        return SessionList(total, [self._session(session, now_ms) for session in found])

    async def groups(self, prefix: str, most: int) -> GroupList:
        """By name."""
        await self._control.barrier()
        total, found = await _first(self._machine.resources.rows.items(), _group, prefix, most)
        owned = [sum(row.owner is not None for row in rows.values()) for _, rows in found]
        return GroupList(
            total, [ListedGroup(name, len(rows), count) for (name, rows), count in zip(found, owned, strict=True)]
        )

    async def producers(self, prefix: str, most: int) -> ProducerList:
        """By name."""
        await self._control.barrier()
        total, found = await _first(self._machine.registry.rows.values(), _name, prefix, most)
        return ProducerList(total, [ProducerPair(row.pid, row.epoch, row.name) for row in found])

    def _session(self, session: Session, now_ms: int) -> ListedSession:
        deadline_ms = self._control.leases.deadline_ms(session)
        return ListedSession(
            session.client_id,
            session.ttl_ms,
            max(0, deadline_ms - now_ms),
            [_held(grant, now_ms) for grant in self._machine.ownership.grants.of_session(session.session)],
            len(self._machine.resources.owned_by(session.session)),
        )


def _held(grant: Grant, now_ms: int) -> HeldGrant:
    held_ms = max(0, now_ms - grant.at_ms)
    return HeldGrant(
        grant.grant_id, grant.topic, grant.mode, grant.producer_name, grant.epoch, len(grant.partitions), held_ms
    )


async def _first(
    items: Iterable[_Item], key: Callable[[_Item], str], prefix: str, most: int
) -> tuple[int, list[_Item]]:
    """How many have a key that begins so, and the first ``most`` of them; of those that there are now."""
    there = list(items)
    total = 0
    first: list[_Item] = []
    for start in range(0, len(there), ITEMS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        found = [item for item in there[start : start + ITEMS_PER_TURN] if key(item).startswith(prefix)]
        total += len(found)
        first = nsmallest(most, chain(first, found), key)
    return total, first


def _client(session: Session) -> str:
    return session.client_id


def _group(item: tuple[str, dict[str, Resource]]) -> str:
    return item[0]


def _name(row: Row) -> str:
    return row.name
