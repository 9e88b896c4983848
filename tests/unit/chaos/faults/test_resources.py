"""A limit on files leaves no room for another one."""

import asyncio
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from stockade.chaos.faults.resources import FewFiles

OPENS = """
import os, sys
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
for file in files[3:10]:
    os.close(file)
print("there", flush=True)
for _ in range(2):
    sys.stdin.readline()
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        print("opened", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


def test_a_node_that_may_open_no_more_files_opens_none_though_lower_numbers_are_free() -> None:
    """As in every process that has closed a file."""
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdin is not None and node.stdout is not None

        def asked() -> str:
            assert node.stdin is not None and node.stdout is not None
            node.stdin.write("\n")
            node.stdin.flush()
            return node.stdout.readline().strip()

        assert node.stdout.readline() == "there\n"
        there: Any = SimpleNamespace(nodes=["n1"], pid=lambda _: node.pid, start=lambda _: None)

        async def struck() -> tuple[str, str]:
            broken = await FewFiles().strike(there, random.Random(1))
            during = asked()
            await broken.heal()
            return during, asked()

        assert asyncio.run(struck()) == ("Too many open files", "opened")
