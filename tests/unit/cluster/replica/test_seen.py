"""A node drops its local files only if it has itself seen their objects, in the place of its own configuration."""

import asyncio
import shutil
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from stockade.cluster.replica import seen as seen_module
from stockade.cluster.replica.replica import Replica
from stockade.cluster.replica.replica_manager import ReplicaManager
from stockade.cluster.replica.tiering import Tiering
from stockade.cluster.tiered.store import TieredStore
from stockade.partition.places.place import CannotReach, Place

from .test_replica import RECEIVED_MS, group_of
from .test_tiering import Held, House, scenario, serve


class Other:
    """Another node with a replica, and a place of its own."""

    def __init__(self, house: House, replica: Replica, timeout_s: float = 30.0) -> None:
        self.replica, self.root = replica, house.root / "elsewhere"
        self.store = TieredStore(str(self.root), "house", house.root / "other-data", 1 << 30, timeout_s)
        replicas = SimpleNamespace(all=lambda: [replica])
        self.tiering = Tiering(cast(ReplicaManager, replicas), self.store, lambda: False, lambda: None)

    async def drop(self) -> int:
        """The first local offset, after all was dropped that may be."""
        self.tiering.drop(RECEIVED_MS + 1)
        await self.tiering.look()
        self.tiering.drop(RECEIVED_MS + 1)
        return self.replica.log.local_start


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node asks again at its next look."""
    monkeypatch.setattr(seen_module, "PAUSE_S", 0.0)


@scenario(count=2)
async def test_a_node_keeps_files_whose_objects_it_has_not_seen_in_its_own_place(house: House) -> None:
    """Its place is another one than the leader's, or its mount is missing: its disk may have the only copy."""
    await house.fill()
    assert await serve(house)
    house.copy()
    other, end = Other(house, house.replicas[1]), house.leader.machine.tier.end
    assert await other.drop() == 0
    other.tiering._is_low = lambda: True
    assert await other.drop() == 0
    shutil.copytree(house.root / "store", other.root)
    assert await other.drop() == end
    other.store.close()


@scenario(count=2)
async def test_a_node_keeps_everything_from_the_first_object_on_that_is_missing_or_cut(house: House) -> None:
    await house.fill()
    assert await serve(house)
    house.copy()
    other, objects = Other(house, house.replicas[1]), house.leader.machine.tier.objects
    shutil.copytree(house.root / "store", other.root)
    third = next(path for path in other.root.rglob("*.zst") if path.name.startswith(f"{objects[2].first:020d}"))
    whole = third.read_bytes()
    third.write_bytes(whole[:-1])
    assert await other.drop() == objects[2].first
    third.unlink()
    third.mkdir()
    assert await other.drop() == objects[2].first
    third.rmdir()
    third.write_bytes(whole)
    assert await other.drop() == objects[-1].end
    other.store.close()


class Counting(Place):
    """Counts the looks; may be away."""

    looks, is_away = 0, False

    def size(self, path: str) -> int:
        self.looks += 1
        if self.is_away:
            raise CannotReach("it is away")
        return super().size(path)


@scenario()
async def test_each_object_is_looked_for_once(house: House) -> None:
    await house.fill()
    assert await serve(house)
    place = house.store._place = Counting(str(house.root / "store"))
    for _ in range(3):
        await house.drop(RECEIVED_MS + 1)
    assert place.looks == len(house.listed()) > 3


@scenario()
async def test_a_store_that_is_away_is_asked_once_in_a_while_and_nothing_is_dropped(house: House) -> None:
    await house.fill()
    assert await serve(house)
    place = house.store._place = Counting(str(house.root / "store"))
    place.is_away, seen_module.PAUSE_S = True, 60.0
    for _ in range(3):
        await house.drop(RECEIVED_MS + 1)
    assert (place.looks, house.leader.log.local_start) == (1, 0)


class Refusing(Place):
    """Fails for one folder."""

    folder = ""

    def size(self, path: str) -> int:
        if self.folder in path:
            raise CannotReach("this one is refused")
        return super().size(path)


@scenario(count=2)
async def test_a_partition_whose_objects_are_refused_holds_up_no_other(house: House) -> None:
    await house.fill()
    assert await serve(house)
    house.copy()
    place = house.store._place = Refusing(str(house.root / "store"))
    refused, other = house.replicas
    place.folder = refused.machine.tier.folder
    group_of(other).group_id, other.machine.tier.folder = 2, "another"
    shutil.copytree(house.root / "store" / "house" / place.folder, house.root / "store" / "house" / "another")
    now = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_module, "PAUSE_S", 60.0)
        patch.setattr(seen_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
        await house.drop(RECEIVED_MS + 1)
        assert other.log.local_start == 0
        now[0] = 60.0
        await house.drop(RECEIVED_MS + 1)
        assert (refused.log.local_start, other.log.local_start) == (0, other.machine.tier.end)
        place.folder, now[0] = "no folder", 120.0
        await house.drop(RECEIVED_MS + 1)
        assert refused.log.local_start == refused.machine.tier.end


class Hanging(Place):
    """Does not say what is there before ``go``."""

    def __init__(self, url: str, go: threading.Event) -> None:
        super().__init__(url)
        self.go = go

    def size(self, path: str) -> int:
        self.go.wait(60)
        return super().size(path)


@scenario(timeout_s=0.05)
async def test_a_store_that_hangs_holds_no_drop(house: House) -> None:
    await house.fill()
    assert await serve(house)
    go = threading.Event()
    house.store._place = Hanging(str(house.root / "store"), go)
    await house.drop(RECEIVED_MS + 1)
    assert house.leader.log.local_start == 0
    house.store.timeout_s = 30.0
    go.set()
    await house.drop(RECEIVED_MS + 1)
    assert house.leader.log.local_start == house.leader.machine.tier.end


@scenario()
async def test_a_long_upload_holds_no_drop(house: House) -> None:
    await house.fill()
    assert await serve(house)
    end = house.leader.machine.tier.end
    await house.fill(8)
    place = house.store._place = Held(str(house.root / "store"))
    uploading = asyncio.create_task(serve(house))
    await asyncio.to_thread(place.begun.wait, 60)
    await house.drop(RECEIVED_MS + 1)
    assert house.leader.log.local_start == end
    place.go.set()
    assert await uploading


@scenario(count=2)
async def test_a_copy_with_older_files_is_seen_from_its_start(house: House) -> None:
    """What another process of this node dropped, in the place that it had then, is not what this one has seen."""
    await house.fill()
    assert await serve(house)
    house.copy()
    replica, other = house.replicas[1], Other(house, house.replicas[1])
    shutil.copytree(house.root / "store", other.root)
    objects = replica.machine.tier.objects
    segments = list(replica.log._segments)
    del replica.log._segments[:2]  # as after a restart that follows a drop
    assert await other.drop() == objects[-1].end
    replica.log._segments[:0] = segments[:-1]
    first = next(path for path in other.root.rglob("*.zst") if path.name.startswith(f"{0:020d}"))
    first.unlink()
    assert await other.drop() == 0
    other.store.close()


@scenario(count=2)
async def test_objects_that_were_never_looked_at_are_not_seen_though_those_before_and_behind_them_are(
    house: House,
) -> None:
    """A copy of a peer that had dropped more began behind them; another one, of a peer with less dropped, has them."""
    await house.fill()
    assert await serve(house)
    house.copy()
    replica, other = house.replicas[1], Other(house, house.replicas[1])
    shutil.copytree(house.root / "store", other.root)
    objects, segments = replica.machine.tier.objects, list(replica.log._segments)
    for item in objects[1:3]:
        next(path for path in other.root.rglob("*.zst") if path.name.startswith(f"{item.first:020d}")).unlink()
    assert await other.drop() == objects[1].first
    replica.log._segments[:] = segments[3:]
    assert await other.drop() == objects[-1].end
    replica.log._segments[:] = segments[1:]
    assert await other.drop() == objects[1].first
    other.store.close()
