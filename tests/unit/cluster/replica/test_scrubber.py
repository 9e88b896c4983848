"""Whatever lies on the disk of a node is read again and again; other bytes than were written stop the node."""

import asyncio
import errno
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from weakref import ref

import pytest

from stockade.cluster.replica import scrubber
from stockade.cluster.replica.scrubber import Scrubber
from stockade.partition.commands import Append
from stockade.partition.log.index import SegmentIndex
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import batch_from_columns
from stockade.raft.wal.errors import DiskRefused

FAST = 1 << 30
SEGMENTS = 4


class Held:
    """A replica, as far as it is looked at, and the node that has it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.segments = SegmentLog(1)  # a batch a segment
        self.segments.begin(directory)
        self.is_held = True
        self.looks = 0
        self.before_look: Callable[[], None] = lambda: None
        for number in range(SEGMENTS + 1):
            batch = batch_from_columns([None], [b"%d" % number * 900], None, None, now_ms=1, batch_bytes_max=1 << 20)
            self.segments.append(Append(batch.message, batch.count, batch.crc, 1, batch.max_timestamp_ms), 0)

    @property
    def log(self) -> "Held":
        return self

    @property
    def full_segments(self) -> Sequence[SegmentIndex]:
        self.looks += 1
        self.before_look()
        return list(self.segments.full_segments)

    def all(self) -> list["Held"]:
        return [self] if self.is_held else []

    def path(self, number: int, suffix: str = ".arrow") -> Path:
        return Path(self.segments.full_segments[number].segment).with_suffix(suffix)


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path / "files")


def inspect(held: Held, monkeypatch: pytest.MonkeyPatch, rounds: int = 2) -> None:
    """Inspect until so many rounds are over; raises what ended them before."""
    monkeypatch.setattr(scrubber, "REST_S", 0.0)

    async def run() -> None:
        work = asyncio.create_task(Scrubber(held, FAST).run())  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            while not work.done() and held.looks <= rounds:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error

    asyncio.run(run())


def flip(path: Path, position: int = 700) -> None:
    content = bytearray(path.read_bytes())
    content[min(position, len(content) - 1)] ^= 1
    path.write_bytes(content)


def test_whole_segments_are_found_whole_round_after_round(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    inspect(held, monkeypatch, rounds=5)


@pytest.mark.parametrize("suffix", [".arrow", ".index"])
@pytest.mark.parametrize("number", range(SEGMENTS))
def test_a_flipped_bit_anywhere_is_found_and_named(
    held: Held, monkeypatch: pytest.MonkeyPatch, number: int, suffix: str
) -> None:
    flip(held.path(number, suffix))
    with pytest.raises(DiskRefused, match=f"{held.path(number).stem}.*stockade rebuild"):
        inspect(held, monkeypatch)


def test_a_missing_segment_is_found(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    held.path(2).unlink()
    with pytest.raises(DiskRefused):
        inspect(held, monkeypatch)


def test_a_segment_trimmed_during_the_scrub_is_no_damage(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def trim() -> None:
        if held.segments.log_start < SEGMENTS:
            held.path(0).unlink()
            held.segments.trim(held.segments.log_start + 1)

    held.before_look = trim
    inspect(held, monkeypatch, rounds=20)
    assert held.segments.log_start == SEGMENTS


def test_a_segment_dropped_during_a_round_leaves_the_memory(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round over a large disk takes days, and had all replicas of topics that were deleted meanwhile."""
    segments = [ref(segment) for segment in held.full_segments]
    alive = list[int]()

    def drop_and_take(batches: Iterator[int], take: Callable[[Iterator[int]], int] = scrubber._take) -> int:
        held.segments.trim(held.segments.log_end - 1)
        alive.append(sum(each() is not None for each in segments))
        return take(batches)

    monkeypatch.setattr(scrubber, "_take", drop_and_take)
    gc.disable()
    try:
        inspect(held, monkeypatch, rounds=1)
    finally:
        gc.enable()
    assert alive[0] == 1, "the one that is looked at"


def test_a_segment_erased_with_its_replica_is_no_damage(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def erase_and_take(batches: Iterator[int], take: Callable[[Iterator[int]], int] = scrubber._take) -> int:
        held.is_held = False
        for number in range(SEGMENTS):
            held.path(number).unlink(missing_ok=True)
        return take(batches)

    monkeypatch.setattr(scrubber, "_take", erase_and_take)
    monkeypatch.setattr(scrubber, "REST_S", 0.0)

    async def run() -> None:
        work = asyncio.create_task(Scrubber(held, FAST).run())  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            while held.is_held:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
        assert not work.done()
        work.cancel()

    asyncio.run(run())


@pytest.mark.parametrize(("code", "is_damage"), [(errno.EMFILE, False), (errno.EIO, True)])
def test_a_lack_of_descriptors_or_memory_is_no_damage(
    held: Held, monkeypatch: pytest.MonkeyPatch, code: int, is_damage: bool
) -> None:
    def take(batches: Iterator[int]) -> int:
        raise OSError(code, "no")

    monkeypatch.setattr(scrubber, "_take", take)
    monkeypatch.setattr(scrubber, "REST_S", 0.0)

    async def run() -> None:
        work = asyncio.create_task(Scrubber(held, FAST).run())  # type: ignore[arg-type]
        if is_damage:
            with pytest.raises(DiskRefused):
                await work
            return
        async with asyncio.timeout(30):
            rounds = held.looks + 3
            while not work.done() and held.looks < rounds:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(0)
        assert not work.done()
        work.cancel()

    asyncio.run(run())
