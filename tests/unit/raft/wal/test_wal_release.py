"""Files that no group needs leave the log, and no vote or entry that counts goes with them, at any moment of death."""

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.raft.wal.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from stockade.raft.wal.wal import Wal

PER_FILE = 4
FILE_BYTES = FILE_HEADER_BYTES + PER_FILE * (RECORD_HEADER_BYTES + 10)


def fail(error: BaseException) -> None:
    raise AssertionError("the log failed") from error


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Wal]:
    wal = Wal(directory, asyncio.get_running_loop(), fail, FILE_BYTES, cache_bytes_max=0)
    try:
        yield wal
    finally:
        await wal.close()


def append(wal: Wal, group_id: int, indexes: range) -> None:
    for index in indexes:
        wal.append(group_id, index, 1, b"%010d" % index)


async def released(wal: Wal) -> dict[int, int]:
    gone: dict[int, int] = {}
    await wal.release(gone.__setitem__)
    return gone


def numbers(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.wal"))


def indexes(wal: Wal, group_id: int) -> list[int]:
    entries = wal.recovered[group_id].entries
    assert [wal.read(entry.location) for entry in entries] == [b"%010d" % entry.index for entry in entries]
    return [entry.index for entry in entries]


def test_files_whose_entries_are_all_covered_go_and_the_rest_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            append(wal, 1, range(2, 22))
            assert wal.disk_bytes == 5 * FILE_BYTES
            wal.covered(1, 12)
            assert await released(wal) == {1: 9}
            assert numbers(tmp_path)[0] == 3
            wal.covered(1, 13)
            assert await released(wal) == {1: 13}
            assert numbers(tmp_path)[0] == 4
            assert wal.disk_bytes == 3 * FILE_BYTES  # the repeated state needed a new one
            assert await released(wal) == {}
        async with opened(tmp_path) as wal:
            assert indexes(wal, 1) == list(range(14, 22))
            assert wal.recovered[1].covered == 13
            append(wal, 1, range(22, 40))
            wal.covered(1, 39)
            assert await released(wal) == {1: 37}

    asyncio.run(scenario())


def test_a_group_without_a_checkpoint_pins_the_files_from_its_first_entry_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            append(wal, 1, range(2, 10))
            append(wal, 2, range(2, 3))
            append(wal, 1, range(10, 30))
            wal.covered(1, 29)
            assert wal.pinning_group() == 2
            assert await released(wal) == {1: 9}
            assert (wal.pinning_group(), numbers(tmp_path)[0]) == (2, 3)
        async with opened(tmp_path) as wal:
            assert wal.pinning_group() == 2  # though the group is not open
            wal.covered(2, 2)
            assert wal.pinning_group() is None
            assert (await released(wal))[2] == 2

    asyncio.run(scenario())


def test_a_groups_last_entry_pins_its_file_until_a_checkpoint_covers_that_one_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            append(wal, 1, range(2, 4))
            append(wal, 2, range(2, 30))
            wal.covered(2, 29)
            wal.covered(1, 2)
            assert wal.pinning_group() == 1
            assert await released(wal) == {}
        async with opened(tmp_path) as wal:
            assert indexes(wal, 1) == [2, 3]
            wal.covered(2, 29)
            wal.covered(1, 3)
            assert wal.pinning_group() is None

    asyncio.run(scenario())


def test_terms_and_votes_outlive_the_files_they_were_written_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            wal.save_vote(1, 7, "n3")
            wal.save_vote(2, 9, None)
            wal.save_vote(3, 4, "n1")
            wal.erase(3)
            append(wal, 4, range(2, 30))
            wal.covered(4, 29)
            assert await released(wal) == {4: 25}
            assert numbers(tmp_path)[0] > 3
        for _ in range(2):
            async with opened(tmp_path) as wal:
                found = {key: (group.term, group.voted_for) for key, group in wal.recovered.items()}
                assert found == {1: (7, "n3"), 2: (9, None), 4: (1, None)}
                await wal.release(lambda *_: None)

    asyncio.run(scenario())


def test_truncated_reset_and_erased_entries_pin_no_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            for group_id in (1, 2, 3):
                append(wal, group_id, range(2, 10))
            wal.truncate(1, 2)
            wal.reset(2, 50, 1)
            wal.erase(3)
            append(wal, 1, range(2, 4))
            append(wal, 2, range(51, 53))
            await released(wal)
            assert numbers(tmp_path)[0] >= 6
        async with opened(tmp_path) as wal:
            assert (indexes(wal, 1), indexes(wal, 2)) == ([2, 3], [51, 52])
            assert 3 not in wal.recovered
            assert wal.recovered[2].covered == 50

    asyncio.run(scenario())


def test_leftovers_of_a_removal_are_removed_at_the_next_opening(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            append(wal, 1, range(2, 22))
            await wal.until_durable(20)
            kept = (tmp_path / "0000000001.wal").read_bytes()
            wal.covered(1, 13)
            await released(wal)
        (tmp_path / "0000000001.wal").write_bytes(kept)
        async with opened(tmp_path) as wal:
            assert indexes(wal, 1) == list(range(14, 22))
        assert 1 not in numbers(tmp_path)

    asyncio.run(scenario())


def test_a_removed_file_is_not_kept_alive_by_its_reader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            locations = [wal.append(1, index, 1, bytes(10))[1] for index in range(2, 22)]
            await wal.until_durable(20)
            assert [wal.read(location) for location in locations] == [bytes(10)] * 20
            wal.covered(1, 21)
            await released(wal)
            held = [str(fd.readlink()) for fd in descriptors() if fd.is_symlink()]
            gone = [path for path in held if ".spare" in path or "(deleted)" in path]
            assert [path for path in gone if str(tmp_path) in path] == []

    asyncio.run(scenario())


def descriptors() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


Snapshot = Callable[[], None]


@contextmanager
def before_each_step(snapshot: Snapshot) -> Iterator[None]:
    """Call ``snapshot`` before and after everything that changes a disk; threads take turns."""
    turn = threading.Lock()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in [(os, "fsync"), (os, "fdatasync"), (os, "pwrite"), (Path, "unlink"), (Path, "rename")]:
            real: Any = getattr(owner, name)

            def step(*arguments: Any, real: Any = real) -> Any:
                with turn:
                    snapshot()
                    result = real(*arguments)
                    snapshot()
                    return result

            patch.setattr(owner, name, step)
        yield


GROUPS = st.integers(1, 3)
STEPS = st.one_of(
    st.tuples(st.just("append"), GROUPS, st.integers(1, 6)),
    st.tuples(st.just("vote"), GROUPS, st.integers(1, 3)),
    st.tuples(st.just("cover"), GROUPS, st.integers(0, 5)),
    st.tuples(st.just("release"), GROUPS, st.just(0)),
)


class Model:
    """What has to be found again: votes, and the entries that are not covered."""

    def __init__(self) -> None:
        self.last = dict.fromkeys((1, 2, 3), 1)
        self.covered = dict.fromkeys((1, 2, 3), 1)
        self.votes: dict[int, tuple[int, str]] = {}

    def perform(self, wal: Wal, kind: str, group_id: int, count: int) -> None:
        if kind == "append":
            term = self.votes.get(group_id, (0, ""))[0]
            for index in range(self.last[group_id] + 1, self.last[group_id] + 1 + count):
                wal.append(group_id, index, term, b"%010d" % index)
            self.last[group_id] += count
        elif kind == "vote":
            term = self.votes.get(group_id, (0, ""))[0] + 1
            self.votes[group_id] = term, f"n{count}"
            wal.save_vote(group_id, *self.votes[group_id])
        else:
            index = max(self.covered[group_id], self.last[group_id] - count)
            if index > 1:
                self.covered[group_id] = index
                wal.covered(group_id, index)

    def check(self, wal: Wal) -> None:
        for group_id in (1, 2, 3):
            group = wal.recovered.get(group_id)
            needed = list(range(self.covered[group_id] + 1, self.last[group_id] + 1))
            if group is None:
                assert (needed, group_id in self.votes) == ([], False)
                continue
            found = indexes(wal, group_id)
            assert found == list(range(self.last[group_id] + 1 - len(found), self.last[group_id] + 1))
            assert len(found) >= len(needed)
            assert not found or found[0] <= max(group.covered, 1) + 1, "entries are gone that nothing covers"
            assert group.covered <= self.covered[group_id]
            if group_id in self.votes:
                assert (group.term, group.voted_for) == self.votes[group_id]


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_dying_at_any_step_of_a_removal_loses_nothing_that_is_not_covered(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("wal")

    async def scenario() -> list[Path]:
        model, lsn = Model(), 0
        async with opened(directory / "wal") as wal:
            for step in steps:
                if step[0] != "release":
                    model.perform(wal, *step)
            lsn = wal.save_vote(9, 1, None)
            await wal.until_durable(lsn)
            copies: list[Path] = []

            def snapshot() -> None:
                copies.append(directory / f"copy{len(copies)}")
                shutil.copytree(directory / "wal", copies[-1])

            with before_each_step(snapshot):
                await released(wal)
                wal.append(8, 2, 1, bytes(FILE_BYTES // 2))  # two of them do not fit into one file
                await wal.until_durable(wal.append(8, 3, 1, bytes(FILE_BYTES // 2))[0])
        for copy in [*copies, directory / "wal"]:
            async with opened(copy) as again:
                model.check(again)
        return copies

    asyncio.run(scenario())
    shutil.rmtree(directory)


def test_a_log_that_was_reset_needs_its_checkpoint_also_when_the_record_of_that_is_gone(tmp_path: Path) -> None:
    """Without the checkpoint a start would take the group for one that holds nothing yet."""

    async def scenario() -> None:
        async with opened(tmp_path / "wal") as wal:
            append(wal, 1, range(2, 4))
            wal.reset(1, 9, 1)
            append(wal, 2, range(2, 40))
        async with opened(tmp_path / "wal") as wal:
            assert (wal.recovered[1].covered, indexes(wal, 1)) == (9, [])
            wal.covered(2, 38)
            await released(wal)
            assert numbers(tmp_path / "wal")[0] > 1
        async with opened(tmp_path / "wal") as wal:
            assert wal.recovered[1].covered == 9
            wal.reset(1, 20, 1)
            wal.save_vote(1, 1, "n1")
            append(wal, 2, range(40, 80))
            wal.covered(2, 78)
            await released(wal)
        async with opened(tmp_path / "wal") as wal:
            assert wal.recovered[1].covered == 20

    asyncio.run(scenario())
