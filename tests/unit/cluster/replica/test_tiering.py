"""Leaders upload, replicas drop, and what goes wrong in between: over groups that commit everything at once."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from msgspec.structs import replace

from stockade.cluster.features import Features
from stockade.cluster.model import ReadGuard
from stockade.cluster.replica import tiering as tiering_module
from stockade.cluster.replica.replica import Replica
from stockade.cluster.replica.replica_manager import ReplicaManager
from stockade.cluster.replica.tiering import Tiering, next_segment
from stockade.cluster.tiered.objects import Made
from stockade.cluster.tiered.store import TieredStore
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import Append, InstallReader, TierObject, encode_command
from stockade.partition.errors import NotOwner, StockadeError, TieredStoreUnavailable
from stockade.partition.log.image import ImageDamaged
from stockade.partition.log.index import SegmentIndex
from stockade.partition.places.place import CannotReach, Place
from stockade.partition.state.tier import name_of
from stockade.raft.core.group import NotLeader, Rejected, Unknown
from stockade.raft.wal.errors import DiskRefused

from .test_replica import RECEIVED_MS, append, group_of, replica

SEGMENT_BYTES = 2000
OTHER_TERM = TierObject(1000, 1010, 4, "n", 0, b"", 0, 0, 0)
LOCAL = TopicConfig(local_retention_ms=0)


class House:
    """Replicas of one partition that apply the same commands, and one store."""

    def __init__(self, root: Path, count: int = 1, config: TopicConfig = LOCAL, timeout_s: float = 30.0) -> None:
        self.root = root
        self.store = TieredStore(str(root / "store"), "house", root / "data", 1 << 30, timeout_s)
        self.replicas = []
        for number in range(count):
            (root / f"files-{number}").mkdir()
            one = replica(root / f"files-{number}", config, SEGMENT_BYTES)
            one.whole.store, one.features = self.store, Features(level=2)
            self.replicas.append(one)
        for one in self.replicas[1:]:
            group_of(one).is_leader = False
        self.dropped = 0
        self.tiering = Tiering(cast(ReplicaManager, self), self.store, lambda: False, self._has_dropped)

    def all(self) -> list[Replica]:
        return self.replicas

    def _has_dropped(self) -> None:
        self.dropped += 1

    @property
    def leader(self) -> Replica:
        return next(each for each in self.replicas if group_of(each).is_leader)

    def elect(self, number: int, term: int) -> None:
        for place, one in enumerate(self.replicas):
            group_of(one).is_leader, group_of(one).term = place == number, term

    async def fill(self, count: int = 20) -> None:
        for _ in range(count):
            await append(self.leader, 2)
        self.copy()

    def copy(self) -> None:
        """What the leader has applied, the others apply."""
        leader = self.leader
        for one in self.replicas:
            if one is not leader:
                _copy(leader, one)

    async def drop(self, wall_ms: int) -> None:
        """What a node does again and again."""
        self.tiering.drop(wall_ms)
        await self.tiering.look()
        self.tiering.drop(wall_ms)

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.root / "store").rglob("*.zst"))

    def listed(self) -> list[str]:
        return [name_of(each) for each in self.leader.machine.tier.objects]

    async def values(self, one: Replica | None = None) -> int:
        """Records that a reader finds, from the log's start to its end."""
        at, found = -1, 0
        while True:
            part = await (one or self.leader).read(at, max_bytes=3000, min_bytes=1, max_wait_ms=0, local=True)
            if not part.runs:
                return found
            found += sum(each.count for each in part.batches)
            assert len(part.messages()) == len(part.batches)
            at = part.next_offset


def _copy(leader: Replica, other: Replica) -> None:
    for batch in leader.log.read(max(other.log.log_end, leader.log.local_start), 1 << 30).batches:
        (message,) = leader.log.read(batch.base_offset, 1).messages()[:1]
        command = Append(message, batch.count, batch.crc, batch.timestamp_ms, batch.max_timestamp_ms)
        other.machine.apply(1, 1, encode_command(command))
    other.machine.tier.load(leader.machine.tier.save())


def damage(one: Replica) -> None:
    """Flip bits of its first segment."""
    segment = Path(one.log.full_segments[0].segment)
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")


Scenario = Callable[[House], Coroutine[Any, Any, None]]


def scenario(**options: Any) -> Callable[[Scenario], Callable[[Path], None]]:
    def with_options(body: Scenario) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            async def run() -> None:
                house = House(tmp_path, **options)
                await body(house)
                house.store.close()

            asyncio.run(run())

        test.__doc__ = body.__doc__
        return test

    return with_options


async def serve(house: House) -> bool:
    return await house.tiering._serve(house.leader)


@scenario(count=3)
async def test_full_segments_go_to_the_store_and_every_replica_reads_on(house: House) -> None:
    await house.fill()
    full = house.leader.log.full_segments
    assert len(full) > 3
    assert await serve(house)
    assert [each.end for each in house.leader.machine.tier.objects] == [each.next_offset for each in full]
    assert house.files() == house.listed()
    house.copy()
    before = house.leader.log.stored_bytes
    await house.drop(RECEIVED_MS + 1)
    assert house.dropped == 1
    for one in house.replicas:
        assert (one.machine.log_start, one.log.local_start) == (0, full[-1].next_offset)
        assert one.log.reclaimable > before / 2
        assert await house.values(one) == 40
    assert house.store.counts.stored == len(full)
    assert next_segment(house.leader) is None
    assert house.tiering.waiting_s == 0


@scenario()
async def test_local_files_are_dropped_only_for_listed_objects(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.fill()
    await house.drop(RECEIVED_MS + 10**9)
    assert house.leader.log.local_start == house.leader.machine.tier.end
    assert await house.values() == 80


@scenario()
async def test_a_sweep_removes_nothing_before_it_is_proved_that_this_node_leads(house: House) -> None:
    await house.fill()
    await serve(house)
    group_of(house.leader).term = 9
    extra = house.root / "store" / "house" / house.leader.machine.tier.folder / name_of(OTHER_TERM)
    extra.write_bytes(b"")

    async def deposed(timeout_s: float) -> None:
        raise NotLeader("n2", 9)

    leads, house.leader.group.read_barrier = house.leader.group.read_barrier, deposed  # type: ignore[method-assign]
    with pytest.raises(StockadeError):
        await house.tiering.sweep(house.leader)
    assert extra.exists()
    house.leader.group.read_barrier = leads  # type: ignore[method-assign]
    assert await house.tiering.sweep(house.leader) == [extra.name]


@scenario(config=TopicConfig(local_retention_bytes=2500))
async def test_local_retention_keeps_its_bytes_and_age_on_disk(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS)
    kept = house.leader.log.log_end - house.leader.log.local_start
    assert 0 < kept < 20
    assert await house.values() == 40


@scenario(config=TopicConfig(local_retention_bytes=1 << 30))
async def test_a_low_disk_keeps_only_records_that_are_not_in_the_store(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS)
    assert house.leader.log.local_start == 0
    house.tiering._is_low = lambda: True
    await house.drop(RECEIVED_MS)
    assert house.leader.log.local_start == house.leader.machine.tier.end
    assert await house.values() == 40


@scenario(config=TopicConfig())
async def test_without_a_local_retention_nothing_leaves_the_disks(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS + 10**9)
    assert (house.files(), house.leader.log.local_start, house.leader.machine.tier.folder) == ([], 0, "")


@scenario()
async def test_below_the_feature_level_nothing_is_proposed(house: House) -> None:
    house.leader.features = Features(level=1)
    await house.fill()
    index = group_of(house.leader).index
    assert not tiering_module.may_upload(house.leader)
    task = asyncio.create_task(house.tiering.run())
    await asyncio.sleep(0)
    task.cancel()
    assert group_of(house.leader).index == index


@scenario()
async def test_a_segment_with_other_bytes_than_were_written_stops_the_node(house: House) -> None:
    """As when an inspection finds it: otherwise this one leads on, and nothing of the partition goes to the store."""
    await house.fill()
    damage(house.leader)
    assert not await serve(house), "it has the only replica: without the node there is none at all"
    group_of(house.leader).voters = ("n1", "n2", "n3")
    with pytest.raises(DiskRefused, match=r"damaged in the batch at offset 2.*stockade rebuild"):
        await serve(house)
    assert house.listed() == house.files() == []


@scenario()
async def test_a_segment_that_is_trimmed_while_it_is_read_stops_no_node(house: House) -> None:
    await house.fill()
    log = house.leader.log

    def trimmed(segment: SegmentIndex, *_: Any) -> Made:
        log.trim(log.full_segments[1].next_offset)
        raise ImageDamaged(f"{segment.segment} is missing")

    group_of(house.leader).voters = ("n1", "n2", "n3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stockade.cluster.tiered.objects.make", trimmed)
        assert not await serve(house)
    assert await serve(house)
    assert await house.values() == 40 - log.log_start


class Held(Place):
    """Stops before it writes, until ``go``."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.begun, self.go = threading.Event(), threading.Event()

    def write(self, path: str, content: bytes | pa.Buffer) -> None:
        self.begun.set()
        self.go.wait(60)
        super().write(path, content)


@scenario(count=2)
async def test_an_upload_of_a_deposed_leader_is_an_orphan_that_the_next_one_removes(house: House) -> None:
    await house.fill()
    place = house.store._place = Held(str(house.root / "store"))
    old = house.leader
    uploading = asyncio.create_task(house.tiering._serve(old))
    await asyncio.to_thread(place.begun.wait, 60)
    house.store._place = None
    house.copy()
    house.elect(1, 4)
    new_store = TieredStore(str(house.root / "store"), "house", house.root / "other", 1 << 30, 30.0)
    other = Tiering(cast(ReplicaManager, house), new_store, lambda: False, lambda: None)
    assert await other._serve(house.leader)
    listed = house.listed()
    place.go.set()
    group_of(old).lost = Rejected("n2", 4)
    assert not await uploading
    assert set(house.files()) > set(listed)
    assert await other.sweep(house.leader)
    assert house.files() == listed == house.listed()
    assert await house.values() == 40
    new_store.close()


@scenario()
async def test_a_leader_elected_again_cannot_list_an_upload_of_its_earlier_term(house: House) -> None:
    """Its term is in the name, and the machine compares it with that of the entry."""
    await house.fill()
    place = house.store._place = Held(str(house.root / "store"))
    uploading = asyncio.create_task(house.tiering._serve(house.leader))
    await asyncio.to_thread(place.begun.wait, 60)
    house.elect(0, 9)
    place.go.set()
    assert await uploading
    assert house.listed() == []
    assert house.store.counts.refused == 1
    assert await serve(house)
    assert house.listed()
    house.tiering._swept.clear()
    assert await serve(house)
    assert house.files() == house.listed()


class Failing(Place):
    """Fails, or keeps other bytes than it was given."""

    how = ""

    def write(self, path: str, content: bytes | pa.Buffer) -> None:
        if self.how == "write":
            raise CannotReach("it is away")
        if self.how == "odd":
            raise RuntimeError("as file systems of fsspec may do")
        if self.how == "half":
            super().write(path, bytes(content)[: len(bytes(content)) // 2])
            raise CannotReach("it went away")
        if self.how == "flip":
            content = bytes(content)[:-1] + bytes([bytes(content)[-1] ^ 1])
        super().write(path, content)

    def sizes(self, folder: str) -> dict[str, int]:
        if self.how == "list":
            raise CannotReach("it lists nothing")
        return super().sizes(folder)


@pytest.mark.parametrize("how", ["write", "odd", "half", "flip", "list"])
def test_a_store_that_fails_costs_no_record_and_is_tried_again(tmp_path: Path, how: str) -> None:
    @scenario()
    async def test(house: House) -> None:
        await house.fill()
        place = house.store._place = Failing(str(house.root / "store"))
        place.how = how
        assert not await serve(house)
        if how != "list":
            assert house.listed() == []
            assert house.tiering.waiting_s > 0
        await house.drop(RECEIVED_MS + 1)
        assert await house.values() == 40
        place.how = ""
        await house.fill(4)
        house.tiering._swept.clear()
        assert await serve(house)
        assert house.files() == house.listed() != []
        await house.drop(RECEIVED_MS + 1)
        assert await house.values() == 48

    test(tmp_path)


class Full(Place):
    """A folder on a disk that takes no write before something was removed."""

    is_full = True

    def write(self, path: str, content: bytes | pa.Buffer) -> None:
        if self.is_full:
            raise CannotReach("no space left on the device")
        super().write(path, content)

    def remove(self, path: str) -> None:
        super().remove(path)
        self.is_full = False


@scenario(count=2)
async def test_a_full_store_is_swept_of_the_scratch_files_of_dead_nodes(house: House) -> None:
    await house.fill()
    await serve(house)
    house.copy()
    folder = house.root / "store" / "house" / house.leader.machine.tier.folder
    scratch = folder / (name_of(replace(OTHER_TERM, term=group_of(house.leader).term)) + ".new")
    scratch.write_bytes(b"half")
    house.tiering._swept.clear()
    assert await serve(house)
    assert scratch.exists(), "an upload of this term may be under way"
    house.elect(1, 5)
    house.tiering._swept.clear()  # another node's
    await house.fill(8)
    house.store._place = Full(str(house.root / "store"))
    assert not await serve(house)
    assert not scratch.exists()
    assert await serve(house)
    assert house.files() == house.listed()


@scenario(count=2)
async def test_a_deposed_leader_whose_scratch_is_swept_cannot_finish_its_upload(house: House) -> None:
    await house.fill()
    await serve(house)
    place = Place(str(house.root / "store"))
    path = f"house/{house.leader.machine.tier.folder}/{name_of(OTHER_TERM)}"
    rename = Path.rename

    def swept(scratch: Path, target: Path) -> Path:
        scratch.unlink()  # by the next leader, which lists the folder while this one writes
        return rename(scratch, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CannotReach, match="cannot be written"):
        patch.setattr(Path, "rename", swept)
        place.write(path, b"late")
    assert house.files() == house.listed()


@scenario()
async def test_an_unknown_outcome_leaves_an_orphan_or_an_object_and_never_both(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.fill(8)
    group_of(house.leader).lost = Unknown(7)
    assert not await serve(house)
    group_of(house.leader).lost = None
    orphan = set(house.files()) - set(house.listed())
    assert len(orphan) == 1
    assert await house.tiering.sweep(house.leader) == []  # it may still be committed
    house.tiering._swept.clear()
    assert await serve(house)
    assert orphan.isdisjoint(house.files())
    assert house.files() == house.listed()


@scenario(config=TopicConfig(local_retention_ms=0, retention_bytes=8000))
async def test_retention_counts_and_removes_records_in_the_store(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS + 1)
    sizes = [each.log_bytes for each in house.leader.machine.tier.objects]
    assert sum(sizes) > 8000
    await house.leader.retain(RECEIVED_MS)
    tier, log = house.leader.machine.tier, house.leader.log
    local = log.stored_bytes - log.reclaimable
    assert 8000 - max(sizes) < tier.size + local < 8000 + 3000
    assert log.log_start == tier.objects[0].first > 0
    house.tiering._swept.clear()
    assert await serve(house)
    assert house.files() == house.listed()


@scenario(config=TopicConfig(local_retention_ms=0, retention_ms=1000))
async def test_old_objects_are_past_retention_by_age(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS + 1)
    assert not house.leader.has_due(RECEIVED_MS + 1000)
    await house.leader.retain(RECEIVED_MS + 1001)
    assert house.leader.machine.log_start == house.leader.machine.log_end
    assert house.leader.machine.tier.objects == []
    house.tiering._swept.clear()
    await serve(house)
    assert house.files() == []


@scenario()
async def test_a_trim_beyond_the_objects_lets_the_next_one_begin_where_the_log_does(house: House) -> None:
    await house.fill(4)
    await serve(house)
    end = house.leader.machine.tier.end
    await house.fill(20)
    await house.leader.trim(end + 7, topic_id=None, token=None)
    assert await serve(house)
    first = house.leader.machine.tier.objects[0].first
    assert end <= first <= end + 7
    await house.drop(RECEIVED_MS + 1)
    assert house.leader.machine.log_start == end + 7
    assert await house.values() >= 48 - (end + 7)


@scenario()
async def test_a_reader_that_was_fenced_while_old_records_were_fetched_gets_none(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS + 1)
    machine = house.leader.machine
    machine.apply(1, 1, encode_command(InstallReader("g", 1)))
    reading = partial(house.leader.read, 0, max_bytes=100, min_bytes=1, max_wait_ms=0, local=False)
    task = asyncio.create_task(reading(guard=ReadGuard("g", 1)))
    for _ in range(3):
        await asyncio.sleep(0)
    machine.apply(2, 1, encode_command(InstallReader("g", 2)))
    with pytest.raises(NotOwner):
        await task
    assert (await reading(guard=ReadGuard("g", 2))).runs


@scenario()
async def test_the_tail_and_a_time_below_the_local_files_are_found(house: House) -> None:
    await house.fill()
    await serve(house)
    await house.drop(RECEIVED_MS + 1)
    tail, _ = await house.leader.read_tail(38)
    assert (tail.base_offset, tail.next_offset) == (2, 40)
    assert (await house.leader.find_offset(RECEIVED_MS))[:2] == (0, RECEIVED_MS)
    house.store.close()
    house.leader.whole.store = None
    with pytest.raises(TieredStoreUnavailable):
        await house.leader.read_tail(38)


@scenario()
async def test_nothing_is_uploaded_to_a_place_that_lost_its_objects(house: House) -> None:
    """The folder of a share that is not mounted would take them, and hide them once the share is back."""
    (house.root / "other").mkdir()
    other = replica(house.root / "other", LOCAL, SEGMENT_BYTES)
    other.whole.store, other.features = house.store, Features(level=2)
    await house.fill()
    for _ in range(20):
        await append(other, 2)
    assert await serve(house)
    listed = house.listed()
    (house.root / "store").rename(house.root / "not mounted")
    (house.root / "store").mkdir()
    await house.fill()
    for one in (house.leader, other):
        assert not await house.tiering._serve(one)
    await house.drop(RECEIVED_MS)
    assert (house.files(), house.listed(), other.machine.tier.folder) == ([], listed, "")
    (house.root / "store").rmdir()
    (house.root / "not mounted").rename(house.root / "store")
    for one in (house.leader, other):
        assert await house.tiering._serve(one)
    assert len(house.listed()) > len(listed)
    assert other.machine.tier.objects
    assert await house.values() == 80


@scenario()
async def test_a_sweep_of_a_share_that_is_not_mounted_is_made_again_when_it_is_back(house: House) -> None:
    await house.fill()
    assert await serve(house)
    await house.drop(RECEIVED_MS + 1)
    share, away = house.root / "store", house.root / "away"
    share.rename(away)
    share.mkdir()
    await house.leader.trim(house.leader.log.log_end, topic_id=None, token=None)
    house.tiering._swept.clear()
    assert not await serve(house)
    share.rmdir()
    away.rename(share)
    assert await serve(house)
    assert house.files() == house.listed() == []


def test_folders_of_one_name_differ() -> None:
    one = cast(Replica, SimpleNamespace(topic_id=7, topic="t" * 249, partition=3))
    folders = {tiering_module._new_folder(one) for _ in range(100)}
    assert len(folders) == 100
    assert all(len(part) < 255 for folder in folders for part in folder.split("/"))
