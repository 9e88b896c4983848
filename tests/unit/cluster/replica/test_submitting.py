"""Appends for which no caller waits: proposed at once or not at all, and settled with what there is to tell."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stockade.cluster.model import Conditions
from stockade.cluster.replica.replica import Replica
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Appended, InstallFence, InstallReader, Stamp, Token, encode_command
from stockade.partition.errors import (
    InsufficientStorage,
    InvalidRequest,
    NotFound,
    NotOwner,
    ProducerBusy,
    ProducerFenced,
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


def test_submit_settles_once_the_batch_is_stored(tmp_path: Path) -> None:
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


SIZE = len(batch(2).message)


def staged(one: Replica, name: str = "s") -> Coroutine[Any, Any, bool]:
    return one.put_stage(name, name, batch(2), ttl_ms=60_000, topic_id=None)


async def with_records(directory: Path) -> tuple[Replica, Submitting]:
    """A partition that keeps one batch, and can take stages."""
    one, group = await begun(directory)
    one.machine.stages.files = MemoryStageFiles()
    submitted(one)
    await group.commit()
    return one, group


def test_no_record_is_proposed_beyond_the_topics_quota_until_a_trim_makes_room(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, group = await with_records(tmp_path)
        kept = one.kept_bytes
        for quota in (kept + SIZE - 1, 0):
            one.config = TopicConfig(quota_bytes=quota)
            proposed = group.index
            assert not one.submit(batch(2), ANY, never)
            for refused in (one.append(batch(2), ANY), staged(one)):
                with pytest.raises(StorageQuotaExceeded) as found:
                    await refused
                assert found.value.fields == {"quota_bytes": quota, "kept_bytes": kept, "retry_after_ms": 1000}
            assert (group.index, group.submitted) == (proposed, [])
        one.config = TopicConfig(quota_bytes=kept + SIZE - 1)
        await one.trim(None, topic_id=None, token=None)
        assert one.kept_bytes == 0
        assert (await one.append(batch(2), ANY)).base_offset == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("quota", ["just enough", "none"])
def test_a_batch_that_fits_the_topics_quota_is_proposed(tmp_path: Path, quota: str) -> None:
    async def scenario() -> None:
        one, group = await with_records(tmp_path)
        one.config = TopicConfig(quota_bytes=one.kept_bytes + SIZE if quota == "just enough" else -1)
        submitted(one)
        await group.commit()
        assert one.machine.log_end == 4

    asyncio.run(scenario())


def test_batches_under_way_count_for_the_quota_so_that_together_they_do_not_exceed_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, group = await with_records(tmp_path)
        one.config = TopicConfig(quota_bytes=one.kept_bytes + 10 * SIZE)
        assert 5 <= sum(one.submit(batch(2), ANY, lambda told: None) for _ in range(20)) <= 10
        await group.commit()
        assert one.kept_bytes <= one.config.quota_bytes

    asyncio.run(scenario())


def test_a_batch_whose_producer_is_made_known_meanwhile_does_not_exceed_the_quota_either(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, _ = await with_records(tmp_path)
        one.config = TopicConfig(quota_bytes=one.kept_bytes + SIZE)

        async def enrol(pid: int, group: int, timeout_s: float) -> tuple[int, int, str]:
            await one.append(batch(2), ANY)  # takes what was left
            return 4, 1000, ""

        one._enrol = enrol
        with pytest.raises(StorageQuotaExceeded):
            await one.append(batch(2), Conditions(stamp=Stamp(1001, 4, 0)))
        assert one.machine.log_end == 4
        assert one.kept_bytes <= one.config.quota_bytes

    asyncio.run(scenario())


def test_stages_count_for_the_quota_and_their_appends_never_exceed_it(tmp_path: Path) -> None:
    """A Spark batch is decided when its stages are taken: its appends must not be refused for want of room."""

    async def scenario() -> None:
        one, _ = await with_records(tmp_path)
        one.config = TopicConfig(quota_bytes=one.kept_bytes + 3 * SIZE)
        for name in "abc":
            await staged(one, name)
        with pytest.raises(StorageQuotaExceeded):
            await staged(one, "d")
        await asyncio.gather(*(one.append_stage(name, 1, ANY) for name in "abc"))
        assert (one.machine.log_end, one.machine.stages.size) == (8, 0)
        assert one.kept_bytes <= one.config.quota_bytes

    asyncio.run(scenario())


def test_a_duplicate_is_answered_although_the_quota_is_used(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, _ = await begun(tmp_path, dedupe_window_ms=60_000)
        one.machine.stages.files = MemoryStageFiles()
        numbered, named = Conditions(stamp=Stamp(1001, 4, 0)), Conditions(message_id="m")
        stored = [(await one.append(batch(2), each)).base_offset for each in (numbered, named)]
        await staged(one)
        stored.append((await one.append_stage("s", 1, ANY))[0].base_offset)
        one.config = structs.replace(one.config, quota_bytes=0)
        again = [await one.append(batch(2), each) for each in (numbered, named)]
        again.append((await one.append_stage("s", 1, ANY))[0])
        assert [each.base_offset for each in again] == stored
        assert all(each.duplicate for each in again)
        assert not await staged(one)
        with pytest.raises(NotFound):
            await one.append_stage("unknown", 1, ANY)

    asyncio.run(scenario())


def test_a_zombie_learns_that_it_is_fenced_also_where_the_quota_is_used(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, group = await with_records(tmp_path)
        for number in (1, 2):
            command = InstallFence(f"g-812-{number}", number, f"s{number}", "loader", "Exclusive", number)
            await group.propose(encode_command(command), 1.0)
        one.config = TopicConfig(quota_bytes=0)
        with pytest.raises(ProducerFenced):
            await one.append(batch(2), Conditions(token=Token("g-812-1", 1, "s1")))
        with pytest.raises(StorageQuotaExceeded):
            await one.append(batch(2), Conditions(token=Token("g-812-2", 2, "s2")))

    asyncio.run(scenario())


def test_submit_proposes_nothing_where_append_has_a_step_to_do_first(tmp_path: Path) -> None:
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
def test_submit_settles_undecided_commands_with_their_outcome(
    tmp_path: Path, outcome: Outcome, told: type | None
) -> None:
    async def scenario() -> None:
        one, group = await begun(tmp_path)
        group.lost = outcome
        settled = submitted(one)
        await group.commit()
        assert settled == [None] if told is None else [type(each) for each in settled] == [told]

    asyncio.run(scenario())


def test_submit_settles_with_refusals_and_with_none_where_append_has_more_to_do(tmp_path: Path) -> None:
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
