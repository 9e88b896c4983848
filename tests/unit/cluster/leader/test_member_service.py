"""What the controller's leader refuses before it proposes anything."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stockade.cluster.controller.backups import AHEAD_MS_MAX
from stockade.cluster.leader.member_service import MemberService
from stockade.partition.api.cluster import NotedBackup
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


def test_a_backup_from_the_far_future_does_not_keep_its_place_from_later_ones() -> None:
    """Its maker's clock was wrong: of its place, the cluster would have shown no other one until then."""

    async def scenario() -> None:
        world = World("n1", "n2", "n3")
        members = MemberService(cast(Any, world.control), cast(Any, None), world.balancer, lambda _: None)
        now_ms = time.time_ns() // 1_000_000

        def made(name: str, cut_ms: int) -> NotedBackup:
            return NotedBackup("s3://b", name, cut_ms, took_ms=1, topics=2, records=3, bytes=4)

        for ahead_ms in (2 * AHEAD_MS_MAX, 2**63 - 1 - now_ms):
            with pytest.raises(InvalidRequest, match=r"cut_ms: \d+ s ahead"):
                await members.note_backup(made("wrong", now_ms + ahead_ms))
        await members.note_backup(made("a little ahead", now_ms + AHEAD_MS_MAX // 2))
        [kept] = await members.note_backup(made("newer", now_ms + AHEAD_MS_MAX))
        assert kept.name == "newer"

    asyncio.run(scenario())
