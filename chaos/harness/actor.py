"""An actor of a workload as a child process (child.py): ``python -m stockade.chaos.harness.actor``."""

import asyncio
import logging
import random

import msgspec

from ...client.config import ClientConfig
from ..history.history import History
from ..workloads.catalogue import WORKLOADS
from ..workloads.protocol import Actor, ActorContext
from .child import take_order


class Order(msgspec.Struct, frozen=True):
    """The order for one actor: its name and workload, the cluster and the topic. ``seed`` decides all its choices."""

    workload: str
    actor: str
    bootstrap: list[str]
    topic: str
    partitions: int
    seed: str

    def find(self) -> Actor:
        return next(actor for actor in WORKLOADS[self.workload].actors if actor.name == self.actor)

    def context(self, history: History) -> ActorContext:
        config = client_config(self.bootstrap)
        chance = random.Random(self.seed)  # a seed replays it  # noqa: S311  # nosec B311
        return ActorContext(self.actor, config, self.topic, self.partitions, history, chance)


def client_config(bootstrap: list[str]) -> ClientConfig:
    """A configuration with short timeouts, so that a silent node costs an actor seconds, not minutes."""
    return ClientConfig(
        bootstrap=tuple(bootstrap), connect_timeout_ms=1_000, request_timeout_ms=8_000, delivery_timeout_ms=60_000
    )


async def main() -> None:
    """Take the order and work until standard input has a line or ends; then return once the actor has finished what it
    had begun.
    """
    order, history, lines = await take_order(Order)
    context = order.context(history)
    working = asyncio.create_task(order.find().work(context))
    stop_requested = asyncio.create_task(lines.readline())
    await asyncio.wait({working, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
    context.stopping.set()
    await working


if __name__ == "__main__":
    logging.getLogger("stockade.client").setLevel(logging.ERROR)  # nodes do not answer here because they were stopped
    asyncio.run(main())
