import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stockade.cluster.replica import maintenance
from stockade.cluster.replica.maintenance import Maintenance
from stockade.cluster.replica.replica_manager import ReplicaManager
from stockade.partition.errors import LeaderNotAvailable


class Partition:
    """A replica that refuses as often as it is told to before it does what it is asked."""

    topic, partition = "t", 0

    def __init__(self, *, leads: bool = True, refusals: int = 0, has_unwritten: bool = False) -> None:
        self.has_unwritten = has_unwritten
        self.group = SimpleNamespace(is_leader=leads)
        self.is_configured = False
        self.is_old = True
        self.refusals = refusals

    async def configure(self) -> None:
        self._refuse()
        self.is_configured = True

    def has_due(self, wall_ms: int) -> bool:
        return self.is_old

    async def retain(self, wall_ms: int) -> None:
        self._refuse()
        self.is_old = False

    def write_out(self) -> None:
        self.has_unwritten = False

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise LeaderNotAvailable()


class Held:
    """What Upkeep needs of Replicas."""

    def __init__(self, *partitions: Partition) -> None:
        self.partitions = partitions
        self.looks_left = 0
        self.seen = asyncio.Event()

    def all(self) -> tuple[Any, ...]:
        if self.looks_left == 0:
            self.seen.set()
            return ()
        self.looks_left -= 1
        return self.partitions


def look(looks: int, *partitions: Partition) -> None:
    async def scenario() -> None:
        held = Held(*partitions)
        held.looks_left = looks
        task = asyncio.create_task(Maintenance(cast(ReplicaManager, held)).run())
        await held.seen.wait()
        task.cancel()

    asyncio.run(scenario())


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PERIOD_S", 0)


def test_the_first_round_configures_a_led_partition_and_applies_retention() -> None:
    led = Partition()
    look(1, led)
    assert led.is_configured
    assert not led.is_old


def test_maintenance_skips_partitions_that_another_node_leads() -> None:
    follower = Partition(leads=False)
    look(12, follower)
    assert not follower.is_configured
    assert follower.is_old


def test_a_failed_step_is_repeated_and_delays_no_other_partition() -> None:
    failing, other = Partition(refusals=5), Partition()
    look(1, failing, other)
    assert (failing.is_configured, other.is_configured, other.is_old) == (False, True, False)
    look(2 * maintenance.RETENTION_LOOKS, failing, other)
    assert (failing.is_configured, failing.is_old) == (True, False)


def test_every_replica_writes_its_small_batches_of_a_follower_too() -> None:
    replicas = [Partition(leads=False, has_unwritten=True) for _ in range(maintenance.WRITES_A_TURN + 1)]
    look(1, *replicas)
    assert [replica.has_unwritten for replica in replicas] == [False] * len(replicas)
