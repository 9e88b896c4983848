"""What the controller's leader refuses before it proposes anything."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stockade.cluster.leader.admin_service import MemberService
from stockade.partition.errors import InvalidRequest

from .test_balancer import World


async def seen_at_once(*_: object) -> None: ...


@pytest.mark.parametrize(
    ("url", "raft_address", "fault"),
    [
        ("http://n1:1", "n4:2", "url: n1 has n1:1"),
        ("https://n1:1/", "n4:2", "url: n1 has n1:1"),
        ("http://n4:1", "n2:2", "raft_address: n2 has n2:2"),
        ("http://n3:2", "n4:2", "url: n3 has n3:2"),
        ("http://n1:1", "n1:2", "url: n1 has n1:1; raft_address: n1 has n1:2"),
    ],
)
def test_no_node_gets_an_address_of_another_member(url: str, raft_address: str, fault: str) -> None:
    async def scenario() -> None:
        world = World("n1", "n2", "n3")
        seen: Any = SimpleNamespace(index=1 << 62, changed=SimpleNamespace(until=seen_at_once))
        members = MemberService(cast(Any, world.control), seen, world.balancer, lambda _: None)
        before = world.machine.assignment.save()
        with pytest.raises(InvalidRequest) as refusal:
            await members.add_node("n4", url, raft_address, None)
        assert refusal.value.detail == fault
        assert world.machine.assignment.save() == before
        for _ in range(2):
            await members.add_node("n4", "http://n4:1", "n4:2", None)
        await members.add_node("n1", "http://n1:1", "n1:3", None)
        rows = world.machine.assignment.nodes.rows
        assert (rows["n4"].raft, rows["n1"].raft) == ("n4:2", "n1:3")

    asyncio.run(scenario())
