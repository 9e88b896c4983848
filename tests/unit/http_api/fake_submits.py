"""Appends for which nobody waits, by way of those for which somebody does."""

import asyncio
from typing import Any

from stockade.cluster.model import Conditions, Leader, Settle
from stockade.partition.commands import Appended
from stockade.partition.records.batch import Batch

_under_way: set[asyncio.Task[None]] = set()


class FakeSubmitting:
    """A base of FakePartition."""

    node_id: str

    @property
    def is_leading(self) -> bool:
        return self.leader().node_id == self.node_id

    def submit(self, batch: Batch, conditions: Conditions, settle: Settle) -> bool:
        async def append() -> None:
            try:
                found: Any = await self.append(batch, conditions)
            except Exception as error:
                found = error
            settle(found)

        task = asyncio.get_running_loop().create_task(append())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)
        return True

    async def append(self, batch: Batch, conditions: Conditions) -> Appended:
        raise NotImplementedError

    def leader(self) -> Leader:
        raise NotImplementedError
