"""Producers: their identity (KIP-98's producer id and epoch), and their state on partitions."""

import re

import msgspec

_THROWAWAY = re.compile(r"producer-[0-9a-f]{16}")


def is_throwaway(name: str) -> bool:
    """Whether this is a random name that a producer drew for one run of its program. Lists leave such names out by
    default.
    """
    return _THROWAWAY.fullmatch(name) is not None


class ProducerPair(msgspec.Struct, frozen=True):
    """An identity to write with: producer id and epoch. ``name`` None: an anonymous producer."""

    producer_id: int
    producer_epoch: int
    name: str | None


class ProducerList(msgspec.Struct, frozen=True):
    """The first of ``total`` producers with names, ascending by name."""

    total: int
    producers: list[ProducerPair]


class BatchStatus(msgspec.Struct, frozen=True):
    """A batch that a partition remembers. ``timestamp_ms``: when the leader received it (Unix time)."""

    first_seq: int
    last_seq: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerOnPartition(msgspec.Struct, frozen=True):
    """A producer as one partition knows it. ``last_seq`` -1: no batch of this epoch is stored.

    ``batches``: the remembered ones, at most five, oldest first.
    """

    topic: str
    partition: int
    producer_epoch: int
    last_seq: int
    last_offset: int | None
    batches: list[BatchStatus]


class PartitionProducer(msgspec.Struct, frozen=True):
    """A producer of one partition. ``last_seq`` -1: no batch of this epoch is stored. ``last_ms``: when its last
    remembered batch came (Unix time).
    """

    producer_id: int
    producer_epoch: int
    last_seq: int
    last_offset: int | None
    last_ms: int | None


class PartitionProducers(msgspec.Struct, frozen=True):
    """The most recently used of ``total`` producers of a partition, the latest first."""

    topic: str
    partition: int
    total: int
    producers: list[PartitionProducer]


class ProducerStatus(msgspec.Struct, frozen=True):
    """A producer in the registry (``producer_epoch`` None: anonymous), and on the partitions that know it."""

    producer_id: int
    producer_epoch: int | None
    name: str | None
    partitions: list[ProducerOnPartition]
