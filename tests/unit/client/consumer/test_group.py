"""Members of a group that each look for themselves end with equal shares, whatever the order in which they look."""

import asyncio
import os
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.client.api.client import Client
from stockade.client.api.fetched import Fetched
from stockade.client.config import ClientConfig
from stockade.client.consumer import group as group_module
from stockade.client.consumer.group import GroupReading, _Claim, free_member, plan, reading_as_member
from stockade.client.consumer.reader import AHEAD_BYTES_MAX, Start
from stockade.client.consumer.records import Piece
from stockade.client.loop_affinity import LoopAffinity
from stockade.client.session.session import Session
from stockade.partition.api.ownership import Resource
from stockade.partition.errors import InconsistentTopicId, OffsetOutOfRange, SessionExpired, UnknownTopicOrPartition
from stockade.partition.records.batch import decode_batch, message_from_columns

from .turns import turns_of_the_loop

WANTED = [f"t/{partition}" for partition in range(7)]


class Group:
    """The cluster's side: who owns what."""

    def __init__(self) -> None:
        self.owners: dict[str, str | None] = {}

    def resources(self) -> list[Resource]:
        return [Resource(name, owner is not None, owner, 1, 1) for name, owner in sorted(self.owners.items())]

    def join(self, member: str) -> None:
        self.owners[free_member("t", self.resources())] = member

    def leave(self, member: str) -> None:
        self.owners = {name: None if owner == member else owner for name, owner in self.owners.items()}

    def look(self, member: str) -> bool:
        """One member takes its next step; answers whether it changed anything."""
        mine = [name for name, owner in self.owners.items() if owner == member]
        number = next(name for name in mine if name.startswith("members/t/"))
        step = plan(number, [name for name in mine if name in WANTED], WANTED, self.resources())
        for name in step.give_up:
            assert self.owners[name] == member
            self.owners[name] = None
        for name in step.take:
            if self.owners.get(name) is None:
                self.owners[name] = member
        return bool(step.give_up or step.take)

    def shares(self, members: list[str]) -> list[int]:
        return sorted(sum(self.owners.get(name) == member for name in WANTED) for member in members)


def settle(group: Group, members: list[str]) -> None:
    for _ in range(2 * len(members) + 2):
        if sum(group.look(member) for member in members) == 0:
            return
    raise AssertionError("it does not settle")


@given(st.data())
def test_shares_become_equal_after_any_comings_and_goings(data: st.DataObject) -> None:
    group, members = Group(), list[str]()
    for number in range(data.draw(st.integers(1, 8))):
        leaves: bool = data.draw(st.booleans())
        if members and leaves:
            group.leave(members.pop(data.draw(st.integers(0, len(members) - 1))))
        else:
            members.append(f"m{number}")
            group.join(members[-1])
        looks = data.draw(st.lists(st.sampled_from(members), max_size=5)) if members else list[str]()
        for member in looks:
            group.look(member)
    if members:
        settle(group, members)
        shares = group.shares(members)
        assert sum(shares) == len(WANTED)
        assert shares[-1] - shares[0] <= 1


def test_a_member_keeps_its_partitions_up_to_its_new_share() -> None:
    group = Group()
    group.join("a")
    settle(group, ["a"])
    before = {name for name, owner in group.owners.items() if owner == "a"}
    group.join("b")
    settle(group, ["a", "b"])
    after = {name for name, owner in group.owners.items() if owner == "a"}
    assert after < before
    assert group.shares(["a", "b"]) == [3, 4]


def test_the_member_number_of_a_member_that_left_is_taken_again() -> None:
    group = Group()
    for member in ("a", "b", "c"):
        group.join(member)
    group.leave("b")
    group.join("d")
    assert sorted(group.owners) == [f"members/t/{number}" for number in range(3)]
    assert group.owners["members/t/1"] == "d"


def test_members_that_look_at_the_same_moment_want_different_partitions() -> None:
    """All wanted the first free one: one got it, and the others waited a third of the time to live for each next."""
    group, members = Group(), [f"m{number}" for number in range(5)]
    for member in members:
        group.join(member)
    found = group.resources()
    taken = [name for number in range(5) for name in plan(f"members/t/{number}", [], WANTED, found).take]
    assert sorted(taken) == WANTED


def test_members_that_join_at_once_need_few_attempts_each() -> None:
    """All wanted the first free number, so that 200 of them made 13,000 claims, and lost their sessions meanwhile."""

    class Joining(Committing):
        claims, group = 0, Group()

        async def resources(self, group: str) -> list[Resource]:
            await asyncio.sleep(0)
            return self.group.resources()

        async def own(self, group: str, session: str, names: list[str], **_: Any) -> list[Any]:
            self.claims += 1
            await asyncio.sleep(0)
            is_mine = self.group.owners.setdefault(names[0], session) == session
            return [SimpleNamespace(granted=is_mine, resource=names[0])]

    async def run() -> None:
        cluster = Joining(partitions=0)
        sessions = [SimpleNamespace(id=f"s{number}", lost=asyncio.Event()) for number in range(200)]
        members = [GroupReading(cluster, each, "g", "t", 1, "earliest") for each in sessions]  # type: ignore[arg-type]
        await asyncio.gather(*(member.begin() for member in members))
        assert len({member._member for member in members}) == len(cluster.group.owners) == 200
        assert cluster.claims < 200 * 20
        await asyncio.gather(*(member.end() for member in members))

    asyncio.run(run())


def test_a_member_that_was_not_the_first_to_claim_a_partition_claims_another_one_at_once() -> None:
    """It waited a third of its time to live for each attempt: 100 partitions had all an owner after 20 s."""

    class Contended(Committing):
        def __init__(self) -> None:
            super().__init__(partitions=2)
            self.owners = {"members/t/0": "me", "members/t/1": "other"}

        async def resources(self, group: str) -> list[Resource]:
            return [Resource(name, True, owner, 1, 1) for name, owner in self.owners.items()]

        async def own(self, group: str, session: str, names: list[str], **_: Any) -> list[Any]:
            taker = "me" if "t/0" in self.owners else "other"  # the other one is faster once
            assert self.owners.setdefault(names[0], taker) == taker
            return [SimpleNamespace(granted=taker == "me", resource=names[0], fence_epoch=1)]

    async def run() -> None:
        cluster = Contended()
        reading = GroupReading(cluster, cast(Session, SimpleNamespace(id="s")), "g", "t", 1, "earliest")  # type: ignore[arg-type]
        reading._member = "members/t/0"
        await reading._share()
        assert (reading.partitions, cluster.owners["t/0"]) == ([1], "other")
        await reading.end()

    asyncio.run(run())


def test_a_member_with_many_partitions_asks_for_few_positions_at_a_time_and_waits_for_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asked for all at once: the answer to a renewal came behind those of 1,500 partitions, too late. Then a read of
    each waited for 10 s at the log's end, and those of further partitions behind them, whatever there was to read.
    """
    silent, asking, waits = 5, set[int](), dict[int, list[int]]()

    class Many(Committing):
        async def position(self, group: str, topic: str, partition: int) -> Any:
            asking.add(partition)
            assert len(asking - {*range(silent)}) <= group_module.REQUESTS_MAX
            await (asyncio.Event().wait() if partition < silent else asyncio.sleep(0))
            asking.discard(partition)
            return SimpleNamespace(offset=0)

        async def fetch(self, client: Any, topic: str, partition: int, position: Any, **how: Any) -> Fetched:
            waits.setdefault(partition, []).append(how["max_wait_ms"])
            assert how["max_bytes"] * 200 <= AHEAD_BYTES_MAX
            return await super().fetch(client, topic, partition, position)

    async def run() -> None:
        cluster = Many()
        monkeypatch.setattr(group_module, "fetch_again", cluster.fetch)
        monkeypatch.setattr(group_module, "UNANSWERED_S", 0.01)
        reading, _ = reading_of(cluster)
        reading._claims = {f"t/{number}": _Claim(f"t/{number}", number, 1) for number in range(200)}
        tasks = [asyncio.create_task(reading._read(claim)) for claim in reading._claims.values()]
        async with asyncio.timeout(30):
            while len(waits) < 200 - silent or any(len(each) < 2 for each in waits.values()):
                _ = await reading._next_piece()
        assert {tuple(each) for each in waits.values()} == {(0, cluster.config.fetch_wait_ms)}
        for task in tasks:
            task.cancel()

    asyncio.run(run())


def test_more_members_than_partitions_leave_some_without_and_they_stand_by() -> None:
    group, members = Group(), [f"m{number}" for number in range(9)]
    for member in members:
        group.join(member)
    settle(group, members)
    assert group.shares(members) == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    group.leave(next(member for member in members if group.shares([member]) == [1]))


def test_members_are_told_apart_by_their_client_ids_unless_they_are_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member was `consumer`: no list said which process owns a partition."""
    seen: list[str] = []

    class Refused(Exception):
        pass

    class Topics:
        async def topic(self, name: str) -> Any:
            return None

    def session(client: Any, client_id: str) -> Any:
        seen.append(client_id)
        raise Refused

    monkeypatch.setattr(group_module, "Session", session)

    async def join(client_id: str | None) -> None:
        with pytest.raises(Refused):
            async with reading_as_member(Topics(), "g", "t", "earliest", client_id):  # type: ignore[arg-type]
                pass

    async def main() -> None:
        for client_id in (None, None, "billing-1"):
            await join(client_id)

    asyncio.run(main())
    assert all(name.startswith("consumer-") and f"-{os.getpid()}-" in name for name in seen[:2])
    assert (seen[0] != seen[1], seen[2]) == (True, "billing-1")


def test_a_partition_that_was_given_up_and_claimed_anew_stays_when_the_old_claim_ends() -> None:
    """A commit of the old claim may be refused after the new one has begun."""
    client = Client()
    reading = GroupReading(client, Session(client, "m"), "g", "t", 1, "earliest")
    old, new = _Claim("t/0", 0, 1), _Claim("t/0", 0, 3)
    reading._claims["t/0"] = old
    reading._give_up(old)
    reading._claims["t/0"] = new
    reading._drop(old)
    assert (reading.partitions, new.is_over) == ([0], False)


class Committing:
    """What a member asks the cluster: a topic with ``partitions`` partitions, each of which has ``end`` records."""

    def __init__(self, partitions: int = 1, topic_id: int = 1) -> None:
        self.affinity, self.config = LoopAffinity(), ClientConfig(bootstrap=("http://n1:1",))
        self.committed: dict[int, int] = {}
        self.partitions, self.topic_id = partitions, topic_id
        self.end = 100

    async def topic(self, name: str) -> Any:
        partitions = [SimpleNamespace(partition=number) for number in range(self.partitions)]
        return SimpleNamespace(topic_id=self.topic_id, partitions=partitions)

    async def commit_position(
        self, group: str, topic: str, partition: int, offset: int, *, topic_id: int, fence_epoch: int
    ) -> None:
        if topic_id != self.topic_id:
            raise InconsistentTopicId(topic_id=self.topic_id)
        self.committed[partition] = offset

    async def position(self, group: str, topic: str, partition: int) -> Any:
        return SimpleNamespace(offset=self.committed.get(partition))

    async def fetch(self, client: Any, topic: str, partition: int, position: Any, **_: Any) -> Fetched:
        """In place of ``fetch_again``."""
        if isinstance(position, int) and position >= self.end:
            await asyncio.Event().wait()
        start = self.end if position == "latest" else position
        rows = [batch_of(self.end - start)] if start < self.end else []
        return Fetched(start, rows, self.end, 0, self.end, stale=False)


def batch_of(rows: int) -> pa.RecordBatch:
    return decode_batch(message_from_columns([None] * rows, [b"v"] * rows, [1] * rows, None))


def reading_of(cluster: Committing, start: Start = "earliest") -> tuple[GroupReading, _Claim]:
    reading = GroupReading(cluster, cast(Session, SimpleNamespace(id="s")), "g", "t", 1, start)  # type: ignore[arg-type]
    claim = reading._claims["t/0"] = _Claim("t/0", 0, 1)
    return reading, claim


def test_tasks_that_iterate_over_one_group_reading_share_its_records() -> None:
    """The rest of a piece was lost when another task took the next one, and committed."""

    async def run() -> None:
        cluster = Committing()
        reading, claim = reading_of(cluster)
        got: list[int] = []

        async def work() -> None:
            async for record in reading:
                got.append(record.offset)
                await asyncio.sleep(0)

        workers = [asyncio.create_task(work()) for _ in range(2)]
        await asyncio.sleep(0)  # both wait
        for base in (0, 10, 20):
            await reading._ready.put((claim, Piece("t", 0, base, batch_of(10))))
        async with asyncio.timeout(10):
            while len(got) < 30:  # noqa: ASYNC110 (nothing else tells)
                await asyncio.sleep(0)
        assert sorted(got) == list(range(30))
        for worker in workers:
            worker.cancel()
        await reading.commit()
        assert cluster.committed == {0: 30}

    asyncio.run(run())


def test_a_group_that_begins_at_the_latest_record_skips_none_when_a_partition_changes_hands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        cluster = Committing()
        monkeypatch.setattr(group_module, "fetch_again", cluster.fetch)
        before, claim = reading_of(cluster, "latest")
        task = asyncio.create_task(before._read(claim))
        async with asyncio.timeout(10):
            while not cluster.committed:  # noqa: ASYNC110 (nothing else tells)
                await asyncio.sleep(0)
        task.cancel()
        assert (before.positions, cluster.committed) == ({}, {0: 100})
        cluster.end = 105
        after, claim = reading_of(cluster, "latest")
        task = asyncio.create_task(after._read(claim))
        async with asyncio.timeout(10):
            assert (await anext(after)).offset == 100
        task.cancel()

    asyncio.run(run())


def test_an_iteration_ends_with_the_block_of_its_group() -> None:
    """One in another task, or behind the block, waited for ever."""

    async def run() -> None:
        reading, claim = reading_of(Committing())
        waiting = {asyncio.create_task(anext(reading, None)), asyncio.create_task(anext(reading.pieces(), None))}
        await reading._ready.put((claim, Piece("t", 0, 0, batch_of(1))))
        async with asyncio.timeout(10):
            _, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await reading.end()
            assert [await each for each in others] == [None]
            assert [record async for record in reading] == []
            assert [piece async for piece in reading.pieces()] == []

    asyncio.run(run())


def test_a_partition_whose_read_has_failed_is_read_again_by_the_next_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its member went on to own it, no member read it any more, and the iteration waited for ever."""

    async def run() -> None:
        cluster = Committing()
        fails = [False, True, True]

        async def fetch(client: Any, topic: str, partition: int, position: Any, **how: Any) -> Fetched:
            if fails.pop(0) if fails else False:
                raise OffsetOutOfRange(position, 0, 100)
            return await cluster.fetch(client, topic, partition, position, **how)

        monkeypatch.setattr(group_module, "fetch_again", fetch)
        cluster.committed[0] = 98
        reading, claim = reading_of(cluster)
        claim.task = asyncio.create_task(reading._read(claim))
        async with asyncio.timeout(10):
            assert [(await anext(reading)).offset for _ in range(2)] == [98, 99]
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange):
                    await anext(reading)
            cluster.end = 101
            assert (await anext(reading)).offset == 100
        await reading.end()

    asyncio.run(run())


def test_a_group_whose_position_was_trimmed_goes_on_at_the_log_s_start_where_its_application_says_so() -> None:
    """It raised OffsetOutOfRange at each iteration, until an operator set its position."""

    class Trimmed(Committing):
        calls = SimpleNamespace(repeat=lambda _name, attempt, quiet_s: attempt())

        async def fetch(self, topic: str, partition: int, position: Any, **how: Any) -> Fetched:  # type: ignore[override]
            assert how["guard"] == ("g", 1)
            if position < 90:
                raise OffsetOutOfRange(position, 90, 100)
            return await super().fetch(None, topic, partition, position)

    async def run(*, skip_trimmed: bool) -> int:
        cluster = Trimmed()
        cluster.committed[0] = 5
        reading = GroupReading(
            cast(Client, cluster), cast(Session, None), "g", "t", 1, "earliest", skip_trimmed=skip_trimmed
        )
        claim = reading._claims["t/0"] = _Claim("t/0", 0, 1)
        claim.task = asyncio.create_task(reading._read(claim))
        try:
            async with asyncio.timeout(10):
                return (await anext(reading)).offset
        finally:
            await reading.commit()
            assert cluster.committed[0] == (91 if skip_trimmed else 5)
            await reading.end()

    assert asyncio.run(run(skip_trimmed=True)) == 90
    with pytest.raises(OffsetOutOfRange):
        asyncio.run(run(skip_trimmed=False))


def test_a_member_that_knows_of_the_loss_of_its_session_hands_out_no_more_records() -> None:
    """It gave out what it had fetched ahead, up to several MiB; then it raised once, and waited for ever."""

    async def run() -> None:
        session = SimpleNamespace(lost=asyncio.Event(), error=SessionExpired())
        reading, claim = reading_of(Committing())
        reading._session = cast(Session, session)
        watching = asyncio.create_task(reading._until_lost())
        for base in (0, 10):
            await reading._ready.put((claim, Piece("t", 0, base, batch_of(10))))
        async with asyncio.timeout(10):
            assert (await anext(reading)).offset == 0
            session.lost.set()
            await watching
            for _ in range(2):
                with pytest.raises(SessionExpired):
                    await anext(reading)
                with pytest.raises(SessionExpired):
                    await anext(reading.pieces())

    asyncio.run(run())


def test_a_member_that_works_without_waiting_lets_the_event_loop_renew_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A piece has many thousands of records: nothing else ran meanwhile, so a millisecond a record cost the session."""

    async def run() -> None:
        monkeypatch.setattr(group_module, "TURN_S", 0.0)
        reading, claim = reading_of(Committing())
        await reading._ready.put((claim, Piece("t", 0, 0, batch_of(1000))))
        async with turns_of_the_loop() as turns:
            for _ in range(1000):
                await anext(reading)
            assert turns[0] >= 800

    asyncio.run(run())


def test_a_partition_that_is_lost_while_the_member_looks_at_its_group_ends_no_iteration() -> None:
    """The look meant to give up a partition that a refused read had dropped: the application got a KeyError."""

    class Shared(Committing):
        def __init__(self) -> None:
            super().__init__(partitions=2)
            self.given_up: list[str] = []

        async def resources(self, group: str) -> list[Resource]:
            reading._drop(reading._claims["t/1"])  # as a read does that another owner has fenced
            owners = {"members/t/0": "a", "members/t/1": "b", "t/0": "a", "t/1": "b"}
            return [Resource(name, True, owner, 1, 1) for name, owner in owners.items()]

        async def disown(self, group: str, session: str, resource: str) -> None:
            self.given_up.append(resource)

    cluster = Shared()
    reading, _ = reading_of(cluster)
    reading._member = "members/t/0"
    reading._claims["t/1"] = _Claim("t/1", 1, 1)
    asyncio.run(reading._share())
    assert (reading.partitions, cluster.given_up) == ([0], [])


@pytest.mark.parametrize("noticed_by", ["read", "look", "commit"])
def test_a_position_in_a_deleted_topic_is_not_committed_to_the_topic_that_has_its_name_now(
    monkeypatch: pytest.MonkeyPatch, noticed_by: str
) -> None:
    """It was: the group's next reader began behind records of the new topic that no member had read."""

    async def fetch(*_: Any, **__: Any) -> Fetched:
        raise UnknownTopicOrPartition(topic="t", partition=None)  # before it was created again

    async def run() -> None:
        cluster = Committing(topic_id=2)
        monkeypatch.setattr(group_module, "fetch_again", fetch)
        reading, claim = reading_of(cluster)
        await reading._ready.put((claim, Piece("t", 0, 0, batch_of(10))))
        assert (await anext(reading)).offset == 0
        if noticed_by == "read":
            await reading._read(claim)
        elif noticed_by == "look":
            with pytest.raises(InconsistentTopicId):
                await reading._share()
        for _ in range(2):
            with pytest.raises(InconsistentTopicId):
                await reading.commit()
        assert cluster.committed == {}
        with pytest.raises(InconsistentTopicId):
            await anext(reading)

    asyncio.run(run())


def test_a_commit_waits_for_the_one_before_so_that_no_older_position_arrives_behind_a_newer_one() -> None:
    class Slow(Committing):
        def __init__(self) -> None:
            super().__init__()
            self.arrives = asyncio.Event()

        async def commit_position(self, *where: Any, **guards: Any) -> None:
            if where[3] == 1:
                await self.arrives.wait()
            await super().commit_position(*where, **guards)

    async def run() -> None:
        cluster = Slow()
        reading, claim = reading_of(cluster)
        claim.position = 1
        first = asyncio.create_task(reading.commit())
        await asyncio.sleep(0)
        claim.position = 2
        second = asyncio.create_task(reading.commit())
        await asyncio.sleep(0)
        cluster.arrives.set()
        await asyncio.gather(first, second)
        assert (cluster.committed, claim.committed) == ({0: 2}, 2)

    asyncio.run(run())


def test_a_member_that_cannot_read_a_partition_yet_commits_what_it_got_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node may not have heard of a partition that the topic has just got."""

    async def fetch(*_: Any, **__: Any) -> Fetched:
        raise UnknownTopicOrPartition(topic="t", partition=1)

    async def run() -> None:
        cluster = Committing(partitions=2)
        monkeypatch.setattr(group_module, "fetch_again", fetch)
        reading, claim = reading_of(cluster)
        await reading._ready.put((claim, Piece("t", 0, 0, batch_of(10))))
        assert (await anext(reading)).offset == 0
        await reading._read(_Claim("t/1", 1, 1))
        await reading.commit()
        assert cluster.committed == {0: 1}

    asyncio.run(run())
