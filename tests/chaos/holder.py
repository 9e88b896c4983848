"""A client process of the tests that holds a slot and writes, one batch after the other, until it is refused for good.

``python holder.py ORDER``. Prints a line of JSON for all that it learns. It is stopped and resumed from outside, or at
a point of its own (broken_node.py).
"""

import asyncio
import json
import sys

import msgspec

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.retry import is_momentary
from stockade.client.session.session import Session
from stockade.partition.api.topics import Mode
from stockade.partition.commands import Stamp, Token
from stockade.partition.errors import StockadeError
from stockade.partition.records.batch import batch_from_columns

REFUSALS = 3
"""So often the same batch is tried again after it was refused for good."""
BATCH_BYTES_MAX = 1 << 20


class Order(msgspec.Struct, frozen=True):
    """Where to write, as whom, and whether to make way for others."""

    urls: list[str]
    topic: str
    name: str
    ttl_ms: int
    mode: Mode = "Exclusive"
    batches: int = 1_000_000


class Learnt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: it holds the slot (``epoch``), a batch is stored (``offset``), or was refused (``code``)."""

    name: str | None = None
    epoch: int | None = None
    offset: int | None = None
    code: str | None = None
    outcome: dict[str, object] | None = None


async def write(client: Client, topic: str, name: str, token: Token, stamp: Stamp) -> int:
    """Append one record named and valued so, until its fate is known; its offset. Raises what is final."""
    batch = batch_from_columns([name.encode()], [name.encode()], None, None, now_ms=0, batch_bytes_max=BATCH_BYTES_MAX)
    while True:
        try:
            answer = await client.append(topic, 0, batch.message, token=token, stamp=stamp, on_written=lambda: None)
        except StockadeError as error:
            if not is_momentary(error):
                raise
            await asyncio.sleep(0.05)
            continue
        assert answer.base_offset is not None
        return answer.base_offset


async def hold(order: Order) -> None:
    """Take the slot and write."""
    config = ClientConfig(bootstrap=tuple(order.urls), request_timeout_ms=10_000)
    async with Client(config) as client:
        identity = await client.init_producer()
        session = await Session(client, order.name, ttl_ms=order.ttl_ms).open()
        fence = await session.acquire(order.topic, [0], mode=order.mode)
        token = fence.token(0)
        say(Learnt(epoch=token.epoch))
        refused, seq = 0, 0
        while refused < REFUSALS and seq < order.batches:
            name = f"{order.name}/{seq}"
            try:
                stamp = Stamp(identity.producer_id, identity.producer_epoch, seq)
                say(Learnt(name, offset=await write(client, order.topic, name, token, stamp)))
                seq += 1
            except StockadeError as error:
                refused += 1
                say(Learnt(name, code=error.code, outcome=error.fields.get("outcome")))


def say(learnt: Learnt) -> None:
    """Tell at once: the process may be stopped at any moment."""
    sys.stdout.write(msgspec.json.encode(learnt).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(hold(msgspec.convert(json.loads(sys.argv[1]), Order)))
