"""A limit on files leaves no room for another one, and ends with the strike."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.faults.fault import Broken
from stockade.chaos.faults.resources import FewFiles

OPENS = """
import os, sys
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
for file in files[3:10]:
    os.close(file)
print("there", flush=True)
for _ in sys.stdin:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        print("opened", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


class Node:
    """A process that has closed some files, and opens another one when asked."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.arena: Any = SimpleNamespace(nodes=["n1"], pid=lambda _: process.pid, start=lambda _: None)
        assert self._read() == "there"

    def opens(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    async def strike(self) -> Broken:
        return await FewFiles().strike(self.arena, random.Random(1))

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def node() -> Iterator[Node]:
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Node(process)


def test_a_node_that_may_open_no_more_files_opens_none_though_lower_numbers_are_free(node: Node) -> None:
    """As in every process that has closed a file."""

    async def struck() -> tuple[str, str]:
        broken = await node.strike()
        during = node.opens()
        await broken.heal()
        return during, node.opens()

    assert asyncio.run(struck()) == ("Too many open files", "opened")


def test_two_strikes_on_one_node_leave_it_without_a_limit_in_whatever_order_they_heal(node: Node) -> None:
    """The second one found the limit of the first one, and restored that."""

    async def struck() -> None:
        first, second = await node.strike(), await node.strike()
        await first.heal()
        await second.heal()

    asyncio.run(struck())
    assert node.opens() == "opened"
