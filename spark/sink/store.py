"""The interface of a cluster to the committer, and the committer's refusals. Without Spark or any library."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...client.blocking.writer import Pair, StageSeen, TopicShape


class SinkRefused(Exception):
    """This driver must not go on. Subclasses say why."""


class RunRetired(SinkRefused):
    """A newer run of the query has taken the sink over."""


class OtherQuery(SinkRefused):
    """The sink belongs to another query: the checkpoint is new, or the name is used twice."""


class CheckpointWentBack(SinkRefused):
    """The checkpoint is older than the sink: a batch is committed after a later batch was decided."""


class StagesRefused(SinkRefused):
    """The batch has more stages than one decision can list."""


class TopicRefused(SinkRefused):
    """A topic refuses rows of a batch, because of its settings or of its owner. If the batch is decided, no other one
    may follow.
    """


class StageLost(Exception):
    """A stage was gone before a decision listed it. A restart computes the batch again."""


class DecidedStageLost(Exception):
    """A stage of a decision was deleted before it was appended. Its rows are lost."""


class Store(Protocol):
    """The methods of client.blocking.writer.BlockingWriter that the committer uses; tests have a model of them."""

    def create_topic(self, name: str, partitions: int, config: Mapping[str, Any]) -> None:
        """Create a topic, unless it exists."""
        ...

    def shape(self, name: str) -> TopicShape:
        """The shape of a topic. Raises UnknownTopicOrPartition."""
        ...

    def init_producer(self, name: str | None, nonce: str, *, patience_s: float | None = None) -> Pair:
        """The producer id and epoch of a new instance of ``name`` (None: of no name), which fences the older instances.
        ``patience_s``: time for attempts; None: the store's. Raises ProducerFenced.
        """
        ...

    def next_sequences(self, name: str, pair: Pair) -> dict[tuple[str, int], int]:
        """The next sequence number by topic and partition; absent where this instance of the name wrote nothing."""
        ...

    def stages(self, topic: str, partition: int, prefix: str) -> list[StageSeen]:
        """The stages of a partition whose names begin with ``prefix``."""
        ...

    def keep_stages(self, topic: str, partition: int, names: Sequence[str], pair: Pair) -> None:
        """Mark stages as kept: they do not expire. Raises NotFound, InvalidProducerEpoch."""
        ...

    def delete_stages(
        self, topic: str, partition: int, names: Sequence[str], pair: Pair, *, patience_s: float | None = None
    ) -> None:
        """Delete stages. ``patience_s``: time for attempts; None: the store's. Raises InvalidProducerEpoch."""
        ...

    def append_stage(self, topic: str, partition: int, name: str, pair: Pair, sequence: int) -> bool:
        """Append a stage's batch. False: it had been appended before. Raises NotFound, InvalidProducerEpoch."""
        ...

    def append_at(self, topic: str, partition: int, value: bytes, log_end: int) -> bool:
        """Append a record if the log ends at ``log_end``. False: it ends elsewhere, perhaps because an earlier
        attempt of this very call has appended the record.
        """
        ...

    def read(self, topic: str, partition: int) -> tuple[list[tuple[int, bytes]], int]:
        """The offset and value of each record of a partition, and the log's end."""
        ...

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Drop the records before an offset."""
        ...
