"""A job journal: records which jobs were started and finished, so that the next worker knows which to repeat.

    python examples/job_journal.py add resize-1 resize-2 mail-3
    python examples/job_journal.py work

Stop ``work`` in the middle of a job and start it again: it finishes what was begun first. Start it twice: the second
one waits. A job whose end was not written down is done again, so jobs must bear that; one whose end was written down
never is, not even when a worker was stalled and wakes up late, since the journal refuses its writes.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from stockade import Consumer, Producer, StockadeError

URL = os.environ.get("STOCKADE_URL", "http://127.0.0.1:7101")
JOBS, JOURNAL = "jobs", "job-journal"
JOB_S = float(os.environ.get("JOB_SECONDS", "1"))


async def add(jobs: Sequence[str]) -> None:
    """Add jobs; any client may do so."""
    async with Producer(URL.split(",")) as producer:
        await producer.client.create_topic(JOBS)
        for job in jobs:
            _ = await producer.send(JOBS, job.encode())
        await producer.flush()
    print(f"added {len(jobs)} jobs")


async def work() -> None:
    """Do the jobs that are not finished, and wait for more. Only one worker at a time may write to the journal."""
    async with Producer(URL.split(",")) as producer, Consumer(URL.split(",")) as consumer:
        await producer.client.create_topic(JOBS)
        # A journal that forgets what was finished would have it done again: it is kept for good.
        await producer.client.create_topic(JOURNAL, config={"require_fence": True, "retention_ms": -1})
        async with producer.exclusive(JOURNAL, mode="WaitForExclusive"):
            done = {record.key async for record in consumer.read(JOURNAL) if record.value == b"finished"}
            async for job in consumer.read(JOBS, follow=True):
                key = str(job.offset).encode()
                if key not in done:
                    await run(producer, key, (job.value or b"").decode())


async def run(producer: Producer, key: bytes, name: str) -> None:
    """Write down that the job was started, do it, and write down that it was finished."""
    await (await producer.send(JOURNAL, b"started", key=key))
    await asyncio.sleep(JOB_S)  # the job itself
    await (await producer.send(JOURNAL, b"finished", key=key))
    print(f"finished {name}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("add", help="add jobs").add_argument("jobs", nargs="+", metavar="JOB")
    commands.add_parser("work", help="do the jobs, one after the other")
    given = parser.parse_args()
    try:
        asyncio.run(add(given.jobs) if given.command == "add" else work())
    except KeyboardInterrupt:
        print("stopped")
    except StockadeError as error:
        sys.exit(f"{given.command} stops: {error}")
