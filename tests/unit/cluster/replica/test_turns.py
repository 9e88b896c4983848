"""The partitions of a leader take turns with their uploads: none holds up the others."""

import asyncio

import pytest
from waiting import until

from stockade.cluster.features import Features
from stockade.cluster.replica import tiering as tiering_module
from stockade.cluster.replica.replica import Replica
from stockade.cluster.replica.tiering import next_segment
from stockade.cluster.tiered import store as store_module

from .test_replica import RECEIVED_MS, append, group_of, replica
from .test_tiering import LOCAL, SEGMENT_BYTES, Held, House, scenario, serve


async def beside(house: House) -> Replica:
    """A second partition that this node leads, with records."""
    (house.root / "other").mkdir()
    other = replica(house.root / "other", LOCAL, SEGMENT_BYTES)
    other.whole.store, other.features = house.store, Features(level=2)
    group_of(other).group_id = 78
    house.replicas.append(other)
    for _ in range(20):
        await append(other, 2)
    return other


@scenario()
async def test_a_partition_with_much_to_upload_holds_up_no_other(house: House) -> None:
    for _ in range(60):
        await append(house.leader, 2)
    other = await beside(house)
    place = house.store._place = Held(str(house.root / "store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiering_module, "LOOK_S", 1000.0)  # nothing waits for a look
        running = asyncio.create_task(house.tiering._keep_uploading())
        await asyncio.to_thread(place.begun.wait, 60)
        assert house.tiering._waiting.keys() == {77, 78}, "what was not served yet waits, and is measured"
        place.go.set()
        await until(lambda: other.machine.tier.objects)
        assert next_segment(house.leader) is not None
        await until(lambda: not house.tiering._waiting)
        running.cancel()
    assert next_segment(house.leader) is next_segment(other) is None


@scenario()
async def test_a_partition_whose_uploads_fail_holds_up_no_other(house: House) -> None:
    await house.fill()
    other = await beside(house)
    assert await house.tiering._serve(other)
    for _ in range(20):
        await append(other, 2)
    house.leader.machine.tier._objects_max = 0  # it has as many objects as it may have
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiering_module, "LOOK_S", 1000.0)
        running = asyncio.create_task(house.tiering._keep_uploading())
        await until(lambda: next_segment(other) is None)
        running.cancel()
    assert house.listed() == []


@scenario()
async def test_a_trim_of_many_objects_holds_up_no_upload(house: House) -> None:
    await house.fill()
    assert await serve(house)
    await house.drop(RECEIVED_MS + 1)
    house.tiering._swept.clear()
    await house.leader.trim(house.leader.log.log_end, topic_id=None, token=None)
    left = len(house.files())
    assert left > 4
    with pytest.MonkeyPatch.context() as patch:
        for module in (store_module, tiering_module):
            patch.setattr(module, "REMOVALS_A_TURN", 2)
        while left:
            assert await serve(house)
            left = max(0, left - 2)
            assert len(house.files()) == left
