"""The memory of a process stays small: one heap, and what is freed goes back to the operating system."""

import asyncio
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.cluster.node import memory

MIB = 1 << 20
BLOCK = 60_000
IS_GLIBC = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="malloc is not glibc's here")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def resident() -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


THREADS = """
import ctypes, sys, threading
from stockade.cluster.node.memory import share_one_heap

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fclose.argtypes = [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
if sys.argv[1] == "one":
    share_one_heap()
together = threading.Barrier(4)


def allocate():
    together.wait()
    blocks = [bytes(10_000) for _ in range(100)]
    together.wait()


threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


@IS_GLIBC
@pytest.mark.parametrize("heaps", ["one", "several"])
def test_threads_of_a_node_share_one_heap_and_would_have_several(tmp_path: Path, heaps: str) -> None:
    told = tmp_path / "malloc.xml"
    subprocess.run([sys.executable, "-c", THREADS, heaps, str(told)], check=True, env=ENVIRONMENT, timeout=60)
    count = told.read_text(encoding="ascii").count("<heap nr=")
    assert (count == 1) == (heaps == "one"), f"{count} heaps"


@IS_GLIBC
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
