"""What a process has freed goes back to the operating system."""

import asyncio
import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.cluster.node import memory

MIB = 1 << 20
BLOCK = 60_000


def resident() -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="malloc is not glibc's here")

FAULTS = """
import asyncio, resource
from stockade.cluster.node.memory import give_back_memory

async def scenario():
    task = asyncio.create_task(give_back_memory())
    await asyncio.sleep(0)
    for round in range(101):
        blocks = [b"x" * (1 << 20) for _ in range(8)]
        del blocks
        if round == 0:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    task.cancel()

asyncio.run(scenario())
"""


@needs_glibc
def test_memory_that_is_freed_and_used_again_at_once_is_not_mapped_anew() -> None:
    """A hundred times eight blocks, of 256 pages each: malloc gives them back each time unless it is told otherwise."""
    ran = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True)
    assert int(ran.stdout) < 8 * 256


@needs_glibc
def test_holes_between_blocks_that_are_still_used_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PERIOD_S", 0.01)

    async def scenario() -> None:
        blocks = [bytes(BLOCK) for _ in range(256 * MIB // BLOCK)]
        used = blocks[::32]
        del blocks
        before = resident()
        task = asyncio.create_task(memory.give_back_memory())
        async with asyncio.timeout(30):
            while resident() > before - 128 * MIB:
                await asyncio.wait([task], timeout=0.01)
                assert not task.done()
        task.cancel()
        assert len(used) > 100

    asyncio.run(scenario())
