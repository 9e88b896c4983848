"""The tiered store: bounds of its cache and its threads, and what a store that fails costs."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import until

from stockade.cluster.tiered import store as store_module
from stockade.cluster.tiered.debts import Debts
from stockade.cluster.tiered.place import probe
from stockade.cluster.tiered.settings import tiered_faults
from stockade.partition.errors import TieredStoreUnavailable
from stockade.partition.places.place import CannotReach, Place
from stockade.partition.places.urls import without_arguments

from ..replica.test_replica import RECEIVED_MS
from ..replica.test_tiering import House, scenario, serve
from .test_tiered_log import filled
from .tiers import FOLDER, store_at


def bytes_cached(tmp_path: Path) -> int:
    """Bytes of its files; one that is removed meanwhile has none."""
    size = 0
    for path in (tmp_path / "data" / "tiered" / "cache").iterdir():
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def test_the_cache_keeps_to_its_bytes_and_one_object_at_least(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path, 40, cache_bytes=5000)
        for offset in range(0, 70, 4):
            assert (await tiered.whole.read(offset, 1)).batches[0].base_offset == offset
            await until(lambda: bytes_cached(tmp_path) <= 5000 + 16 * 20)
        counts = tiered.store.counts
        assert (counts.fetched, counts.cached) == (18, 0)  # an answer that is full looks at no next object
        await tiered.whole.read(68, 1)
        assert (counts.fetched, counts.cached) == (18, 1)
        tiny = await filled(tmp_path / "tiny", 10, cache_bytes=1)
        assert (await tiny.whole.read(0, 1 << 20)).next_offset == 20

    asyncio.run(scenario())


def test_readers_of_one_object_share_a_fetch(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        await asyncio.gather(*(tiered.whole.read(offset % 4, 1) for offset in range(40)))
        assert tiered.store.counts.fetched == 1

    asyncio.run(scenario())


class HangingPlace(Place):
    """Reads and writes do not come back before ``go``."""

    def __init__(self, url: str, go: threading.Event) -> None:
        super().__init__(url)
        self.go = go

    def pieces(self, path: str) -> Iterator[bytes]:
        self.go.wait(60)
        return super().pieces(path)


def test_a_store_that_hangs_delays_no_caller_longer_than_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        store, go = tiered.store, threading.Event()
        store._place, store.timeout_s = HangingPlace(str(tmp_path / "store"), go), 0.05
        monkeypatch.setattr(store_module, "FETCHES_WAITING_MAX", 3)
        for offset in (0, 4, 8):
            with pytest.raises(TieredStoreUnavailable, match=r"within 0\.05 s"):
                await tiered.whole.read(offset, 1)
        with pytest.raises(TieredStoreUnavailable, match="3 objects are being fetched already"):
            await tiered.whole.read(12, 1)
        assert (await tiered.whole.read(tiered.log.local_start, 1 << 20)).next_offset == 24
        go.set()
        await until(lambda: not store._fetches)
        store.timeout_s = 30
        assert (await tiered.whole.read(0, 1 << 20)).next_offset == 24

    asyncio.run(scenario())


class GatedPlace(Place):
    """Each object comes when its gate opens."""

    def __init__(self, url: str, firsts: list[int]) -> None:
        super().__init__(url)
        self.gates = {f"{first:020d}": threading.Event() for first in firsts}

    def pieces(self, path: str) -> Iterator[bytes]:
        self.gates[path.rpartition("/")[2][:20]].wait(60)
        return super().pieces(path)


def test_an_object_that_arrived_waits_for_no_other_fetch(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path, cache_bytes=1)
        store = tiered.store
        await tiered.whole.read(0, 1)  # what has to go for the next one
        place = store._place = GatedPlace(str(tmp_path / "store"), [4, 8, 12, 16])
        tiered.log.drop_local(tiered.tier.end)
        store._readers.shutdown()
        store._readers = ThreadPoolExecutor(2)
        reads = {first: asyncio.create_task(tiered.whole.read(first, 1)) for first in (4, 8, 12, 16)}
        await until(lambda: len(store._fetches) == 4)
        place.gates[f"{4:020d}"].set()
        async with asyncio.timeout(20):
            assert (await reads[4]).next_offset == 6
        assert not any(reads[first].done() for first in (8, 12, 16))
        for gate in place.gates.values():
            gate.set()
        await asyncio.gather(*reads.values(), return_exceptions=True)

    asyncio.run(scenario())


def test_a_late_removal_from_the_cache_takes_no_object_that_was_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path, cache_bytes=1)
        go, remove = threading.Event(), store_module._remove
        monkeypatch.setattr(store_module, "_remove", lambda doomed: (go.wait(60), remove(doomed)))
        for first in (0, 4):
            await tiered.whole.read(first, 1)
        found = await tiered.whole.read(0, 1)
        assert tiered.store.counts.fetched == 3
        go.set()
        await asyncio.to_thread(tiered.store._removers.shutdown)
        assert len(found.messages()) == 1

    asyncio.run(scenario())


def test_a_file_that_cannot_be_removed_from_the_cache_is_in_the_log_and_fails_no_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path, cache_bytes=1)
        await tiered.whole.read(0, 1)
        for path in (tmp_path / "data" / "tiered" / "cache").iterdir():
            path.unlink()
            path.mkdir()
        assert (await tiered.whole.read(4, 1)).next_offset == 6
        await asyncio.to_thread(tiered.store._removers.shutdown)
        assert caplog.text.count("a file stays in the cache") == 2

    asyncio.run(scenario())


def test_a_full_disk_gets_no_more_of_the_cache(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        await tiered.whole.read(0, 1)
        tiered.store.has_room = lambda: False
        assert (await tiered.whole.read(0, 1)).next_offset == 2
        with pytest.raises(TieredStoreUnavailable, match="disk has no room"):
            await tiered.whole.read(8, 1)

    asyncio.run(scenario())


def cached(house: House) -> list[int]:
    """The first offsets of the objects in the cache, after what has to go is gone."""
    house.store._removers.submit(int).result()
    return sorted(int(path.name.split("-")[-5]) for path in (house.root / "data" / "tiered" / "cache").glob("*.arrow"))


@scenario()
async def test_the_cache_drops_objects_of_trimmed_and_deleted_records(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS + 1)
    assert await house.values() == 40
    objects = house.leader.machine.tier.objects
    assert cached(house) == [each.first for each in objects]
    await house.leader.trim(objects[2].first + 1, topic_id=None, token=None)
    house.tiering.drop(RECEIVED_MS + 1)
    assert cached(house) == [each.first for each in objects]
    assert len(objects) > 3
    assert await house.values() > 0
    house.replicas.clear()  # the topic was deleted, or the replica moved away
    house.tiering.drop(RECEIVED_MS + 1)
    assert cached(house) == []


@scenario()
async def test_a_disk_with_little_room_keeps_little_of_the_cache(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS + 1)
    assert await house.values() == 40
    objects = house.leader.machine.tier.objects
    firsts = [each.first for each in objects]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "LOW_CACHE_BYTES", 7 * objects[0].log_bytes)
        house.tiering._is_low = lambda: True
        house.tiering.drop(RECEIVED_MS + 1)
        few = cached(house)
        assert 0 < len(few) < len(firsts)
        assert few == firsts[-len(few) :], "what was read last stays"
        assert await house.values() == 40
        assert cached(house) == few
    house.tiering._is_low = lambda: False
    house.tiering.drop(RECEIVED_MS + 1)
    assert await house.values() == 40
    assert cached(house) == firsts


def test_the_folder_of_a_deleted_topic_is_removed_also_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        files = tmp_path / "store" / "house" / FOLDER
        other = files.parent / "1-other"
        other.mkdir()
        (other / "kept").write_bytes(b"of another partition")
        assert len(list(files.iterdir())) == len(tiered.tier.objects)
        await Debts(tmp_path / "data", None).owe(FOLDER)  # the node stops before it has removed anything
        away = store_at(tmp_path / "away")
        away._place = BrokenPlace(str(tmp_path / "store"))
        debts = Debts(tmp_path / "data", tiered.store)
        assert await debts.settle(away)
        assert files.exists()
        assert not await debts.settle(tiered.store)
        assert not files.exists()
        assert [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()] == ["kept"]
        assert not await debts.settle(tiered.store)

    asyncio.run(scenario())


def test_a_share_that_is_not_mounted_settles_no_debt(tmp_path: Path) -> None:
    """Its mount point is an empty folder: the objects would stay for ever once it is back."""

    async def scenario() -> None:
        tiered = await filled(tmp_path)
        share, away = tmp_path / "store", tmp_path / "away"
        debts = Debts(tmp_path / "data", tiered.store)
        await debts.owe(FOLDER)
        share.rename(away)
        share.mkdir()
        assert await debts.settle(tiered.store)
        share.rmdir()
        away.rename(share)
        assert not await debts.settle(tiered.store)
        assert [path for path in share.rglob("*") if path.is_file()] == []
        tiered.store.close()

    asyncio.run(scenario())


def test_a_deleted_topic_leaves_no_folder_in_a_share(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        topic = (tmp_path / "store" / "house" / FOLDER).parent
        (topic / "1-other").mkdir()
        debts = Debts(tmp_path / "data", tiered.store)
        await debts.owe(FOLDER)
        assert not await debts.settle(tiered.store)
        assert [path.name for path in topic.iterdir()] == ["1-other"]
        await debts.owe(f"{topic.name}/1-other")
        assert not await debts.settle(tiered.store)
        assert list(topic.parent.iterdir()) == [], "the folder of the cluster says that the share is mounted"
        tiered.store.close()

    asyncio.run(scenario())


class StalePlace(Place):
    """Lists what was removed, as a cache between the node and a store may."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.listed = super().sizes("house")
        self.removals = 0

    def sizes(self, folder: str) -> dict[str, int]:
        return {path: size for path, size in self.listed.items() if path.startswith(f"{folder}/")}

    def remove(self, path: str) -> None:
        self.removals += 1
        if self.removals > len(self.listed):
            raise AssertionError("it was removed before")
        super().remove(path)


def test_a_listing_that_is_out_of_date_makes_no_loop_of_removals(tmp_path: Path) -> None:
    """The node removed the same objects again and again, without a pause between."""

    async def scenario() -> None:
        tiered = await filled(tmp_path)
        debts = Debts(tmp_path / "data", tiered.store)
        await debts.owe(FOLDER)
        place = tiered.store._place = StalePlace(str(tmp_path / "store"))
        assert await debts.settle(tiered.store)
        assert place.removals == len(tiered.tier.objects)
        tiered.store._place = None
        assert not await debts.settle(tiered.store)
        tiered.store.close()

    asyncio.run(scenario())


class OrderedPlace(Place):
    """Notes each removal; the first one waits until ``go``."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.done: list[str] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def remove(self, path: str) -> None:
        self.begun.set()
        self.go.wait(60)
        self.done.append("removal")
        super().remove(path)


def test_uploads_do_not_wait_until_all_objects_of_a_deleted_topic_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(store_module, "REMOVALS_A_TURN", 2)
        tiered = await filled(tmp_path)
        debts, count = Debts(tmp_path / "data", tiered.store), len(tiered.tier.objects)
        place = tiered.store._place = OrderedPlace(str(tmp_path / "store"))
        await debts.owe(FOLDER)
        settling = asyncio.create_task(debts.settle(tiered.store))
        await asyncio.to_thread(place.begun.wait, 60)
        upload = asyncio.create_task(tiered.store.run(lambda _: place.done.append("upload")))
        await asyncio.sleep(0)
        place.go.set()
        await upload
        assert not await settling
        assert place.done == ["removal"] * 2 + ["upload"] + ["removal"] * (count - 2)
        assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
        tiered.store.close()

    asyncio.run(scenario())


class RefusingPlace(Place):
    """Fails for some folders."""

    def __init__(self, url: str, refused: set[str]) -> None:
        super().__init__(url)
        self.refused, self.asked = refused, list[str]()

    def sizes(self, folder: str) -> dict[str, int]:
        folder = folder.removeprefix("house/")
        self.asked.append(folder)
        if folder in self.refused:
            raise CannotReach("this one is refused")
        return super().sizes(folder)


def test_folders_that_always_fail_hold_up_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, debts = store_at(tmp_path), Debts(tmp_path / "data", None)
        folders = [f"812-t/{number}-abc" for number in range(12)]
        for folder in folders:
            await debts.owe(folder)
        (tmp_path / "store" / "house").mkdir(parents=True)
        place = store._place = RefusingPlace(str(tmp_path / "store"), set(folders))
        assert await debts.settle(store)
        assert len(place.asked) == 3, "the store may be away"
        place.refused = {*place.asked, *folders[:2]}
        while len(debts._names()) > len(place.refused):
            left = len(debts._names())
            assert await debts.settle(store), "not all was settled"
            assert len(debts._names()) < left
        place.refused = set()
        while await debts.settle(store):
            pass
        assert debts._names() == []
        store.close()

    asyncio.run(scenario())


def test_a_note_that_cannot_be_read_stops_no_node_and_holds_up_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        tiered = await filled(tmp_path)
        debts = Debts(tmp_path / "data", tiered.store)
        for folder in ("812-t/1-abc", FOLDER):
            await debts.owe(folder)
        unreadable = next(path for path in debts._notes.iterdir() if path.read_bytes() != FOLDER.encode())
        unreadable.unlink()
        unreadable.mkdir()
        assert await debts.settle(tiered.store)
        assert debts._names() == [unreadable.name]
        tiered.store.close()

    asyncio.run(scenario())


class BrokenPlace(Place):
    def sizes(self, folder: str) -> dict[str, int]:
        raise CannotReach("it is away")


def test_the_fault_of_a_place_is_found_before_anything_starts(tmp_path: Path) -> None:
    assert probe(str(tmp_path), "house") is None
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    (tmp_path / "file").write_text("no folder")
    assert "tiered.place" in (probe(str(tmp_path / "file"), "house") or "")
    assert "unknown://x" in (probe("unknown://x", "house") or "")


@pytest.mark.parametrize(
    ("place", "cache_bytes", "timeout_ms", "fault"),
    [
        ("s3://bucket/path?region=eu-1", 1 << 30, 1000, None),
        ("/srv/old", 1 << 30, 1000, None),
        ("file:///srv/old", 1 << 30, 1000, None),
        ("", 1 << 30, 1000, "place"),
        ("s3://", 1 << 30, 1000, "names no bucket"),
        ("http://[::1", 1 << 30, 1000, "is no URL"),
        ("s3://key:secret@bucket", 1 << 30, 1000, "no credentials"),
        ("s3://bucket?access_key=a&secret_key=b", 1 << 30, 1000, "no credentials"),
        ("abfs://container@account.dfs.core.windows.net/old", 1 << 30, 1000, None),
        ("/srv/old", 1000, 1000, "cache_bytes"),
        ("/srv/old", 1 << 30, 1, "timeout_ms"),
    ],
)
def test_contradicting_settings_are_named(place: str, cache_bytes: int, timeout_ms: int, fault: str | None) -> None:
    found = list(tiered_faults(place, cache_bytes, timeout_ms))
    assert (found == []) if fault is None else (len(found) == 1 and fault in found[0])


def test_clients_see_the_place_without_arguments_and_credentials() -> None:
    assert without_arguments("s3://bucket/path?endpoint_override=10.0.0.7:9000") == "s3://bucket/path"
    assert without_arguments("s3://key:secret@bucket/path") == "s3://bucket/path"
    assert without_arguments("/srv/old") == "/srv/old"
