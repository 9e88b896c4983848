"""Periodic work on a node's replicas. All of them write small batches to their segments; those that lead also put a
changed configuration in force, and drop the records that are past retention.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable

from ...partition.errors import StockadeError
from ..condition import aligned_s
from .replica import Replica
from .replica_manager import ReplicaManager

PERIOD_S = 1.0
"""Between two looks at all replicas of this node."""
WRITES_A_TURN = 100
"""Most replicas that write their batches in one turn of the loop, some 10 us each."""
RETENTION_LOOKS = 10
"""One look in this many applies the retention."""

_log = logging.getLogger(__name__)


class Maintenance:
    """The task that looks after the replicas of this node. A step that a partition refuses is repeated later."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def run(self) -> None:
        """Runs until cancelled."""
        looks = 0
        while True:
            held = list(self._replicas.all())
            led = [replica for replica in held if replica.group.is_leader]
            steps = [_try(replica, replica.configure()) for replica in led if not replica.is_configured]
            if looks % RETENTION_LOOKS == 0:
                now_ms = int(time.time() * 1000)
                steps += [_try(replica, replica.retain(now_ms)) for replica in led if replica.has_due(now_ms)]
            await asyncio.gather(*steps)
            await _write_out([replica for replica in held if replica.has_unwritten])
            looks += 1
            await asyncio.sleep(aligned_s(PERIOD_S))


async def _write_out(replicas: list[Replica]) -> None:
    """Write batches to the files, so that segments on disk are about PERIOD_S behind memory at most. An OSError is not
    caught here, and stops the node.
    """
    for number, replica in enumerate(replicas, 1):
        replica.write_out()
        if number % WRITES_A_TURN == 0:
            await asyncio.sleep(0)


async def _try(replica: Replica, step: Awaitable[None]) -> None:
    try:
        await step
    except StockadeError as refusal:
        _log.info("%s/%d has to wait: %s", replica.topic, replica.partition, refusal)
