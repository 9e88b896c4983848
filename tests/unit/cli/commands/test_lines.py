import asyncio
import os
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.cli.commands.lines import BLOCKS_AHEAD_MAX, BlockReader, Gatherer, LineCutter

CONTENT = st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\x00", b"\xff"]), max_size=40).map(b"".join)


def lines_of(content: bytes) -> list[bytes]:
    """What the cutter must give, said in another way."""
    lines = content.split(b"\n")
    return lines if lines[-1] else lines[:-1]


@given(content=CONTENT, cuts=st.lists(st.integers(0, 40)))
def test_lines_do_not_depend_on_where_blocks_end(content: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    cutter = LineCutter()
    lines = [line for a, z in pairwise(edges) for line in cutter.feed(content[a:z])]
    assert lines + cutter.end() == lines_of(content)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\r\nb", [b"a\r", b"b"]),
        (b"\n\na\n", [b"", b"", b"a"]),
    ],
)
def test_a_cr_stays_and_a_last_line_without_lf_counts(content: bytes, lines: list[bytes]) -> None:
    cutter = LineCutter()
    assert cutter.feed(content) + cutter.end() == lines


@given(sizes=st.lists(st.integers(0, 30), max_size=60), records=st.integers(1, 10), size_max=st.integers(1, 40))
def test_batches_keep_order_and_bounds_and_only_a_long_line_exceeds_them_alone(
    sizes: list[int], records: int, size_max: int
) -> None:
    lines = [b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    gatherer = Gatherer(records, size_max, overhead_bytes=2)
    batches = [*gatherer.add(lines), gatherer.take()]
    assert [line for batch in batches for line in batch] == lines
    for batch in batches:
        assert len(batch) <= records
        assert len(batch) <= 1 or sum(len(line) + 2 for line in batch) <= size_max


def test_a_reader_of_a_slow_pipe_gives_each_part_as_it_comes_and_tells_that_it_waits() -> None:
    async def run() -> None:
        readable, writable = os.pipe()
        with os.fdopen(readable, "rb") as file:
            reader = BlockReader(file)
            blocks = aiter(reader)
            for part in (b"one", b"two"):
                os.write(writable, part)
                assert await anext(blocks) == part
                assert reader.is_waiting
            os.close(writable)
            with pytest.raises(StopAsyncIteration):
                await anext(blocks)

    asyncio.run(run())


class Endless:
    """A file that counts its reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.enough = threading.Event()

    def read(self, size: int) -> bytes:
        self.reads += 1
        if self.reads == BLOCKS_AHEAD_MAX:
            self.enough.set()
        return b"x" if self.reads < 100 else b""


def test_only_some_blocks_are_read_ahead() -> None:
    async def run() -> None:
        file = Endless()
        reader = BlockReader(file)  # type: ignore[arg-type]
        assert await asyncio.to_thread(file.enough.wait, 10)
        assert file.reads == BLOCKS_AHEAD_MAX
        assert len([block async for block in reader]) == 99

    asyncio.run(run())


def test_a_read_error_reaches_the_reader() -> None:
    class Broken:
        def read(self, size: int) -> bytes:
            raise OSError("gone")

    async def run() -> None:
        with pytest.raises(OSError, match="gone"):
            _ = [block async for block in BlockReader(Broken())]  # type: ignore[arg-type]

    asyncio.run(run())
