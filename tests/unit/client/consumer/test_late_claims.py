"""A claim that was under way for so long that it came behind its repetition, or behind the end of what that had got,
costs the group nothing for long: the member finds what it owns without its knowledge at its next look.
"""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stockade.client.consumer.group import GroupReading
from stockade.client.session.session import Session
from stockade.partition.api.ledger import session_handle
from stockade.partition.api.ownership import Resource
from stockade.partition.errors import NotOwner

from .test_group import Committing


class Group(Committing):
    """A cluster whose list of resources names the owners' sessions."""

    def __init__(self, **owners: str) -> None:
        super().__init__(partitions=2)
        self.owners: dict[str, str | None] = {name.replace("_", "/"): owner for name, owner in owners.items()}

    async def resources(self, group: str) -> list[Resource]:
        owned = [(name, owner) for name, owner in self.owners.items() if owner is not None]
        return [Resource(name, True, "one client_id", 1, 1, session_handle(owner)) for name, owner in owned]

    async def own(self, group: str, session: str, names: list[str], **_: Any) -> list[Any]:
        taken = [name for name in names if self.owners.get(name) in (None, session)]
        self.owners |= dict.fromkeys(taken, session)
        return [SimpleNamespace(granted=name in taken, resource=name, fence_epoch=1) for name in names]

    async def disown(self, group: str, session: str, name: str, **_: Any) -> None:
        if self.owners[name] not in (None, session):
            raise NotOwner(fence_epoch=2)
        self.owners[name] = None


def member_of(cluster: Group) -> GroupReading:
    session = cast(Session, SimpleNamespace(id="mine"))
    reading = GroupReading(cluster, session, "g", "t", 1, "earliest")  # type: ignore[arg-type]
    reading._member = "members/t/0"
    return reading


@pytest.mark.parametrize("late", ["t/1", "members/t/7"])
def test_a_late_claim_of_what_another_member_is_due_to_read_is_given_up_at_the_next_look(late: str) -> None:
    """The session owned a partition that no member read, or a second number, which had a share of the partitions: these
    had no reader for as long as the session lived.
    """

    async def run() -> None:
        cluster = Group(members_t_0="mine", members_t_1="other", t_0="mine")
        reading = member_of(cluster)
        await reading._share()
        assert reading.partitions == [0]
        cluster.owners[late] = "mine"
        await reading._share()
        assert (cluster.owners[late], reading.partitions) == (None, [0])
        await reading.end()

    asyncio.run(run())


def test_a_late_claim_of_what_the_member_is_due_to_read_is_taken_up_at_the_next_look() -> None:
    async def run() -> None:
        cluster = Group(members_t_0="mine", t_0="mine", t_1="mine")
        reading = member_of(cluster)
        await reading._share()
        assert reading.partitions == [0, 1]
        await reading.end()

    asyncio.run(run())


def test_what_another_session_of_the_same_client_id_owns_is_left_to_it() -> None:
    async def run() -> None:
        cluster = Group(members_t_0="mine", members_t_1="other", t_1="other")
        reading = member_of(cluster)
        await reading._share()
        assert (reading.partitions, cluster.owners["t/1"], reading._leaving) == ([0], "other", [])
        await reading.end()

    asyncio.run(run())
