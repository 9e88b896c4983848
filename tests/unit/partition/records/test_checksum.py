"""Sums are those that zlib makes: what an older version has written is read, and others can check it."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from stockade.partition.records.checksum import crc32


@given(st.binary(max_size=5000), st.integers(0, (1 << 32) - 1))
def test_a_checksum_is_that_of_zlib(data: bytes, start: int) -> None:
    assert crc32(data, start) == zlib.crc32(data, start)
    assert crc32(memoryview(data)[1:]) == zlib.crc32(data[1:])
