"""docs/python.md: each block runs, twice in a row, in a program that has the names which the page takes for granted."""

import ast
import asyncio
import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stockade import Client, Consumer, Producer, sync
from stockade.errors import ProducerFenced, SessionExpired, UnknownSession
from stockade.testing import Cluster

from .pages import ROOT, blocks

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
IMPORTS, *BLOCKS = [block.text for block in blocks(PAGE) if block.language == "python" and block.excuse is None]
RECORDS = 5


class EnoughError(Exception):
    """What the application's own function raises to leave an endless loop of the page."""


class Application:
    """The functions of the reader's program that the page calls. They count, and end endless loops."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.calls: list[str] = []

    def names(self) -> dict[str, Any]:
        errors = {each.__name__: each for each in (ProducerFenced, SessionExpired, UnknownSession)}
        store = SimpleNamespace(write=lambda *_, token: self.calls.append(f"token {token}"))
        own = {"next_record": self._next_record, "handle": self._handle, "work": self._work, "store": store}
        return {"URL": self._cluster.url, **errors, **own}

    def _next_record(self) -> bytes:
        """The writer is evicted before the second record; after the fourth the program ends."""
        self.calls.append("next_record")
        if len(self.calls) == 2:
            self._cluster.fence("orders")
        if len(self.calls) > 4:
            raise EnoughError
        return b"paid"

    def _handle(self, _: object) -> None:
        self.calls.append("handle")
        if len(self.calls) == 2:  # the first record is committed; the second one comes again
            raise EnoughError

    def _work(self) -> None:
        self.calls.append("work")
        if len(self.calls) == 1:
            self._cluster.fence("orders")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running, sync.Producer(running.url) as producer:
        for topic in ("orders", "readings"):
            running.create_topic(topic, partitions=2)
        deliveries = [producer.send("orders", b"%d" % number, partition=0) for number in range(RECORDS)]
        _ = [delivery.result() for delivery in deliveries]
        yield running


def is_blocking(text: str) -> bool:
    return "# from stockade.sync" in text


def imports(text: str) -> dict[str, Any]:
    """What the page imports: the names are the same for asyncio and for threads."""
    names: dict[str, Any] = {}
    lines = [line for line in IMPORTS.splitlines() if ("stockade.sync" in line) == is_blocking(text)]
    exec("\n".join([*lines, "from stockade import Client", "from stockade.testing import Cluster"]), names)
    if is_blocking(text):
        names["Client"] = sync.Client
    return names


async def run(text: str, names: dict[str, Any]) -> None:
    compiled = compile(text, "docs/python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(compiled, names)
    if inspect.iscoroutine(outcome):
        await outcome


async def run_traced(text: str, names: dict[str, Any]) -> None:
    """With a producer, a client and a record, which the page has from its other blocks."""
    url = names["URL"]
    async with Producer(url) as producer, Client(url) as client, Consumer(url) as consumer:
        record = await anext(aiter(consumer.read("orders", [0], start="earliest")))
        await run(text, names | {"producer": producer, "client": client, "record": record})


@pytest.mark.parametrize("text", BLOCKS, ids=[text.splitlines()[0][:40] for text in BLOCKS])
def test_the_block_runs_and_runs_again(text: str, cluster: Cluster) -> None:
    for _ in range(2):
        application = Application(cluster)
        names = imports(text) | application.names()
        runs: Callable[[str, dict[str, Any]], Any] = run_traced if "otel" in text else run
        try:
            asyncio.run(asyncio.wait_for(runs(text, names), 60))
        except EnoughError:
            assert application.calls
        else:
            assert "next_record(" not in text and "handle(" not in text, "an endless loop has ended by itself"


def test_all_imports_of_the_page_exist() -> None:
    exec(IMPORTS, {})


def test_every_other_block_says_why_it_is_not_run() -> None:
    assert {block.language for block in blocks(PAGE) if block.excuse is None} == {"python"}
