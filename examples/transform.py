"""Consume, process, produce, each input exactly once: words of the lines of one topic, by word, into another topic.

    python examples/transform.py lines line-words one &
    python examples/transform.py lines line-words two &

Kill either one at any moment: the other goes on, and no word is lost or stored twice. It needs no transaction, because
one writer at a time is a fact:

- What one input gives for one partition is one batch, stored whole or not at all, and each of its records names the
  input in the header ``from``. So the last record of a partition says which inputs it has.
- A successor owns all partitions before it looks. From then on the log refuses its predecessor, so what it sees is all
  that there is; it reads again from the committed position and leaves out what a partition has already.
- The position is committed after everything before it is stored. It only saves reading again: a position that is too
  low, of a process that was replaced, costs time and no word.
"""

import argparse
import asyncio
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from stockade import Client, ClientConfig, ConsumedRecord, Consumer, Producer, StockadeError
from stockade.errors import TopicAlreadyExists

URL = os.environ.get("STOCKADE_URL", "http://127.0.0.1:7101")
GROUP = "transform"
PARTITIONS = 4
TARGET = {"require_fence": True, "retention_ms": -1}
"""The last record of each partition says which inputs it has, so no age may drop it."""
COMMIT_EVERY = 100
"""Inputs after which the position is committed."""


async def transform(source: str, target: str, name: str) -> None:
    """Stand by, take over the target's partitions, and go on where the previous process stopped."""
    config = ClientConfig(bootstrap=URL, session_ttl_ms=3_000)
    async with Producer(config, name=f"{target}-{name}") as producer, Consumer(config) as consumer:
        client = producer.client
        with suppress(TopicAlreadyExists):  # then it is there with settings of its own
            await client.create_topic(source)
        await client.create_topic(target, partitions=PARTITIONS, config=TARGET)
        async with producer.exclusive(target, mode="WaitForExclusive") as fence:
            stored = {number: await stored_until(client, target, number) for number in range(PARTITIONS)}
            begin = (await client.position(GROUP, source, 0)).offset or 0
            print(f"{name} transforms from input {begin} on with epoch {fence.epoch}", flush=True)
            async for record in consumer.read(source, [0], begin, follow=True):
                for number, words in outputs(record).items():
                    if record.offset >= stored[number]:
                        headers = [[("from", b"%d" % record.offset)]] * len(words)
                        _ = await producer.send_batch(target, number, words, headers=headers)
                if (record.offset + 1) % COMMIT_EVERY == 0:
                    await producer.flush()
                    await client.commit_position(GROUP, source, 0, record.offset + 1)


def outputs(record: ConsumedRecord) -> Mapping[int, list[bytes]]:
    """The words of a line, by the partition of each: the same again whenever the line is read again."""
    words = defaultdict(list)
    for word in (record.value or b"").split():
        words[zlib.crc32(word) % PARTITIONS].append(word)
    return words


async def stored_until(client: Client, target: str, partition: int) -> int:
    """The first input of which the partition has no word yet, as far as its last record tells."""
    tail = await client.tail(target, partition, 1)
    return int(dict(tail.records[-1].headers)["from"]) + 1 if tail.records else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="topic with lines; its partition 0 is read")
    parser.add_argument("target", help="topic for the words")
    parser.add_argument("name", help="of this process, in what it prints")
    chosen = parser.parse_args()
    try:
        asyncio.run(transform(chosen.source, chosen.target, chosen.name))
    except KeyboardInterrupt:
        print(f"{chosen.name} leaves")
    except StockadeError as error:
        sys.exit(f"{chosen.name} stops: {error}")
