"""What the committer needs of a cluster, and its refusals. Free of Spark and of any library."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...client.blocking_writer import Pair, StageSeen


class SinkRefused(Exception):
    """This driver must not go on: somebody else may, or the checkpoint is not the one that it was."""


class RunRetired(SinkRefused):
    """A newer run of the query has taken the sink over."""


class OtherQuery(SinkRefused):
    """The sink belongs to another query: a new checkpoint, or a name that is used twice."""


class CheckpointWentBack(SinkRefused):
    """The checkpoint wants to write a batch again that the sink has left behind."""


class StageLost(Exception):
    """A stage is gone before it was decided: the batch has to be computed anew, which a restart does."""


class DecidedStageLost(Exception):
    """A stage is gone that was decided on: somebody deleted it. Its rows are lost."""


class Store(Protocol):
    """client.blocking_writer.BlockingWriter, or a model of it."""

    def create_topic(self, name: str, partitions: int, config: Mapping[str, Any]) -> None:
        """Create a topic, or find it."""
        ...

    def shape(self, name: str) -> tuple[int, int]:
        """How many partitions a topic has, and how many bytes a batch may have. Raises UnknownTopicOrPartition."""
        ...

    def init_producer(self, name: str | None, nonce: str) -> Pair:
        """A new instance of a name fences the older ones. Raises ProducerFenced."""
        ...

    def next_sequences(self, pair: Pair) -> dict[tuple[str, int], int]:
        """By topic and partition; 0 where there is none."""
        ...

    def stages(self, topic: str, partition: int, prefix: str) -> list[StageSeen]:
        """Stages whose names begin so."""
        ...

    def keep_stages(self, topic: str, partition: int, names: Sequence[str], pair: Pair) -> None:
        """Raises NotFound, InvalidProducerEpoch."""
        ...

    def delete_stages(self, topic: str, partition: int, names: Sequence[str], pair: Pair) -> None:
        """Raises InvalidProducerEpoch."""
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
