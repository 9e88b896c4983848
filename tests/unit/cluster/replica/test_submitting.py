"""Appends for which nobody waits: proposed at once or not at all, and settled with what there is to tell."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cluster.model import Conditions
from stockade.cluster.replica.replica import Replica
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Appended, InstallFence, InstallReader, Stamp, encode_command
from stockade.partition.errors import (
    InsufficientStorage,
    InvalidRequest,
    NotOwner,
    ProducerBusy,
    RequestTimedOut,
    StorageQuotaExceeded,
    ThrottlingQuotaExceeded,
)
from stockade.partition.state.stages import MemoryStageFiles
from stockade.raft.core.group import Outcome, Overloaded, Rejected, Unknown

from .test_replica import Group, batch, group_of, replica

ANY = Conditions()


class Submitting(Group):
    """What is submitted waits until ``commit``."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.submitted: list[tuple[bytes, Callable[[Outcome], None]]] = []

    @property
    def pending(self) -> tuple[int, int]:
        return len(self.submitted), sum(len(command) for command, _ in self.submitted)

    def submit(self, command: bytes, timeout_s: float, settle: Callable[[Outcome], None]) -> None:
        self.submitted.append((command, settle))

    async def commit(self) -> None:
        while self.submitted:
            command, settle = self.submitted.pop(0)
            settle(await self.propose(command, 1.0))


async def begun(directory: Path, **config: Any) -> tuple[Replica, Submitting]:
    one = replica(directory, TopicConfig(**config), open_group=Submitting)
    await one.configure()
    group = group_of(one)
    assert isinstance(group, Submitting)
    return one, group


def submitted(one: Replica, conditions: Conditions = ANY) -> list[Any]:
    settled: list[Any] = []
    assert one.submit(batch(2), conditions, settled.append)
    return settled


def never(told: object) -> None:
    pytest.fail(f"told {told}")


def test_a_batch_is_told_of_when_it_is_stored(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, group = await begun(tmp_path)
        first, second = submitted(one), submitted(one)
        assert first == second == []
        await group.commit()
        assert [told.base_offset for told in first + second if isinstance(told, Appended)] == [0, 2]

    asyncio.run(scenario())


def test_without_room_no_record_is_proposed_and_trims_and_positions_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, group = await begun(tmp_path)
        proposed, one._without_room = group.index, lambda _: ["n2", "n3"]
        assert not one.submit(batch(2), ANY, never)
        for refused in (
            one.append(batch(2), ANY),
            one.append_stage("s", 1, ANY),
            one.put_stage("z", "d", batch(2), ttl_ms=60_000, topic_id=None),
        ):
            with pytest.raises(InsufficientStorage) as found:
                await refused
            assert found.value.fields == {"nodes": ["n2", "n3"], "retry_after_ms": 1000}
        assert (group.index, group.submitted) == (proposed, [])
        await one.commit_position("g", 0, None, None)
        await one.trim(None, topic_id=None, token=None)
        assert group.index == proposed + 2

    asyncio.run(scenario())


def test_no_record_is_proposed_beyond_the_topics_quota_until_a_trim_makes_room(tmp_path: Path) -> None:
    async def scenario() -> None:
        size = len(batch(2).message)
        one, group = await begun(tmp_path)
        submitted(one)
        await group.commit()
        kept = one.log.kept_bytes
        for quota, has_room in ((kept + size, True), (kept + size - 1, False), (0, False), (-1, True)):
            one.config = TopicConfig(quota_bytes=quota)
            proposed = group.index
            if has_room:
                one._check_room(size)
                continue
            assert not one.submit(batch(2), ANY, never)
            for refused in (one.append(batch(2), ANY), one.put_stage("z", "d", batch(2), ttl_ms=60_000, topic_id=None)):
                with pytest.raises(StorageQuotaExceeded) as found:
                    await refused
                assert found.value.fields == {"quota_bytes": quota, "kept_bytes": kept, "retry_after_ms": 1000}
            assert (group.index, group.submitted) == (proposed, [])
        one.config = TopicConfig(quota_bytes=kept + size - 1)
        await one.trim(None, topic_id=None, token=None)
        assert one.log.kept_bytes == 0
        assert (await one.append(batch(2), ANY)).base_offset == 2

    asyncio.run(scenario())


def test_batches_under_way_count_for_the_quota_so_that_together_they_do_not_exceed_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, group = await begun(tmp_path)
        submitted(one)
        await group.commit()
        one.config = TopicConfig(quota_bytes=one.log.kept_bytes + 10 * len(batch(2).message))
        assert 5 <= sum(one.submit(batch(2), ANY, lambda told: None) for _ in range(20)) <= 10
        await group.commit()
        assert one.log.kept_bytes <= one.config.quota_bytes

    asyncio.run(scenario())


def test_a_stage_that_was_appended_is_answered_again_whatever_the_quota(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, _ = await begun(tmp_path)
        one.machine.stages.files = MemoryStageFiles()
        await one.put_stage("s", "d", batch(2), ttl_ms=60_000, topic_id=None)
        first, _ = await one.append_stage("s", 1, ANY)
        one.config = TopicConfig(quota_bytes=one.log.kept_bytes)
        again, _ = await one.append_stage("s", 1, ANY)
        assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)

    asyncio.run(scenario())


def test_where_something_comes_first_nothing_is_proposed(tmp_path: Path) -> None:
    async def scenario() -> None:
        one = replica(tmp_path, open_group=Submitting)
        group = group_of(one)
        assert not one.submit(batch(), ANY, never)  # it is not configured
        await one.configure()
        with pytest.raises(InvalidRequest):
            one.submit(batch(), Conditions(message_id="m"), never)
        assert isinstance(group, Submitting)
        assert group.submitted == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("outcome", "told"),
    [(Unknown(9), RequestTimedOut), (Overloaded(), ThrottlingQuotaExceeded), (Rejected("n2", 4), None)],
)
def test_what_was_not_decided_is_told_as_what_it_is(tmp_path: Path, outcome: Outcome, told: type | None) -> None:
    async def scenario() -> None:
        one, group = await begun(tmp_path)
        group.lost = outcome
        settled = submitted(one)
        await group.commit()
        assert settled == [None] if told is None else [type(each) for each in settled] == [told]

    asyncio.run(scenario())


def test_refusals_are_told_and_what_append_sees_to_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, group = await begun(tmp_path, writer_group="w")
        owned = submitted(one, Conditions(fence_epoch=1))
        group.machine.apply(2, 3, encode_command(InstallReader("w", 1)))
        unknown = submitted(one, Conditions(fence_epoch=1, stamp=Stamp(1001, 0, 0)))
        await group.commit()
        assert unknown == [None]
        assert isinstance(owned[0], Appended)
        stale = submitted(one, Conditions(fence_epoch=0))
        await group.commit()
        assert isinstance(stale[0], NotOwner)
        assert stale[0].fields["resource"] == "t/0"
        group.machine.apply(3, 3, encode_command(InstallFence("g-812-1", 1, "s", "w", "Exclusive", 1)))
        busy = submitted(one, Conditions(fence_epoch=1))
        await group.commit()
        assert isinstance(busy[0], ProducerBusy)

    asyncio.run(scenario())
