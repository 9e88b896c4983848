"""The state machine of one partition: the only place that accepts or refuses an append (SEMANTICS 3, 5.8).

It owns the order of the checks and delegates each of them. It has no clock, no randomness and no IO but the
log that it was given, so replicas that apply the same commands hold the same state. ``apply`` returns
refusals and never raises them.
"""

from typing import assert_never

import msgspec

from .commands import (
    Append,
    Appended,
    ClearFence,
    InstallFence,
    InstallProducer,
    NotEnrolled,
    Offset,
    ProducerId,
    ProducerInstalled,
    Result,
    decode_command,
)
from .errors import InconsistentTopicId, OffsetMismatch, ProducerFenced, StockadeError
from .fence import Fence, is_of_other_topic
from .log import Log
from .producers import Producers
from .sequences import CachedBatch, Entry, Repeated


class PartitionConfig(msgspec.Struct, frozen=True):
    """What apply needs of the topic. Equal on every replica.

    ``require_fence``: refuse appends without a token. ``strict_sequence``: refuse a repetition of a batch
    that is no longer remembered. ``max_producers``: producers remembered, at least 1.
    """

    topic_id: int
    require_fence: bool = False
    strict_sequence: bool = False
    max_producers: int = 100_000


class PartitionMachine:
    """Log, producers and slot of one partition; implements ``raft.machine.Machine`` over the bytes of
    commands.py.

    State can be read at any time on the node's loop, and is changed by ``apply`` alone.
    """

    def __init__(self, config: PartitionConfig, log: Log) -> None:
        self.config = config
        self.log = log
        self.producers = Producers(config.max_producers, config.strict_sequence)
        self.fence = Fence()

    @property
    def topic_epoch(self) -> int:
        """Fencing epoch of the partition; never goes down."""
        return self.fence.topic_epoch

    @property
    def slot(self) -> InstallFence | None:
        """The install of the grant that holds the partition."""
        return self.fence.slot

    @property
    def log_start(self) -> Offset:
        """First offset kept."""
        return self.log.log_start

    @property
    def log_end(self) -> Offset:
        """Next offset; everything below is committed."""
        return self.log.log_end

    def producer(self, pid: ProducerId) -> Entry | None:
        """What is remembered of a producer."""
        return self.producers.entries.get(pid)

    def apply(self, index: int, term: int, command: bytes) -> Result | StockadeError:
        """Apply one committed command. Raises only when the bytes are no command or the disk fails."""
        decoded = decode_command(command)
        match decoded:
            case Append():
                return self._append(index, decoded)
            case InstallFence():
                return self.fence.install(decoded)
            case ClearFence():
                return self.fence.clear(decoded)
            case InstallProducer():
                return ProducerInstalled(self.producers.install(decoded.pid, decoded.epoch, index))
            case _:
                assert_never(decoded)

    def _append(self, index: int, command: Append) -> Result | StockadeError:
        refusal = self._judge_topic(command) or self._judge_fence(command)
        if refusal is not None:
            return refusal
        stamp = command.stamp
        if stamp is not None:
            verdict = self.producers.judge(stamp, command.count, self.log_start, self.log_end)
            if isinstance(verdict, Repeated):
                return self._duplicate(verdict.batch)
            if isinstance(verdict, NotEnrolled | StockadeError):
                return verdict
        if command.if_log_end not in (None, self.log_end):
            return OffsetMismatch(log_end=self.log_end)
        base_offset = self.log.append(command, self.topic_epoch)
        if stamp is not None:
            self.producers.store(stamp, command.count, base_offset, command.timestamp_ms, index)
        return Appended(base_offset, base_offset + command.count - 1, False, self.log_start, command.timestamp_ms)

    def _judge_topic(self, command: Append) -> StockadeError | None:
        topic_id = self.config.topic_id
        is_other = command.topic_id not in (None, topic_id)
        if is_other or (command.token and is_of_other_topic(command.token.grant_id, topic_id)):
            return InconsistentTopicId(topic_id=topic_id)
        return None

    def _judge_fence(self, command: Append) -> StockadeError | None:
        refusal = self.fence.judge(command.token, self.config.require_fence)
        if isinstance(refusal, ProducerFenced) and command.stamp is not None:
            outcome = self.producers.outcome(command.stamp, command.count)
            return ProducerFenced(**refusal.fields, outcome=outcome)
        return refusal

    def _duplicate(self, batch: CachedBatch | None) -> Appended:
        if batch is None:
            return Appended(None, None, True, self.log_start, None)
        return Appended(batch.base_offset, batch.last_offset, True, self.log_start, batch.timestamp_ms)
