"""A disk that does not end a write, and reports no error, fails the log; one that is only slow does not."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from waiting import until

from stockade.raft.wal.errors import WalFailed, WalLocked, WalStalled
from stockade.raft.wal.records import PAGE_BYTES
from stockade.raft.wal.wal import STALL_BYTES_PER_S, Wal

STALL_S = 1.0
"""Long enough that a busy machine's own disk is not taken to hang."""


class HeldDisk:
    """Syncs do not end while the disk is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._free = Event()
        self._free.set()
        self._held: list[int] = []
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._held_sync)

    def _held_sync(self, fd: int) -> None:
        self._held.append(fd)
        self._free.wait()
        self._sync(fd)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._free.clear()
        self._held.clear()
        try:
            yield
        finally:
            self._free.set()

    @property
    def is_waiting(self) -> bool:
        return bool(self._held) and not self._free.is_set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> HeldDisk:
    return HeldDisk(monkeypatch)


async def opened(folder: Path, failures: list[BaseException]) -> Wal:
    """A log with a durable record of more than a page, so that the next one is written into blocks that are there."""
    log = Wal(folder, asyncio.get_running_loop(), failures.append, stall_s=STALL_S)
    log.append(1, 1, 1, bytes(PAGE_BYTES))
    await log.all_durable()
    return log


async def ended(log: Wal) -> None:
    """The disk goes on after all: the thread ends its write, tells the log of it, and releases what it held."""
    await asyncio.to_thread(log._thread.close)
    log._writer.close()
    os.close(log._lock)


def test_a_write_that_does_not_end_fails_the_log_and_keeps_its_lock(tmp_path: Path, disk: HeldDisk) -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        log = await opened(tmp_path, failures)
        with disk.held():
            log.append(1, 2, 1, b"never")
            with pytest.raises(WalFailed):
                await log.all_durable()
            assert [type(failure) for failure in failures] == [WalStalled]
            assert "has not ended a write for 1 s" in str(failures[0])
            with pytest.raises(WalFailed):
                log.append(1, 3, 1, b"later")
            await log.close()  # waits for no thread that waits for the disk
            with pytest.raises(WalLocked):  # which may still write
                Wal(tmp_path, asyncio.get_running_loop(), failures.append)
        await ended(log)
        assert (log.durable_lsn, len(failures)) == (1, 1)

    asyncio.run(scenario())


def test_a_log_that_closes_while_its_disk_hangs_closes_when_the_disk_has_failed(tmp_path: Path, disk: HeldDisk) -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        log = await opened(tmp_path, failures)
        with disk.held():
            log.append(1, 2, 1, b"never")
            await log.close()
            assert [type(failure) for failure in failures] == [WalStalled]
        await ended(log)

    asyncio.run(scenario())


def test_a_large_write_may_take_longer(tmp_path: Path, disk: HeldDisk) -> None:
    """A disk that takes 64 KiB a second is slow, and does not hang."""

    async def scenario() -> None:
        failures: list[BaseException] = []
        log = await opened(tmp_path, failures)
        with disk.held():
            log.append(1, 2, 1, bytes(2 * STALL_BYTES_PER_S))
            began = time.monotonic()
            await until(lambda: bool(failures) or time.monotonic() > began + 2 * STALL_S)
            assert not failures
            await until(lambda: bool(failures))  # two seconds later than a small one
            assert time.monotonic() - began >= STALL_S + 2.0
        await ended(log)

    asyncio.run(scenario())


def test_a_signal_that_the_thread_of_the_log_gets_does_not_end_it(tmp_path: Path) -> None:
    """As SIGUSR1, which switches a node's level of logs, when the main thread has another signal to handle: the log
    stalled, and the disk was said to hang.
    """

    async def scenario() -> None:
        failures: list[BaseException] = []
        log = await opened(tmp_path, failures)
        thread = log._thread._thread
        assert thread is not None
        assert thread.ident is not None
        stat = Path(f"/proc/self/task/{thread.native_id}/stat")
        for index in range(2, 12):
            await until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
            await asyncio.sleep(0)  # the handler runs
            log.append(1, index, 1, b"written all the same")
            await log.all_durable()
        await log.close()
        assert not failures

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        asyncio.run(scenario())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_disk_is_not_at_fault_while_the_process_stands_still(tmp_path: Path, disk: HeldDisk) -> None:
    """After SIGSTOP, or in a machine that was frozen, a write has taken as long as the pause."""

    async def scenario() -> None:
        failures: list[BaseException] = []
        log = await opened(tmp_path, failures)
        with disk.held():
            log.append(1, 2, 1, b"slept through")
            await until(lambda: disk.is_waiting)
            began = time.monotonic()
            while time.monotonic() < began + 3 * STALL_S:  # the loop stands still, too
                pass
        await log.all_durable()
        assert not failures
        await log.close()

    asyncio.run(scenario())
