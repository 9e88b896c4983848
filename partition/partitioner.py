"""The partition of a key: Kafka's default partitioner, so that Kafka and Stockade place a key alike."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of Kafka, signed: from -2147483648 to 2147483647."""
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for position in range(0, whole, 4):
        word = _mix(int.from_bytes(data[position : position + 4], "little"))
        word ^= word >> _SHIFT
        value = _mix(value) ^ _mix(word)
    if whole < len(data):
        value = _mix(value ^ int.from_bytes(data[whole:], "little"))
    value = _mix(value ^ (value >> 13))
    value ^= value >> 15
    return value - (1 << 32) if value >> 31 else value


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key, from 0, of a topic with ``partitions`` of them (at least 1)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _mix(word: int) -> int:
    return word * _MULTIPLIER & _MASK
