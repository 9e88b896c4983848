"""The synchronous face of reading (`stockade.sync`; synchronous.py has the rest and says how it works)."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from . import consumer as consumers
from . import group as groups
from . import reading as readings
from .config import DEFAULT_BOOTSTRAP, Bootstrap
from .loop_thread import made
from .loop_thread import shared as _loop
from .pieces import ConsumedRecord, Piece
from .reading import Start

T = TypeVar("T")


class Consumer:
    """See ``stockade.Consumer``."""

    def __init__(self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
        self._consumer = _loop.run(made(lambda: consumers.Consumer(bootstrap)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        _loop.run(self._consumer.close())

    def read(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, Start] = "earliest",
        *,
        follow: bool = False,
    ) -> Iterator[ConsumedRecord]:
        """Records of ``partitions`` (None: all), in order within each."""
        with self.pieces(topic, partitions, start, follow=follow) as reading:
            for piece in reading:
                yield from piece.records()

    @contextmanager
    def pieces(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, Start] = "earliest",
        *,
        follow: bool = False,
    ) -> "Iterator[Reading]":
        """The same in Arrow: ``with consumer.pieces(...) as reading: for piece in reading``."""
        block = self._consumer.pieces(topic, partitions, start, follow=follow)
        reading = _loop.run(block.__aenter__())
        try:
            yield Reading(reading)
        finally:
            _loop.run(block.__aexit__(None, None, None))

    @contextmanager
    def group(
        self, group: str, topic: str, *, start: Start = "earliest", client_id: str = "consumer"
    ) -> "Iterator[GroupReading]":
        """``with consumer.group("g", "t") as reading: for record in reading: ...; reading.commit()``"""
        block = self._consumer.group(group, topic, start=start, client_id=client_id)
        reading = _loop.run(block.__aenter__())
        try:
            yield GroupReading(reading)
        finally:
            _loop.run(block.__aexit__(None, None, None))


class Reading:
    """See ``stockade.Reading``."""

    def __init__(self, reading: readings.Reading) -> None:
        self._reading = reading

    def __iter__(self) -> Iterator[Piece]:
        return _each(self._reading)

    def records(self) -> Iterator[ConsumedRecord]:
        """Row by row; the position is behind the record at hand."""
        return _each(self._reading.records())

    @property
    def positions(self) -> dict[int, int]:
        """By partition: the offset behind the last record handed over."""
        return dict(self._reading.positions)

    @property
    def lag(self) -> dict[int, int]:
        """By partition: records stored behind the position, as of the partition's last answer."""
        return self._reading.lag

    def seek(self, partition: int, start: Start) -> None:
        """Go on at ``start`` there."""

        async def move() -> None:
            self._reading.seek(partition, start)

        _loop.run(move())

    def to_arrow(self) -> pa.Table:
        """Everything up to where it ends, as one table without a copy."""
        return _loop.run(self._reading.to_arrow())

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame."""
        return self.to_arrow().to_pandas()


class GroupReading:
    """A member of a group at work: iterate over its records, and ``commit`` what is done."""

    def __init__(self, reading: groups.GroupReading) -> None:
        self._reading = reading

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return _each(self._reading)

    @property
    def positions(self) -> dict[int, int]:
        """Of each partition of which something was handed over: the offset behind it."""
        return self._reading.positions

    @property
    def lag(self) -> dict[int, int]:
        """Of the same partitions: records stored behind the position, as of the partition's last answer."""
        return self._reading.lag

    def commit(self) -> None:
        """Everything handed over so far is done, the record at hand included."""
        _loop.run(self._reading.commit())


def _each(items: AsyncIterator[T]) -> Iterator[T]:
    over = object()
    while (item := _loop.run(_next(items, over))) is not over:
        yield item  # type: ignore[misc]  # it is not `over`


async def _next(items: AsyncIterator[T], over: object) -> T | object:
    return await anext(items, over)
