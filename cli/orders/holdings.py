"""The grants in force on a topic: asks the partitions that have a holder, or may have one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from ...client.api.client import Client
from ...partition.api.ownership import Fences, FenceTenure
from ...partition.api.topics import Topic
from ..ui.output import numbers

ASKED_AT_ONCE = 32
"""Requests in flight at the same time."""

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class Holding(msgspec.Struct, frozen=True):
    """A grant in force and the partitions of one topic that it holds. ``epochs`` has the fencing epoch of each of them;
    its keys are partition numbers as text. ``epoch``: the one that all of them have; None where they differ, as those
    of a Shared grant may.

    ``expires_in_ms``: time until its session ends unless it is renewed; None: the session was not among those listed.
    """

    topic: str
    grant: str
    mode: str
    epoch: int | None
    epochs: dict[str, int]
    producer_name: str
    client_id: str | None
    operation: str
    since_ms: int
    since_unix_ms: int | None
    expires_in_ms: int | None
    partitions: list[int]

    @property
    def all_epochs(self) -> str:
        """Its epochs, ascending, as text."""
        return numbers(sorted(set(self.epochs.values())))


async def holdings(client: Client, topic: Topic, left_ms: Mapping[str, int]) -> list[Holding]:
    """The grants that hold partitions of a topic. ``left_ms``: by grant, the time until its session ends."""
    held = [each.partition for each in topic.partitions if each.slot_mode is not None or each.topic_epoch is None]
    found = await each_of(held, lambda number: client.fences(topic.name, number))
    return list(_holdings(topic, found, left_ms))


async def each_of(items: Sequence[_Item], ask: Callable[[_Item], Awaitable[_Answer]]) -> list[_Answer]:
    """The answers of ``ask``, in the order of the items; at most ASKED_AT_ONCE are in flight."""
    found: list[_Answer] = []
    for start in range(0, len(items), ASKED_AT_ONCE):
        found += await asyncio.gather(*map(ask, items[start : start + ASKED_AT_ONCE]))
    return found


def _holdings(topic: Topic, fences: Iterable[Fences], left_ms: Mapping[str, int]) -> Iterator[Holding]:
    held: dict[str, tuple[FenceTenure, dict[int, int]]] = {}
    for each in fences:
        for tenure in each.fences:
            if tenure.until_ms is None:
                held.setdefault(tenure.grant, (tenure, {}))[1][each.partition] = tenure.epoch
    for tenure, epochs in held.values():
        yield Holding(
            topic.name,
            tenure.grant,
            tenure.mode,
            tenure.epoch if len(set(epochs.values())) == 1 else None,
            {str(partition): epoch for partition, epoch in epochs.items()},
            tenure.producer_name,
            tenure.client_id,
            tenure.operation,
            tenure.since_ms,
            tenure.since_unix_ms,
            left_ms.get(tenure.grant),
            list(epochs),
        )
