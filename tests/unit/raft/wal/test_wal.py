"""The running log: a record that it calls durable is on disk, and after a failure of the disk none becomes durable."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from child import ended

from stockade.raft.wal.errors import WalCorrupt, WalFailed, WalLocked
from stockade.raft.wal.files import READ_FILES_MAX
from stockade.raft.wal.records import FILE_HEADER_BYTES, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES
from stockade.raft.wal.wal import Wal


class Log:
    """A log and its callbacks."""

    def __init__(self, directory: Path, file_bytes: int = 1 << 16, cache_bytes_max: int = 0) -> None:
        self.failures: list[BaseException] = []
        self.durable: list[int] = []
        self.changed = asyncio.Event()
        self.wal = Wal(directory, asyncio.get_running_loop(), self.fail, file_bytes, cache_bytes_max)
        self.wal.on_durable = self.note

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.changed.set()

    def note(self) -> None:
        self.durable.append(self.wal.durable_lsn)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def until_durable(self, lsn: int) -> None:
        await self.until(lambda: self.wal.durable_lsn >= lsn)


@asynccontextmanager
async def opened(directory: Path, file_bytes: int = 1 << 16, cache_bytes_max: int = 0) -> AsyncIterator[Log]:
    log = Log(directory, file_bytes, cache_bytes_max)
    try:
        yield log
    finally:
        await log.wal.close()


def payloads(wal: Wal, group_id: int = 1) -> list[bytes]:
    return [wal.read(entry.location) for entry in wal.recovered[group_id].entries]


def sizes(directory: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(directory.glob("*.wal"))]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Disk:
    """Stands between the log and the disk's fdatasync: counts calls, and holds them while ``gate`` is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self._fdatasync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self.fdatasync)

    def fdatasync(self, fd: int) -> None:
        self.calls += 1
        self.entered.release()
        self.gate.wait()
        self._fdatasync(fd)

    async def until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=20)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_record_is_durable_only_after_its_fdatasync_and_then_on_durable_is_called(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            disk.gate.clear()
            lsn, _ = log.wal.append(1, 1, 1, b"one")
            assert (lsn, log.wal.durable_lsn) == (1, 0)
            await disk.until_entered()
            assert (log.wal.durable_lsn, log.durable) == (0, [])
            disk.gate.set()
            await log.until_durable(1)
            assert log.durable == [1]

    asyncio.run(scenario())


def test_one_fdatasync_covers_all_records_appended_during_the_one_before(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            disk.gate.clear()
            log.wal.append(1, 1, 1, b"one")
            await disk.until_entered()
            for index in range(2, 51):
                log.wal.append(1, index, 1, b"more")
                await asyncio.sleep(0)
            disk.gate.set()
            await log.until_durable(50)
            assert (log.durable, disk.calls) == ([1, 50], 2)

    asyncio.run(scenario())


def test_all_that_is_appended_in_one_turn_of_the_loop_is_flushed_together(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            log.wal.save_vote(1, 1, "n1")
            log.wal.append(1, 1, 1, b"one")
            log.wal.append(2, 1, 1, b"another group's")
            await log.until_durable(3)
            assert (log.durable, disk.calls) == ([3], 1)

    asyncio.run(scenario())


def test_the_frames_of_a_turn_are_sent_before_the_flush_thread_is_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        steps: list[str] = []
        async with opened(tmp_path / "wal") as log:
            begin = log.wal._thread.begin

            def noted(*job: Any) -> None:
                steps.append("flush")
                begin(*job)

            monkeypatch.setattr(log.wal._thread, "begin", noted)
            log.wal.append(1, 2, 1, b"x")
            asyncio.get_running_loop().call_soon(steps.append, "frames")  # as a connection does after an append
            await log.until_durable(log.wal.lsn)
        assert steps == ["frames", "flush"]

    asyncio.run(scenario())


def test_records_are_read_back_before_and_after_they_are_flushed(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, file_bytes=300) as log:
            disk.gate.clear()
            contents = [bytes([i]) * i for i in range(20)]
            locations = [log.wal.append(1, 1 + i, 1, content)[1] for i, content in enumerate(contents)]
            assert [log.wal.read(location) for location in locations] == contents
            disk.gate.set()
            await log.until_durable(20)
            assert [log.wal.read(location) for location in locations] == contents
            assert [log.wal.size(location) for location in locations] == list(map(len, contents))

    asyncio.run(scenario())


def test_a_record_damaged_on_disk_is_not_returned(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            _, location = log.wal.append(1, 1, 1, b"precious")
            await log.until_durable(1)
            with (tmp_path / "0000000001.wal").open("r+b") as file:
                file.seek(FILE_HEADER_BYTES + RECORD_HEADER_BYTES)
                file.write(b"previous")
            with pytest.raises(WalCorrupt, match="read back is damaged"):
                log.wal.read(location)

    asyncio.run(scenario())


def test_reading_many_files_keeps_few_of_them_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, file_bytes=1) as log:
            locations = [log.wal.append(1, 1 + i, 1, b"x")[1] for i in range(2 * READ_FILES_MAX)]
            await log.until_durable(len(locations))
            before = open_files()
            assert [log.wal.read(location) for location in locations * 2] == [b"x"] * len(locations) * 2
            assert open_files() == before + READ_FILES_MAX

    asyncio.run(scenario())


def test_files_are_preallocated_and_grow_for_a_record_that_needs_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, file_bytes=4096) as log:
            log.wal.append(1, 1, 1, b"small")
            log.wal.append(1, 2, 1, bytes(5000))
            log.wal.append(1, 3, 1, b"small again")
            await log.until_durable(3)
            assert sizes(tmp_path) == [4096, FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 5000, 4096]

    asyncio.run(scenario())


def spied(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[tuple[str, str]]:
    """From now on, each call of these functions of ``os``: its name and that of the file."""
    calls: list[tuple[str, str]] = []

    def spy_on(name: str) -> None:
        real = getattr(os, name)

        def spy(fd: int, *rest: object) -> object:
            calls.append((name, Path(f"/proc/self/fd/{fd}").readlink().name))
            return real(fd, *rest)

        monkeypatch.setattr(os, name, spy)

    for name in names:
        spy_on(name)
    return calls


def test_a_new_file_and_its_name_are_durable_before_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = spied(monkeypatch, "fsync", "fdatasync", "pwrite")

    async def scenario() -> None:
        async with opened(tmp_path / "wal") as log:
            calls.clear()
            log.wal.append(1, 1, 1, b"one")
            await log.until_durable(1)

    asyncio.run(scenario())
    file = "0000000001.wal"
    created = [("pwrite", file), ("fsync", file), ("fsync", "wal")]
    counted = [("fsync", "identity.new"), ("fsync", "wal")]
    assert calls == [*created, *counted, ("pwrite", file), ("fdatasync", file)]


def test_a_disk_that_takes_few_bytes_at_a_time_gets_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:7], position))

    async def scenario() -> None:
        async with opened(tmp_path) as log:
            _, location = log.wal.append(1, 1, 1, bytes(range(100)))
            await log.until_durable(1)
            assert log.wal.read(location) == bytes(range(100))

    asyncio.run(scenario())


def test_pending_bytes_are_those_not_durable_yet(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            disk.gate.clear()
            log.wal.append(1, 1, 1, bytes(100))
            await disk.until_entered()
            log.wal.append(1, 2, 1, bytes(50))
            assert log.wal.pending_bytes == 150 + 2 * RECORD_HEADER_BYTES
            disk.gate.set()
            await log.until_durable(2)
            assert log.wal.pending_bytes == 0

    asyncio.run(scenario())


def test_an_entry_that_leaves_a_gap_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            wal = log.wal
            wal.append(1, 5, 1, b"the first may have any index")
            wal.append(1, 6, 1, b"")
            for wrong in (5, 6, 8):
                with pytest.raises(AssertionError, match=f"entry {wrong} of group 1 follows entry 6"):
                    wal.append(1, wrong, 1, b"")
            wal.truncate(1, 6)
            wal.append(1, 6, 2, b"")
            wal.truncate(1, 0)
            wal.append(1, 90, 2, b"")
            wal.truncate(1, 95)
            wal.append(1, 91, 2, b"")
            wal.erase(1)
            wal.append(1, 3, 2, b"")
        async with opened(tmp_path) as log:
            assert [entry.index for entry in log.wal.recovered[1].entries] == [3]
            with pytest.raises(AssertionError, match="entry 3 of group 1 follows entry 3"):
                log.wal.append(1, 3, 2, b"")
            log.wal.append(1, 4, 2, b"")

    asyncio.run(scenario())


def test_the_longest_payload_is_kept_and_one_byte_more_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            with pytest.raises(AssertionError):
                log.wal.append(1, 1, 1, bytes(PAYLOAD_BYTES_MAX + 1))
            log.wal.append(1, 1, 1, bytes(PAYLOAD_BYTES_MAX))
        async with opened(tmp_path) as log:
            assert payloads(log.wal) == [bytes(PAYLOAD_BYTES_MAX)]

    asyncio.run(scenario())


def test_a_closed_log_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    async def scenario() -> None:
        threads, descriptors = threading.active_count(), open_descriptors()
        for written in (False, True):
            async with opened(tmp_path / f"wal{written}") as log:
                if written:
                    log.wal.append(1, 2, 1, b"x")
        assert threading.active_count() <= threads
        assert open_descriptors() <= descriptors

    asyncio.run(scenario())


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_close_makes_all_durable_and_takes_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = Log(tmp_path)
        log.wal.append(1, 1, 1, b"one")
        await log.wal.close()
        assert log.durable == [1]
        with pytest.raises(WalFailed, match="closed"):
            log.wal.append(1, 2, 1, b"two")
        await log.wal.close()
        async with opened(tmp_path) as again:
            assert payloads(again.wal) == [b"one"]

    asyncio.run(scenario())


def failing(error_number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(error_number, os.strerror(error_number))

    return fail


@pytest.mark.parametrize(
    "function, error_number",
    [
        ("pwrite", errno.ENOSPC),
        ("pwrite", errno.EIO),
        ("fdatasync", errno.EIO),
        ("posix_fallocate", errno.ENOSPC),
        ("fsync", errno.EIO),
    ],
)
def test_after_a_failure_of_the_disk_nothing_is_durable_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, function: str, error_number: int
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, file_bytes=200) as log:
            log.wal.append(1, 1, 1, b"safe" * 20)
            await log.until_durable(1)
            with monkeypatch.context() as patch:
                patch.setattr(os, function, failing(error_number))
                _, location = log.wal.append(1, 2, 1, b"lost" * 20)  # needs a new file
                await log.until(lambda: bool(log.failures))
            calls = disk.calls
            with pytest.raises(WalFailed) as caught:
                log.wal.append(1, 3, 1, b"refused")
            assert caught.value.__cause__ is log.failures[0]
            with pytest.raises(WalFailed):
                log.wal.truncate(1, 1)
            with pytest.raises(WalFailed):
                log.wal.save_vote(1, 2, None)
            assert log.wal.read(location) == b"lost" * 20
        told = [(error.errno, error.filename) for error in log.failures if isinstance(error, OSError)]
        assert told == [(error_number, str(tmp_path / "0000000002.wal"))]
        assert (log.durable, log.wal.durable_lsn, disk.calls) == ([1], 1, calls)
        async with opened(tmp_path, file_bytes=200) as again:
            assert payloads(again.wal)[0] == b"safe" * 20

    asyncio.run(scenario())


def test_records_appended_during_a_failed_flush_are_never_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    disk = Disk(monkeypatch)

    async def scenario() -> None:
        disk.gate.clear()
        async with opened(tmp_path) as log:
            log.wal.append(1, 1, 1, b"first")
            await disk.until_entered()
            log.wal.append(1, 2, 1, b"second")
            disk.gate.set()
            await log.until(lambda: bool(log.failures))
        assert (disk.calls, len(log.failures), log.durable) == (1, 1, [])

    asyncio.run(scenario())


def test_a_log_whose_recovered_files_cannot_be_synced_does_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "wal") as log:
            log.wal.append(1, 1, 1, b"perhaps only in the kernel's cache")
        real = os.fsync
        inode = (tmp_path / "wal" / "0000000001.wal").stat().st_ino
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda fd: failing(errno.EIO)() if os.fstat(fd).st_ino == inode else real(fd))
            with pytest.raises(OSError, match="Input/output"):
                Log(tmp_path / "wal")
        async with opened(tmp_path / "wal") as log:
            assert len(payloads(log.wal)) == 1

    asyncio.run(scenario())


def test_the_last_file_is_read_from_the_disk_and_not_from_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fdatasync the kernel may remember, as clean, what the disk never got."""

    async def scenario() -> None:
        async with opened(tmp_path, file_bytes=1) as log:
            log.wal.append(1, 1, 1, b"in a file")
            log.wal.append(1, 2, 1, b"in the last file")
        calls = spied(monkeypatch, "fsync", "posix_fadvise", "ftruncate")
        async with opened(tmp_path):
            of_the_last_file = [name for name, file in calls if file == "0000000002.wal"]
            assert of_the_last_file == ["fsync", "posix_fadvise", "ftruncate", "fsync"]

    asyncio.run(scenario())


def test_a_second_log_on_the_same_folder_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path):
            with pytest.raises(WalLocked, match=rf"{tmp_path} is in use by another process \(id {os.getpid()}\)"):
                Log(tmp_path)
        async with opened(tmp_path):
            pass

    asyncio.run(scenario())


WRITER = """
import asyncio, sys
from pathlib import Path
from stockade.raft.wal.wal import Wal

async def main():
    wal = Wal(Path(sys.argv[1]), asyncio.get_running_loop(), print, file_bytes=20_000)
    index = 0
    wal.on_durable = lambda: print(wal.durable_lsn, flush=True)
    while True:
        for index in range(index + 1, index + 8):
            wal.append(1, index, 1, str(index).encode() * 100)
        while wal.pending_bytes > 50_000:  # as the groups of a node do: what waits for the disk is in memory
            await asyncio.sleep(0)

asyncio.run(main())
"""


@pytest.mark.processes
def test_a_killed_process_lets_go_of_the_folder_and_loses_nothing_it_called_durable(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)) as writer:
        assert writer.stdout is not None
        durable = 0
        while durable < 2000:
            durable = int(writer.stdout.readline())

        async def open_meanwhile() -> None:
            with pytest.raises(WalLocked, match=rf"id {writer.pid}"):
                Log(tmp_path)

        asyncio.run(open_meanwhile())
        writer.send_signal(signal.SIGKILL)
        durable = max([durable, *map(int, writer.stdout.read().splitlines())])

    async def recover() -> None:
        async with opened(tmp_path) as log:
            found = payloads(log.wal)
            assert len(found) >= durable
            assert found == [str(index).encode() * 100 for index in range(1, len(found) + 1)]

    asyncio.run(recover())


def test_a_waiter_is_called_once_when_all_that_was_appended_before_is_on_disk(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            called: list[tuple[str, int]] = []
            first, second = (lambda name=name: called.append((name, log.wal.durable_lsn)) for name in ("1", "2"))
            disk.gate.clear()
            log.wal.append(1, 1, 1, b"one")
            log.wal.wake_when_durable(first)
            await disk.until_entered()
            log.wal.append(1, 2, 1, b"two")
            log.wal.wake_when_durable(first)  # waits already
            log.wal.wake_when_durable(second)
            assert called == []
            disk.gate.set()
            await log.until_durable(2)
            log.wal.append(1, 3, 1, b"three")
            await log.until_durable(3)
            assert called == [("1", 1), ("2", 2)]

    asyncio.run(scenario())


def test_a_waiter_that_is_called_may_wait_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            called: list[int] = []

            def wake() -> None:
                called.append(log.wal.durable_lsn)
                if len(called) == 1:
                    log.wal.append(1, 2, 1, b"two")
                    log.wal.wake_when_durable(wake)

            log.wal.append(1, 1, 1, b"one")
            log.wal.wake_when_durable(wake)
            await log.until_durable(2)
            assert called == [1, 2]

    asyncio.run(scenario())


class ByHand:
    """In the place of the thread: a flush ends when the test says so."""

    def __init__(self, log: Wal) -> None:
        self.flushed: Callable[[BaseException | None], None] | None = None
        self.begun = asyncio.Event()
        self._write = log._writer.write
        self._runs: Any = ()

    def begin(self, runs: Any, flushed: Callable[[BaseException | None], None]) -> None:
        assert self.flushed is None, "one at a time"
        self._runs, self.flushed = runs, flushed
        self.begun.set()

    def end(self) -> None:
        flushed, self.flushed = self.flushed, None
        assert flushed is not None
        self._write(self._runs)
        flushed(None)

    def close(self) -> None:
        assert self.flushed is None, "the thread is told to end while a flush is under way"


def test_a_log_that_closes_during_a_flush_waits_for_the_next_one_too(tmp_path: Path) -> None:
    """Otherwise thread and event loop could wait for each other for ever: a node that stops under load hung."""

    async def main() -> None:
        log = Log(tmp_path)
        log.wal._thread.close()
        by_hand = log.wal._thread = ByHand(log.wal)  # type: ignore[assignment]
        log.wal.append(1, 1, 1, b"one")
        await by_hand.begun.wait()
        log.wal.append(1, 2, 1, b"two")
        closing = asyncio.ensure_future(log.wal.close())
        for _ in range(2):
            await asyncio.sleep(0)  # the one who closes waits
            by_hand.end()
        await closing
        assert log.wal.durable_lsn == 2

    asyncio.run(main())
