"""What a front may ask of a partition."""

from collections.abc import Callable
from typing import Protocol

from ...partition.api.producers import PartitionProducer
from ...partition.api.records import PartitionContents, StageInfo
from ...partition.api.topics import TopicConfig
from ...partition.commands import Appended, Offset, Token
from ...partition.log.interface import Slice
from ...partition.records.batch import Batch
from ...partition.state.fence import Tenure
from ..condition import Followed
from ..model import CommittedPosition, Conditions, Leader, ReadGuard, Settle


class Partition(Followed, Protocol):
    """A partition as this node can reach it. ``config`` is the configuration of its topic."""

    topic: str
    topic_id: int
    partition: int
    config: TopicConfig

    @property
    def is_leading(self) -> bool:
        """Whether this node leads the partition, as far as it knows."""
        ...

    def leader(self) -> Leader:
        """The leader of the partition, as far as this node knows."""
        ...

    def tenure(self, grant_id: str) -> Tenure | None:
        """The tenure of a grant that holds the slot, or held it and is still remembered here; None for any other."""
        ...

    async def append(self, batch: Batch, conditions: Conditions) -> Appended:
        """Propose one validated batch and wait for the verdict of apply (SEMANTICS 5.8).

        ``fence_epoch`` is the ownership guard of a topic with a writer_group. Raises InvalidRequest for a
        ``message_id`` where there is no dedupe_window_ms.
        """
        ...

    def submit(self, batch: Batch, conditions: Conditions, settle: Settle) -> bool:
        """Like ``append``, without waiting: ``settle`` is called once, perhaps before this returns. Returns False if
        nothing was proposed and ``settle`` is not called: ``append`` first does what is missing, or refuses.
        """
        ...

    async def read(
        self,
        offset: Offset | None,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        local: bool,
        guard: ReadGuard | None = None,
    ) -> Slice:
        """Committed batches from ``offset`` (None: log end); linearizable unless ``local`` (SEMANTICS 5.10).

        Waits up to ``max_wait_ms`` until ``min_bytes`` are there. ``offset`` -1 means log start. Raises NotOwner
        unless ``guard`` is the owner's, before and after the wait; OffsetOutOfRange, TieredStoreUnavailable.
        """
        ...

    async def read_tail(self, count: int) -> tuple[Slice, int]:
        """The first slice of the last ``count`` records, and topic_epoch; linearizable (SEMANTICS 5.12)."""
        ...

    async def find_offset(self, timestamp_ms: int | None) -> tuple[Offset, int | None, Offset, Offset]:
        """(offset, its timestamp, log_start, log_end) of the first record at or after ``timestamp_ms``; offset -1 if
        none. None asks for the first record with the greatest timestamp. Linearizable.
        """
        ...

    async def trim(
        self,
        before: Offset | None,
        *,
        topic_id: int | None,
        token: Token | None,
        principal: str = "",
        if_epoch: int | None = None,
        if_log_end: Offset | None = None,
    ) -> tuple[Offset, Offset]:
        """Drop the records below ``before`` (None: all); returns (log_start, log_end) after that (SEMANTICS 5.14).

        Raises PlanChanged unless topic_epoch is ``if_epoch`` and log_end is ``if_log_end`` (None: not compared).
        """
        ...

    async def begin_at(self, offset: Offset, *, topic_id: int | None, principal: str = "") -> tuple[Offset, Offset]:
        """Let a log that has never had a record begin at ``offset``; returns (log_start, log_end) after that. Raises
        OffsetMismatch, FeatureLevelTooLow.
        """
        ...

    async def position(self, group: str) -> CommittedPosition:
        """The group's committed position; linearizable."""
        ...

    async def commit_position(
        self, group: str, offset: Offset | None, metadata: str | None, fence_epoch: int | None, principal: str = ""
    ) -> None:
        """Commit the group's position; ``offset`` None forgets it, which needs feature level 2. Raises NotOwner,
        PermissionDenied, OffsetOutOfRange, FeatureLevelTooLow.
        """
        ...

    async def put_stage(
        self, name: str, digest: str, batch: Batch, *, ttl_ms: int, topic_id: int | None, principal: str = ""
    ) -> bool:
        """Store one validated batch beside the log as a stage; returns whether it is new. Raises StageAlreadyExists.

        From feature level 2 on only ``principal`` may keep, delete and append the stage ("": all may).
        """
        ...

    async def stages(self, prefix: str) -> list[StageInfo]:
        """The stages whose names begin with ``prefix``, in the order in which they were stored; linearizable."""
        ...

    async def change_stages(
        self,
        keep: list[str],
        delete: list[str],
        *,
        producer: tuple[int, int],
        topic_id: int | None,
        principal: str = "",
        evicts: bool = False,
    ) -> None:
        """Keep and delete stages: all or nothing. Raises NotFound, InvalidProducerEpoch if ``producer`` has another."""
        ...

    async def append_stage(
        self, name: str, received_ms: int, conditions: Conditions, *, evicts: bool = False
    ) -> tuple[Appended, int]:
        """Append a stage's batch, once; returns the verdict and the size of the batch in bytes. Raises as ``append``
        does, NotFound, and PermissionDenied for a stage of another principal, unless the caller ``evicts``.
        """
        ...

    async def fences(self) -> list[Tenure]:
        """The present tenures of the slot and a bounded number of past ones, the latest first; linearizable."""
        ...

    async def contents(self, most: int, tells: Callable[[str], bool]) -> PartitionContents:
        """The log's ends and bytes, and the ``most`` lowest positions of groups that ``tells`` allows; linearizable."""
        ...

    async def latest_producers(self, most: int) -> tuple[int, list[PartitionProducer]]:
        """The number of producers known here, and the ``most`` latest used of them, newest first; linearizable."""
        ...
