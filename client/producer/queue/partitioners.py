"""Which partition a record goes to when the application does not say. No IO, no clock."""

import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..partition.errors import InvalidRequest, StockadeError
from ..partition.partitioner import partition_for_key
from .batches import Record


class Choice(NamedTuple):
    """What a partitioner may look at. ``current``: the partition whose batch is still open, if there is one.

    ``closed``: partitions that have halted in this producer. A record that goes to one is refused.
    """

    topic: str
    record: Record
    partitions: int
    current: int | None
    closed: frozenset[int] = frozenset()


class Partitioner(Protocol):
    """Any callable from a Choice to a partition's number. It may remember; a producer has one of its own."""

    def __call__(self, choice: Choice) -> int:
        """The partition, from 0 to ``choice.partitions`` - 1. What it raises fails that record alone."""
        ...


class Sticky:
    """Whatever the key: fill one batch, then go on to the next partition that is not closed.

    The first one depends on ``seed``.
    """

    def __init__(self, seed: str = "") -> None:
        self._first = zlib.crc32(seed.encode())
        self._last: dict[str, int] = {}

    def __call__(self, choice: Choice) -> int:
        """The open batch's partition, or the next one."""
        if choice.current is not None:
            return choice.current
        last = self._last.get(choice.topic, self._first)
        turns = ((last + turn) % choice.partitions for turn in range(1, choice.partitions + 1))
        following = (last + 1) % choice.partitions
        self._last[choice.topic] = next((number for number in turns if number not in choice.closed), following)
        return self._last[choice.topic]


class RoundRobin(Sticky):
    """Whatever the key: one record to each partition in turn."""

    def __call__(self, choice: Choice) -> int:
        """The next partition."""
        return super().__call__(choice._replace(current=None))


class Murmur2(Sticky):
    """Equal keys to one partition, as Kafka's default partitioner computes it; records without a key are sticky."""

    def __call__(self, choice: Choice) -> int:
        """The key's partition."""
        key = choice.record.key
        return super().__call__(choice) if key is None else partition_for_key(key, choice.partitions)


class Manual:
    """The application names a partition with every record, or the record is refused."""

    def __call__(self, choice: Choice) -> int:
        """Raises InvalidRequest."""
        raise InvalidRequest("partition: this producer's partitioner is manual, so each record must name one")


_BY_NAME: dict[str, Callable[[str], Partitioner]] = {
    "murmur2": Murmur2,
    "sticky": Sticky,
    "round_robin": RoundRobin,
    "manual": lambda _: Manual(),
}


def partitioner_of(wanted: str | Partitioner, seed: str) -> Partitioner:
    """One by its name (murmur2, sticky, round_robin, manual), or the callable as it is. Raises InvalidRequest."""
    if not isinstance(wanted, str):
        return wanted
    if wanted not in _BY_NAME:
        raise InvalidRequest(f"partitioner: {wanted!r} is none of {', '.join(_BY_NAME)}")
    return _BY_NAME[wanted](seed)


def stays_open(partitioner: Partitioner) -> bool:
    """Whether it sends every record without a key where a batch is open, so that it need not be asked."""
    return type(partitioner) in (Sticky, Murmur2)


def choose(partitioner: Partitioner, choice: Choice) -> int:
    """The choice, checked. Raises InvalidRequest for one that there is not, or for whatever the partitioner raised."""
    try:
        partition = partitioner(choice)
    except StockadeError:
        raise
    except Exception as error:
        raise InvalidRequest(f"the partitioner failed: {error!r}") from error
    if not isinstance(partition, int) or not 0 <= partition < choice.partitions:
        raise InvalidRequest(f"the partitioner chose {partition!r} of {choice.partitions} partitions")
    return partition
