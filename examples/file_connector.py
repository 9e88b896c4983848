"""A connector that copies the lines of a growing file into a topic, each once and in order, with a standby.

    python examples/file_connector.py app.log lines one &
    python examples/file_connector.py app.log lines two &

Both run all the time. The first one owns the partition and copies; the second one stands by. Kill the first, or stop
it with SIGSTOP for longer than its session lives: the second takes over where the first got to, and when the first
wakes up the log refuses it. The place in the file travels with the records: the key of each is the position behind its
line. So there is nothing to commit elsewhere, and no line is copied twice or left out, even if copiers crash. The topic
keeps its records for good: with the last one its place in the file would go.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from stockade import ClientConfig, Producer, StockadeError

URL = os.environ.get("STOCKADE_URL", "http://127.0.0.1:7101")
SESSION_TTL_MS = 3_000
LINES_MAX = 500
POLL_S = 0.2


async def connect(path: Path, topic: str, name: str) -> None:
    """Stand by until no other copier holds the partition, take it over, and copy."""
    config = ClientConfig(bootstrap=tuple(URL.split(",")), session_ttl_ms=SESSION_TTL_MS)
    async with Producer(config, name=f"{topic}-{name}") as producer:
        await producer.client.create_topic(topic, config={"require_fence": True, "retention_ms": -1})
        async with producer.exclusive(topic, [0], mode="WaitForExclusive") as fence:
            # Own first, then look: no other process can add records between the look and our write.
            position = await copied_so_far(producer, topic)
            print(f"{name} copies from position {position} with epoch {fence.epoch}", flush=True)
            await copy(producer, topic, path, position)


async def copied_so_far(producer: Producer, topic: str) -> int:
    """The position in the file behind the last line that was copied, in bytes."""
    tail = await producer.client.tail(topic, 0, 1)
    return int(tail.records[-1].key or 0) if tail.records else 0


async def copy(producer: Producer, topic: str, path: Path, position: int) -> None:
    """Copy whole lines from ``position`` on, and follow the file as it grows. Raises when the partition is lost."""
    with path.open("rb") as file:
        file.seek(position)
        while True:
            keys: list[bytes] = []
            values: list[bytes] = []
            while len(values) < LINES_MAX and (line := file.readline()).endswith(b"\n"):
                position += len(line)
                keys.append(str(position).encode())
                values.append(line[:-1])
            file.seek(position)  # a line that is still being written is read again when it is whole
            if values:
                _ = await producer.send_batch(topic, 0, values, keys=keys)
            else:
                await asyncio.sleep(POLL_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="text file whose lines are copied")
    parser.add_argument("topic", help="is created when it is missing")
    parser.add_argument("name", help="of this process: a second one with the same name replaces the first")
    given = parser.parse_args()
    if not given.file.is_file():
        parser.error(f"there is no file {given.file}")
    try:
        asyncio.run(connect(given.file, given.topic, given.name))
    except KeyboardInterrupt:
        print(f"{given.name} leaves")
    except StockadeError as error:
        sys.exit(f"{given.name} stops: {error}")
