import pytest

from stockade.partition.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(key: bytes, value: int) -> None:
    assert murmur2(key) == value


@pytest.mark.parametrize("size", range(9))
def test_murmur2_takes_every_remainder_of_four_bytes(size: int) -> None:
    assert -(1 << 31) <= murmur2(b"\xff" * size) < 1 << 31


def test_a_key_with_a_negative_hash_falls_into_a_partition() -> None:
    assert partition_for_key(b"21", 16) == (-973932308 & 0x7FFFFFFF) % 16
    assert partition_for_key(b"21", 1) == 0


def test_keys_spread_over_all_partitions() -> None:
    assert {partition_for_key(b"%d" % number, 16) for number in range(1000)} == set(range(16))
