"""``python forking.py URL KIND``: uses an object of this process in a forked child, then a new one there."""

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import stockade
from stockade import StockadeError
from stockade.sync import Client, Consumer, Producer, Session

logging.getLogger("stockade").setLevel(logging.ERROR)  # a warning of a slow machine is no trouble of the child


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextmanager
def made(kind: str, url: str, producer: Producer) -> Iterator[Callable[[], Any]]:
    """A use of an object of this process."""
    with Client(url) as client, Session(client, "s") as session, Consumer(url) as consumer:
        fence = session.acquire("t")
        session.release(fence)
        records = consumer.read("t", follow=True)
        assert next(records).value == b"first"
        with consumer.pieces("t", follow=True) as reading:
            delivery = producer.send("t", b"under way")
            uses: dict[str, Callable[[], Any]] = {
                "producer": lambda: producer.send("t", b"v"),
                "client": client.topics,
                "consumer": lambda: next(consumer.read("t")),
                "session": lambda: session.acquire("t"),
                "delivery": delivery.result,
                "reading": lambda: next(iter(reading)),
                "loss": lambda: session.is_lost,
                "outcome": lambda: delivery.is_done,
            }
            yield uses[kind]
            records.close()  # type: ignore[attr-defined]


def in_child(use: Callable[[], Any], url: str) -> None:
    """Never returns."""
    try:
        try:
            use()
        except StockadeError as error:
            say(f"child: {error.code}")
        with Producer(url) as own:
            own.send("t", b"child").result(60)
            say("child: stored with its own")
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def forked(use: Callable[[], Any], url: str) -> None:
    child = os.fork()
    if child == 0:
        in_child(use, url)
    os.waitpid(child, 0)


async def asynchronous(url: str) -> None:
    async with stockade.Producer(url) as producer:
        await (await producer.send("t", b"first"))
        forked(lambda: asyncio.new_event_loop().run_until_complete(producer.flush()), url)
        await (await producer.send("t", b"parent"))
        say("parent: stored")


def main(url: str, kind: str) -> None:
    if kind == "asyncio":
        asyncio.run(asynchronous(url))
        return
    with Producer(url, name="parent") as producer:
        producer.send("t", b"first").result(60)
        with made(kind, url, producer) as use:
            forked(use, url)
        producer.send("t", b"parent").result(60)
        say("parent: stored")


main(*sys.argv[1:])
