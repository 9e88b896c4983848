"""A log with tiers answers every read as one without: by offset, by time, from its end."""

import asyncio
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from waiting import until

from stockade.cluster.tiered import cache, objects
from stockade.cluster.tiered import log as tiered_log
from stockade.cluster.tiered import store as store_module
from stockade.partition.commands import Stamp
from stockade.partition.errors import OffsetOutOfRange, TieredStoreUnavailable
from stockade.partition.log.interface import Slice
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import STREAM_START

from .tiers import FOLDER, Tiered, command, path_of, store_at

TIMES = st.lists(st.integers(0, 6), min_size=1, max_size=4)
BATCHES = st.lists(st.tuples(TIMES, st.integers(1, 400), st.booleans()), min_size=1, max_size=14)
SIZE = len(command(0, [1]).message)


def content(found: Slice) -> object:
    """All that an answer is made of; where it lies may differ."""
    batches = [structs.replace(each, segment="", position=0) for each in found.batches]
    bounds = (found.base_offset, found.next_offset, found.log_start, found.log_end, found.size)
    return batches, found.messages(), bounds


async def same(plain: SegmentLog, tiered: Tiered, max_bytes: int) -> None:
    assert (plain.log_start, plain.log_end) == (tiered.log.log_start, tiered.log.log_end)
    for offset in range(plain.log_start, plain.log_end + 1):
        assert content(await tiered.whole.read(offset, max_bytes)) == content(plain.read(offset, max_bytes))
    for time in (None, *range(8)):
        assert await tiered.whole.find_timestamp(time) == plain.find_timestamp(time), time
    for count in range(plain.log_end - plain.log_start + 2):
        assert content(await tiered.whole.tail(count)) == content(plain.tail(count))


@settings(max_examples=60, deadline=None)
@given(
    batches=BATCHES, tiered=st.floats(0, 1), dropped=st.floats(0, 1), trimmed=st.floats(0, 1), most=st.integers(1, 5)
)
def test_a_log_with_tiers_answers_every_read_as_one_without(
    batches: list[tuple[list[int], int, bool]], tiered: float, dropped: float, trimmed: float, most: int
) -> None:
    async def scenario(root: Path) -> None:
        limit = len(STREAM_START) + 2 * SIZE
        (root / "plain").mkdir()
        plain, store = SegmentLog(limit), store_at(root)
        plain.begin(root / "plain")
        other = Tiered(root / "tiered", store, limit)
        for number, (times, size, is_stamped) in enumerate(batches):
            one = command(number, times, b"x" * size, Stamp(7, 1, number) if is_stamped else None)
            for log in (plain, other.log):
                log.append(one, number)
            if number < tiered * len(batches):
                await other.upload()
        other.log.drop_local(int(dropped * other.tier.end))
        before = int(trimmed * plain.log_end)
        plain.trim(before)
        other.trim(before)
        await same(plain, other, most * SIZE)
        first = other.tier.objects[0].log_bytes if other.tier.objects else 0
        kept = other.whole.kept_bytes
        assert plain.kept_bytes <= kept <= plain.kept_bytes + (first if trimmed else 0), "each byte counts once"
        for limit in range(0, 12 * SIZE, SIZE // 2):
            assert other.whole.keeps_at_most(limit) == (kept <= limit)
            for age in (-1, 8):
                begin = plain.retained_from(1010, age, limit)
                assert other.log.retained_from(1010, age, limit, *other.whole.older) == begin, "each byte counts once"
        await other.tier_all()
        await same(plain, other, most * SIZE)
        for log in (plain, other.log):
            log.close()
        store.close()

    with tempfile.TemporaryDirectory() as root:
        asyncio.run(scenario(Path(root)))


def test_an_object_across_the_local_start_counts_once_for_retention(tmp_path: Path) -> None:
    """Segments of the leader that uploaded are larger than those here: segment_bytes_max is each node's own."""

    async def scenario() -> None:
        store = store_at(tmp_path)
        leader = Tiered(tmp_path / "leader", store, len(STREAM_START) + 3 * SIZE)
        other = Tiered(tmp_path / "other", store, len(STREAM_START) + 2 * SIZE)
        for number in range(12):
            for log in (leader.log, other.log):
                log.append(command(number, [number]), 0)
        await leader.tier_all()
        other.tier.load(leader.tier.save())
        other.log.drop_local(4)
        assert [each.end for each in other.tier.objects][:2] == [3, 6]
        older, whole = other.whole.older, 12 * SIZE + 6 * len(STREAM_START)
        assert (older.size, [each.next_offset for each in older.parts]) == (other.tier.objects[0].log_bytes, [3])
        assert other.log.retained_from(1010, -1, whole, *other.whole.older) == 0
        assert other.log.retained_from(1010, -1, whole - 3 * SIZE, *other.whole.older) == 3

    asyncio.run(scenario())


async def filled(root: Path, count: int = 12, cache_bytes: int = 1 << 30, value: bytes = b"v") -> Tiered:
    """Segments of two batches with two records each; all but the last are in the store alone."""
    tiered = Tiered(root / "log", store_at(root, cache_bytes), len(STREAM_START) + 2 * len(command(0, [1, 2]).message))
    for number in range(count):
        tiered.log.append(command(number, [number, number], value), 0)
    await tiered.tier_all()
    assert tiered.log.local_start == 2 * count - 4
    return tiered


def test_records_trimmed_while_their_object_is_fetched_are_not_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        reading = asyncio.create_task(tiered.whole.read(1, 100))
        await asyncio.sleep(0)
        tiered.trim(6)
        with pytest.raises(OffsetOutOfRange) as refused:
            await reading
        assert refused.value.fields["log_start"] == 6

    asyncio.run(scenario())


def test_a_search_goes_on_in_objects_whose_local_files_go_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = Tiered(tmp_path / "log", store_at(tmp_path), len(STREAM_START) + 2 * len(command(0, [1]).message))
        for number, time in enumerate([9, 1, 1, 1, 9, 1, 1, 1]):
            tiered.log.append(command(number, [time]), 0)
        while await tiered.upload() is not None:
            pass
        tiered.log.drop_local(2)
        tiered.trim(1)  # the first object has the time in its index still, and no record of it
        searching = asyncio.create_task(tiered.whole.find_timestamp(5))
        await asyncio.sleep(0)
        tiered.log.drop_local(6)
        assert await searching == (4, 9)

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer", "missing", "another", "forged"])
def test_other_bytes_than_were_stored_are_never_served(tmp_path: Path, damage: str) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        item, other = tiered.tier.objects[1], tiered.tier.objects[2]
        path = path_of(tmp_path / "store", item)
        whole = path.read_bytes()
        match damage:
            case "flipped":
                path.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
            case "cut":
                path.write_bytes(whole[:-1])
            case "longer":
                path.write_bytes(whole + b"\0")
            case "missing":
                path.unlink()
            case "forged":  # whole in itself, and at the same offsets
                forged = await filled(tmp_path / "forged", value=b"w")
                path.write_bytes(path_of(tmp_path / "forged" / "store", forged.tier.objects[1]).read_bytes())
            case _:
                path.write_bytes(path_of(tmp_path / "store", other).read_bytes())
        with pytest.raises(TieredStoreUnavailable, match=f" {FOLDER}/{path.name} is not as it was stored") as refused:
            await tiered.whole.read(item.first, 1 << 20)
        assert refused.value.fields["store"] == str(tmp_path / "store")
        with pytest.raises(TieredStoreUnavailable):
            await tiered.whole.read(0, 1 << 20)  # an answer that would have a hole is none
        assert (await tiered.whole.read(0, 10)).next_offset == 2
        path.write_bytes(whole)
        assert (await tiered.whole.read(item.first, 1 << 20)).next_offset == 24
        assert tiered.store.counts.read_failed == 2

    asyncio.run(scenario())


def test_a_node_without_the_store_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        tiered.whole.store = None
        with pytest.raises(TieredStoreUnavailable, match=r"no \[tiered\] place"):
            await tiered.whole.read(0, 100)
        assert (await tiered.whole.read(tiered.log.local_start, 1 << 20)).next_offset == 24

    asyncio.run(scenario())


def test_an_object_is_an_arrow_stream_for_readers_of_zstd(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        item = tiered.tier.objects[1]
        stream = pa.input_stream(str(path_of(tmp_path / "store", item)), compression="zstd")
        table = pa.ipc.open_stream(stream).read_all()
        assert table.num_rows == item.end - item.first
        assert table.column("timestamp").cast("int64").to_pylist() == [2, 2, 3, 3]

    asyncio.run(scenario())


def test_a_large_segment_becomes_several_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(objects, "OBJECT_BYTES_MAX", 2 * SIZE)
        tiered = Tiered(tmp_path / "log", store_at(tmp_path), len(STREAM_START) + 5 * SIZE)
        for number in range(12):
            tiered.log.append(command(number, [number]), 0)
        await tiered.tier_all()
        assert [each.end for each in tiered.tier.objects] == [2, 4, 5, 7, 9, 10]
        assert tiered.log.local_start == 10
        assert (await tiered.whole.read(3, 1 << 20)).next_offset == 12

    asyncio.run(scenario())


def test_a_search_whose_object_leaves_the_cache_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        await tiered.whole.read(0, 1)
        monkeypatch.setattr(cache, "_is_whole", lambda _: True)  # they go when it was found
        for path in (tmp_path / "data" / "tiered" / "cache").glob("*.arrow"):
            path.unlink()
        with pytest.raises(TieredStoreUnavailable, match="left the cache"):
            await tiered.whole.find_timestamp(0)

    asyncio.run(scenario())


def test_a_read_whose_object_leaves_the_cache_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        await tiered.store.segment(FOLDER, tiered.tier.objects[0])
        monkeypatch.setattr(cache, "_is_whole", lambda _: True)  # they go when it was found
        for path in (tmp_path / "data" / "tiered" / "cache").iterdir():
            path.unlink()
        for reading in (tiered.whole.read(0, 1), tiered.whole.tail(24)):
            with pytest.raises(TieredStoreUnavailable, match="left the cache"):
                await reading

    asyncio.run(scenario())


@pytest.mark.parametrize("suffix", [".arrow", ".index"])
@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
def test_an_object_whose_file_in_the_cache_was_removed_or_is_damaged_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, how: str
) -> None:
    """An operator who makes room removes it, without a restart of the node; or a bit of the disk flips."""
    monkeypatch.setattr(store_module, "CHECK_S", 0.0)

    async def scenario() -> None:
        tiered = await filled(tmp_path)
        whole = content(await tiered.whole.read(0, 1 << 20))
        for path in (tmp_path / "data" / "tiered" / "cache").glob(f"*{suffix}"):
            if how == "cut":
                os.truncate(path, path.stat().st_size // 2)
            elif how == "flipped":
                damaged = bytearray(path.read_bytes())
                damaged[-20] ^= 1
                path.write_bytes(damaged)
            else:
                path.unlink()
        assert content(await tiered.whole.read(0, 1 << 20)) == whole
        assert tiered.store.counts.fetched == 2 * len(tiered.tier.objects)
        tiered.store._removers.submit(int).result()
        assert tiered.store._cache.size == sum(
            path.stat().st_size - (8 if path.suffix == ".arrow" else 0)  # the end of the stream does not count
            for path in (tmp_path / "data" / "tiered" / "cache").iterdir()
        )

    asyncio.run(scenario())


def test_a_tail_of_more_objects_than_the_cache_holds_is_read_on_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a tail of 10,000 long records beside a cache of 256 MiB: objects of 64 MiB are these of two batches."""

    async def scenario() -> None:
        tiered = await filled(tmp_path)
        one = tiered.tier.objects[0].log_bytes
        monkeypatch.setattr(tiered.store._cache, "bytes_max", 4 * one)
        monkeypatch.setattr(tiered_log, "TAIL_BYTES", one // 4)
        found = await tiered.whole.tail(10_000)
        end, messages = found.log_end, found.messages()
        while found.next_offset < end:
            await until(lambda: not tiered.store._removers._work_queue.qsize())
            found = await tiered.whole.read(found.next_offset, one // 4)
            messages += found.messages()
        assert messages == (await (await filled(tmp_path / "other")).whole.read(0, 1 << 20)).messages()

    asyncio.run(scenario())
