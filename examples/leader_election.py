"""Leader election: start it twice. One leads, the other waits; stop the first one, and the other leads.

    python examples/leader_election.py alice &
    python examples/leader_election.py bob &

The epoch that it prints is a fencing token: it grows with every leader, and an append made with it is refused by the
log once there is a newer one. So a leader that was stalled and does not know yet that it was replaced does no harm.
"""

import argparse
import asyncio
import os
import sys

from stockade import Client, Session, StockadeError

URL = os.environ.get("STOCKADE_URL", "http://127.0.0.1:7101")
TOPIC = "election"


async def lead(name: str) -> None:
    """The election, in five lines."""
    async with Client(URL.split(",")) as client, Session(client, name) as session:
        await client.create_topic(TOPIC)
        fence = await session.acquire(TOPIC, mode="WaitForExclusive")
        async with fence.guard():  # cancels its body when another process leads
            await work(name, fence.epoch)


async def work(name: str, epoch: int) -> None:
    """Do what only the leader does: here, say that it leads, and wait until the process is stopped."""
    print(f"{name} leads with epoch {epoch}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of this candidate; each has its own")
    name = parser.parse_args().name
    try:
        asyncio.run(lead(name))
    except KeyboardInterrupt:
        print(f"{name} leaves")
    except StockadeError as error:
        sys.exit(f"{name} stops: {error}")
