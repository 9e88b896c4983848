"""The interface between the committer and a cluster, and the committer's refusals. Without Spark or any library."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...client.blocking.writer import Pair, StageSeen


class SinkRefused(Exception):
    """This driver must not go on: another driver took over, its checkpoint is not the latest, or it asks too much."""


class RunRetired(SinkRefused):
    """A newer run of the query has taken the sink over."""


class OtherQuery(SinkRefused):
    """The sink belongs to another query: the checkpoint is new, or the name is used twice."""


class CheckpointWentBack(SinkRefused):
    """The checkpoint is older than the sink: a batch comes again after a later one was decided."""


class StagesRefused(SinkRefused):
    """The batch has more stages than one decision can list."""


class StageLost(Exception):
    """A stage is gone before it was decided. A restart computes the batch again."""


class DecidedStageLost(Exception):
    """A decided stage was deleted. Its rows are lost."""


class Store(Protocol):
    """client.blocking.writer.BlockingWriter, or a model of it."""

    def create_topic(self, name: str, partitions: int, config: Mapping[str, Any]) -> None:
        """Create a topic, unless it exists."""
        ...

    def shape(self, name: str) -> tuple[int, int, int]:
        """How many partitions a topic has, how many bytes a batch may have, and its id. Raises
        UnknownTopicOrPartition.
        """
        ...

    def init_producer(self, name: str | None, nonce: str, *, patience_s: float | None = None) -> Pair:
        """A new instance of a name fences the older ones. ``patience_s``: for attempts. Raises ProducerFenced."""
        ...

    def next_sequences(self, name: str, pair: Pair) -> dict[tuple[str, int], int]:
        """By topic and partition; absent where this instance of the name wrote nothing."""
        ...

    def stages(self, topic: str, partition: int, prefix: str) -> list[StageSeen]:
        """Stages whose names begin with ``prefix``."""
        ...

    def keep_stages(self, topic: str, partition: int, names: Sequence[str], pair: Pair) -> None:
        """Raises NotFound, InvalidProducerEpoch."""
        ...

    def delete_stages(
        self, topic: str, partition: int, names: Sequence[str], pair: Pair, *, patience_s: float | None = None
    ) -> None:
        """``patience_s``: time for attempts; None: the store's. Raises InvalidProducerEpoch."""
        ...

    def append_stage(self, topic: str, partition: int, name: str, pair: Pair, sequence: int) -> bool:
        """False: it had been appended before. Raises NotFound, InvalidProducerEpoch."""
        ...

    def append_at(self, topic: str, partition: int, value: bytes, log_end: int) -> bool:
        """False: the log does not end there, perhaps because this very record was appended before."""
        ...

    def read(self, topic: str, partition: int) -> tuple[list[tuple[int, bytes]], int]:
        """Offsets and values of all records, and the log's end."""
        ...

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Drop the records before an offset."""
        ...
