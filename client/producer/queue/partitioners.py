"""The partition of a record for which the application names none."""

import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ....partition.errors import InvalidRequest, StockadeError
from ....partition.partitioner import partition_for_key
from .batch import Record


class Choice(NamedTuple):
    """The facts from which a partitioner decides. ``partitions``: how many partitions the topic has.

    ``current``: the partition whose batch still takes records, None if there is none. ``closed``: partitions that have
    halted in this producer, where a record would be refused. ``failing``: partitions to which the producer is sending a
    batch again, since they have no leader or do not answer.
    """

    topic: str
    record: Record
    partitions: int
    current: int | None
    closed: frozenset[int] = frozenset()
    failing: frozenset[int] = frozenset()


class Partitioner(Protocol):
    """Any callable from a Choice to a partition's number. It may have state: each producer has its own."""

    def __call__(self, choice: Choice) -> int:
        """The partition, from 0 to ``choice.partitions`` - 1. What it raises fails that record alone."""
        ...


class Sticky:
    """Fill one batch, then continue at the next partition that works; the key does not matter (KIP-480).

    Closed partitions are passed over, and failing ones while another one is open. ``seed`` decides the first partition.
    """

    def __init__(self, seed: str = "") -> None:
        self._first = zlib.crc32(seed.encode())
        self._last: dict[str, int] = {}

    def __call__(self, choice: Choice) -> int:
        """The open batch's partition, or the next one."""
        if choice.current is not None and choice.current not in choice.failing:
            return choice.current
        last = self._last.get(choice.topic, self._first)
        turns = [(last + turn) % choice.partitions for turn in range(1, choice.partitions + 1)]
        opened = [number for number in turns if number not in choice.closed] or turns
        self._last[choice.topic] = next((number for number in opened if number not in choice.failing), opened[0])
        return self._last[choice.topic]


class RoundRobin(Sticky):
    """One record to each partition in turn; the key does not matter."""

    def __call__(self, choice: Choice) -> int:
        """The next partition."""
        return super().__call__(choice._replace(current=None))


class Murmur2(Sticky):
    """Equal keys to one partition, computed as Kafka's default partitioner does; records without a key as `Sticky`."""

    def __call__(self, choice: Choice) -> int:
        """The key's partition."""
        key = choice.record.key
        return super().__call__(choice) if key is None else partition_for_key(key, choice.partitions)


class Manual:
    """Refuse each record for which the application names no partition."""

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
    """The partitioner of this name, or the callable itself. Raises InvalidRequest for an unknown name."""
    if not isinstance(wanted, str):
        return wanted
    if wanted not in _BY_NAME:
        raise InvalidRequest(f"partitioner: {wanted!r} is none of {', '.join(_BY_NAME)}")
    return _BY_NAME[wanted](seed)


def stays_open(partitioner: Partitioner) -> bool:
    """Whether records without a key follow the open batch, so that the partitioner need not be called."""
    return type(partitioner) in (Sticky, Murmur2)


def choose(partitioner: Partitioner, choice: Choice) -> int:
    """The partitioner's choice. Raises InvalidRequest for a partition that does not exist, and in place of an exception
    of the partitioner that is no StockadeError.
    """
    try:
        partition = partitioner(choice)
    except StockadeError:
        raise
    except Exception as error:
        raise InvalidRequest(f"the partitioner failed: {error!r}") from error
    if not isinstance(partition, int) or not 0 <= partition < choice.partitions:
        raise InvalidRequest(f"the partitioner chose {partition!r} of {choice.partitions} partitions")
    return partition
