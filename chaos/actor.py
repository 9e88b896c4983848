"""An actor in a process of its own, so that it can be stalled: ``python -m stockade.chaos.actor``.

Reads an Order from standard input, works until the line ``stop`` or the input's end, and writes its history to standard
output, an event a line.
"""

import asyncio
import io
import random
import sys

import msgspec

from ..client.config import ClientConfig
from .history import History
from .workloads.catalogue import WORKLOADS
from .workloads.protocol import Actor, Stage


class Order(msgspec.Struct, frozen=True):
    """Who shall work where. ``seed`` decides all choices."""

    workload: str
    actor: str
    bootstrap: list[str]
    topic: str
    partitions: int
    seed: str

    def find(self) -> Actor:
        """The actor of that name."""
        return next(actor for actor in WORKLOADS[self.workload].actors if actor.name == self.actor)

    def stage(self, history: History) -> Stage:
        """What it works with."""
        config = client_config(self.bootstrap)
        chance = random.Random(self.seed)  # noqa: S311
        return Stage(self.actor, config, self.topic, self.partitions, history, chance)


def client_config(bootstrap: list[str]) -> ClientConfig:
    """As impatient as it must be so that a silent node costs an actor seconds, not minutes."""
    return ClientConfig(
        bootstrap=tuple(bootstrap), connect_timeout_ms=1_000, request_timeout_ms=8_000, delivery_timeout_ms=60_000
    )


async def main() -> None:
    """Take the order and work, as long as the parent is there."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    order = msgspec.json.decode(await lines.readline(), type=Order)
    # Unbuffered: what happened before a stall must be known before it ends.
    stage = order.stage(History(io.FileIO(sys.stdout.fileno(), "wb", closefd=False)))
    working = asyncio.create_task(order.find().work(stage))
    await asyncio.wait({working, asyncio.create_task(_told(lines))}, return_when=asyncio.FIRST_COMPLETED)
    stage.stopping.set()
    await working


async def _told(lines: asyncio.StreamReader) -> None:
    await lines.readline()


if __name__ == "__main__":
    asyncio.run(main())
