"""A partition that commits nothing, because it has lost its majority, costs a group's member that partition alone."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from waiting import until

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.consumer import group as group_module
from stockade.client.consumer.group import GroupReading, _Claim
from stockade.client.session.session import Session
from stockade.partition.api.ownership import Resource
from stockade.partition.errors import NotOwner, RequestTimedOut

from ..fake_cluster import FakeCluster, Fault
from .test_group import Committing, reading_of


class Blocked(Committing):
    """A cluster in which the partitions ``blocked`` commit nothing: claims of them, and their end, are decided, and get
    no answer.
    """

    def __init__(self) -> None:
        super().__init__(partitions=3)
        self.owners: dict[str, str | None] = {"members/t/0": "me"}
        self.blocked = {"t/1"}

    async def resources(self, group: str) -> list[Resource]:
        return [Resource(name, owner is not None, owner, 1, 1) for name, owner in self.owners.items()]

    async def own(self, group: str, session: str, names: list[str], **_: Any) -> list[Any]:
        taken = [name for name in names if self.owners.get(name) in (None, "me")]
        self.owners |= dict.fromkeys(taken, "me")
        return self._answer([SimpleNamespace(granted=name in taken, resource=name, fence_epoch=1) for name in names])

    async def disown(self, group: str, session: str, name: str, **_: Any) -> None:
        if self.owners[name] not in (None, "me"):
            raise NotOwner(fence_epoch=2)
        self.owners[name] = None
        self._answer([SimpleNamespace(resource=name)])

    def _answer(self, verdicts: list[Any]) -> list[Any]:
        if self.blocked.intersection(each.resource for each in verdicts):
            raise RequestTimedOut("decided, but not every partition has committed it in time")
        return verdicts


def test_a_partition_that_commits_nothing_keeps_no_member_from_reading_the_others() -> None:
    """The claim of all three got no answer, and the member took its own partitions for those of others: it read none of
    them for as long as it lived, also after the one had its majority back.
    """

    async def run() -> None:
        cluster = Blocked()
        reading = GroupReading(cluster, cast(Session, SimpleNamespace(id="s")), "g", "t", 1, "earliest")  # type: ignore[arg-type]
        reading._member = "members/t/0"
        await reading._share()
        assert reading.partitions == [0, 2]
        cluster.blocked.clear()
        await reading._share()
        assert reading.partitions == [0, 1, 2]
        await reading.end()

    asyncio.run(run())


def test_a_partition_whose_claim_got_no_answer_is_given_up_when_another_member_is_due_to_read_it() -> None:
    async def run() -> None:
        cluster = Blocked()
        reading = GroupReading(cluster, cast(Session, SimpleNamespace(id="s")), "g", "t", 1, "earliest")  # type: ignore[arg-type]
        reading._member = "members/t/0"
        await reading._share()
        cluster.owners |= {"members/t/1": "other", "members/t/2": "third"}
        for _ in range(2):  # given up, though without an answer: neither claimed again, nor counted as owned
            await reading._share()
            assert len(reading.partitions) == 1
        mine = {f"t/{number}" for number in reading.partitions}
        assert {name for name, owner in cluster.owners.items() if owner == "me"} == {"members/t/0", *mine}
        cluster.owners["t/1"] = "other"
        await reading.commit()
        assert reading._leaving == []
        await reading.end()

    asyncio.run(run())


def test_partitions_whose_end_is_not_committed_hold_up_no_look_and_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node waits 10 s for a partition that commits nothing, and they were given up one after the other: with eleven
    of them each look, and each commit of the application, took two minutes.
    """

    class Silent(Blocked):
        async def disown(self, group: str, session: str, name: str, **_: Any) -> None:
            if name in self.blocked:
                asked.append(name)
                await asyncio.Event().wait()
            await super().disown(group, session, name)

    async def run() -> None:
        monkeypatch.setattr(group_module, "UNANSWERED_S", 0.01)
        cluster = Silent()
        cluster.blocked = {"t/0", "t/1"}
        cluster.owners |= dict.fromkeys(("t/0", "t/1", "t/2"), "me")
        reading = GroupReading(cluster, cast(Session, SimpleNamespace(id="s")), "g", "t", 1, "earliest")  # type: ignore[arg-type]
        reading._member = "members/t/0"
        for number in range(3):
            reading._give_up(_Claim(f"t/{number}", number, 1))
        async with asyncio.timeout(60):
            await reading.commit()
            assert (sorted(asked), cluster.owners["t/2"]) == (["t/0", "t/1"], None)
            await reading._share()
            assert reading.partitions == [2]
            assert sorted(asked) == ["t/0", "t/1"]  # each is asked once at a time
            await reading.end()

    asked = list[str]()
    asyncio.run(run())


def test_claims_that_get_no_answer_leave_the_session_connections_for_its_renewals(cluster: FakeCluster) -> None:
    """A node holds each for 10 s: more of them than connections took all of these, and the session was lost."""
    cluster.create("t", 40)

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), connections_max=16)
        async with Client(config) as client, Session(client, "me", ttl_ms=3000) as session:
            topic_id = (await client.topic("t")).topic_id
            reading = GroupReading(client, session, "g", "t", topic_id, "earliest")
            reading._member = "members/t/0"
            reading._unanswered = {f"t/{number}" for number in range(40)}
            cluster.own_faults = [Fault.HOLD] * 40
            looking = asyncio.create_task(reading._share())
            await cluster.seen("POST", 8, "/own")
            await cluster.seen("PUT", len(cluster.paths("PUT")) + 5)
            assert session.error is None
            assert sum("/own" in path for path in cluster.paths("POST")) == 8
            looking.cancel()
            await reading.end()
            cluster.release_held()

    asyncio.run(run())


def test_a_partition_that_commits_no_position_keeps_the_others_from_no_commit() -> None:
    """Positions were committed one after the other: none behind that of a partition without a majority."""

    class OneBlocked(Committing):
        async def commit_position(self, *where: Any, **guards: Any) -> None:
            if where[2] == 0:
                await may_refuse.wait()
                raise RequestTimedOut("not decided in time")
            await super().commit_position(*where, **guards)

    async def run() -> None:
        cluster = OneBlocked(partitions=3)
        reading, _ = reading_of(cluster)
        reading._claims = {f"t/{number}": _Claim(f"t/{number}", number, 1, number + 1) for number in range(3)}
        committing = asyncio.create_task(reading.commit())
        await until(lambda: len(cluster.committed) == 2)
        reading._claims["t/1"].position = 50
        may_refuse.set()
        with pytest.raises(RequestTimedOut):
            await committing
        assert cluster.committed == {1: 2, 2: 3}
        assert [claim.is_committed for claim in reading._claims.values()] == [False, False, True]

    may_refuse = asyncio.Event()
    asyncio.run(run())
