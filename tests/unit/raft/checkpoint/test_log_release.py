"""A release of log files that checkpoints cover also drops their entries from group logs, and always finishes."""

import asyncio
import threading
from pathlib import Path

import pytest

from stockade.raft.checkpoint.group_storage import GroupStorage
from stockade.raft.checkpoint.store import CheckpointStore
from stockade.raft.checkpoint.tombstones import Tombstones
from stockade.raft.log.origin import GroupTombstone
from stockade.raft.wal.file_set import WalIdentity
from stockade.raft.wal.wal import Wal

from ..wal.test_wal_release import append, indexes, numbers, opened


async def a_log_of_two_groups(directory: Path) -> None:
    """Group 2 is covered up to 25, group 1 pins the first file."""
    async with opened(directory) as wal:
        append(wal, 2, range(2, 30))
        append(wal, 1, range(2, 3))
        wal.covered(2, 25)
        wal.save_vote(2, 1, "n1")
        append(wal, 1, range(3, 40))


def storage_of(data: Path, wal: Wal) -> GroupStorage:
    return GroupStorage(data, wal, 1 << 20, lambda: None)


def test_entries_that_went_before_their_group_was_opened_are_not_in_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        await a_log_of_two_groups(tmp_path / "wal")
        async with opened(tmp_path / "wal") as wal:
            wal.covered(1, 39)
            await storage_of(tmp_path, wal).release()
            assert numbers(tmp_path / "wal")[0] > 3
            assert indexes(wal, 2)[-1] == 29

    asyncio.run(scenario())


def test_a_release_that_is_cancelled_leaves_nothing_behind_that_still_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = threading.Event(), threading.Event()
    shrink = WalIdentity.shrink

    def held_up(identity: WalIdentity, first: int) -> None:
        reached.set()
        assert go.wait(10)
        shrink(identity, first)

    async def scenario() -> None:
        await a_log_of_two_groups(tmp_path / "wal")
        async with opened(tmp_path / "wal") as wal:
            wal.covered(1, 39)
            monkeypatch.setattr(WalIdentity, "shrink", held_up)
            releasing = asyncio.create_task(storage_of(tmp_path, wal).release())
            await asyncio.to_thread(reached.wait, 10)
            releasing.cancel()
            done, _ = await asyncio.wait([releasing], timeout=0.05)
            assert not done
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await releasing
            assert numbers(tmp_path / "wal")[0] > 3

    asyncio.run(scenario())


def test_an_erased_replica_keeps_its_checkpoint_until_the_log_says_durably_that_it_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut in between, a log without its first entries would have nothing to build upon."""

    async def scenario() -> None:
        await a_log_of_two_groups(tmp_path / "wal")
        async with opened(tmp_path / "wal") as wal:
            keeper, seen = storage_of(tmp_path, wal), list[int]()

            def erased(_: CheckpointStore, group_id: int) -> None:
                seen.append(group_id)
                assert wal.durable_lsn == wal.lsn > 0

            monkeypatch.setattr(CheckpointStore, "erase", erased)
            await keeper.erase(2)
            assert seen == [2]
            assert 2 not in wal.recovered

    asyncio.run(scenario())


def test_the_tombstone_is_on_disk_before_the_erase_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut in between, a node that joins again would vote as if it had promised nothing."""

    async def scenario() -> None:
        await a_log_of_two_groups(tmp_path / "wal")
        async with opened(tmp_path / "wal") as wal:
            keeper, erase, seen = storage_of(tmp_path, wal), wal.erase, list[GroupTombstone]()

            def erased(group_id: int) -> int:
                seen.append(Tombstones(tmp_path / "left").read(group_id))
                return erase(group_id)

            monkeypatch.setattr(wal, "erase", erased)
            term, last = wal.recovered[2].term, wal.recovered[2].entries[-1]
            await keeper.erase(2)
            assert seen == [GroupTombstone(term, last.term, last.index)]

    asyncio.run(scenario())
