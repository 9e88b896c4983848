"""The part of a fake node that lists what there is."""

from typing import Any

from stockade.partition.api.ledger import session_handle
from stockade.partition.api.ownership import (
    GroupList,
    HeldGrant,
    ListedGroup,
    ListedSession,
    ListedTicket,
    SessionList,
    TicketList,
)
from stockade.partition.api.producers import ProducerList, is_throwaway
from stockade.partition.errors import UnknownTopicOrPartition


class FakeListing:
    """A base of FakeService."""

    shared: Any
    bug: Exception | None

    def _check_controlling(self) -> None:
        raise NotImplementedError

    async def list_sessions(
        self, prefix: str, most: int, *, holding: bool = False, handle: str | None = None
    ) -> SessionList:
        self._check()
        found = [each for each in self.shared.sessions.values() if each.client_id.startswith(prefix)]
        held = [
            HeldGrant(each.grant, each.topic, each.mode, each.producer_name, each.epoch, len(each.partitions), 5)
            for each in self.shared.grants.values()
        ]
        listed = [
            ListedSession(each.client_id, each.ttl_ms, each.remaining_ms, held, 0, session_handle(each.session))
            for each in found
        ]
        listed = [each for each in listed if (each.grants or not holding) and handle in (None, each.handle)]
        return SessionList(len(listed), listed[:most])

    async def list_groups(self, prefix: str, most: int) -> GroupList:
        self._check()
        names = sorted({group for group, _ in self.shared.owned if group.startswith(prefix)})
        return GroupList(len(names), [ListedGroup(name, 1, 1) for name in names[:most]])

    async def list_producers(self, prefix: str, most: int, *, internal: bool) -> ProducerList:
        self._check()
        names = [name for name in sorted(self.shared.producers) if internal or not is_throwaway(name)]
        pairs = [self.shared.producers[name] for name in names if name.startswith(prefix)]
        return ProducerList(len(pairs), pairs[:most])

    async def list_tickets(self, topic: str, partition: int | None, most: int) -> TicketList:
        self._check()
        if topic not in self.shared.topics:
            raise UnknownTopicOrPartition(topic=topic, partition=partition)
        found = [
            ticket
            for ticket in self.shared.tickets.values()
            if ticket.topic == topic and (partition is None or partition in ticket.partitions)
        ]
        listed = [ListedTicket("p", "c", len(ticket.partitions), None) for ticket in found]
        return TicketList(len(listed), listed[:most])

    def _check(self) -> None:
        if self.bug is not None:
            raise self.bug
        self._check_controlling()
