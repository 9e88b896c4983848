"""The state machine of one partition: the only place that accepts or refuses a write (SEMANTICS 3, 5.8).

It owns the order of the checks and delegates each of them. It has no clock, no randomness and no IO but the
log that it was given, so replicas that apply the same commands hold the same state. ``apply`` returns
refusals and never raises them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from .commands import (
    Append,
    Appended,
    AppendStage,
    ChangeStages,
    ClearFence,
    Command,
    CommitPosition,
    Configure,
    Configured,
    ForgetProducers,
    InstallFence,
    InstallProducer,
    InstallReader,
    InstallSeats,
    NotEnrolled,
    Offset,
    PositionCommitted,
    ProducerId,
    ProducerInstalled,
    PutStage,
    Result,
    Retain,
    Staged,
    StagesChanged,
    Trim,
    Trimmed,
    decode_command,
)
from .config import PartitionConfig
from .errors import (
    InconsistentTopicId,
    InvalidRequest,
    NotFound,
    OffsetMismatch,
    OffsetOutOfRange,
    ProducerFenced,
    StockadeError,
    ThrottlingQuotaExceeded,
    TopicSealed,
)
from .fence import Fence, is_of_other_topic
from .log import Log
from .message_ids import MESSAGE_IDS_MAX, MessageIds, Named
from .producers import UNKNOWN_FIELDS, Producers
from .readers import Readers
from .sequences import CachedBatch, Entry, Repeated
from .stages import MemoryStageFiles, Stages
from .switches import has_defect
from .tenures import Tenure

__all__ = ["PartitionConfig", "PartitionMachine"]

_ACCEPTS_ANY_EPOCH = has_defect("epoch-check")
_TOKENLESS = (PutStage, ChangeStages)
_STORING = (Append, PutStage, AppendStage)


class PartitionMachine:
    """Log, producers, slot and readers of one partition, over the bytes of commands.py.

    State can be read at any time on the node's loop, and is changed by ``apply`` alone.
    """

    def __init__(self, config: PartitionConfig, log: Log) -> None:
        """``config`` counts until the first Configure is applied, and must be the same on every replica."""
        self.config: PartitionConfig = config
        self.config_order: int = -1
        self.clock_ms: int = 0
        self.log = log
        self.producers: Producers = Producers()
        self.fence: Fence = Fence()
        self.readers: Readers = Readers()
        self.message_ids: MessageIds = MessageIds()
        self.stages: Stages = Stages(MemoryStageFiles())
        self._handlers: dict[type[Command], Callable[[Any], Result | StockadeError]] = {
            InstallFence: self.fence.install,
            InstallSeats: self.fence.share,
            ClearFence: self.fence.clear,
            InstallReader: self.readers.install,
            CommitPosition: self._commit_position,
            InstallProducer: self._install_producer,
            ForgetProducers: self.producers.forget,
            Trim: self._trim,
            Retain: self._retain,
            Configure: self._configure,
            PutStage: self._put_stage,
            ChangeStages: self._change_stages,
            AppendStage: self._append_stage,
        }

    @property
    def topic_epoch(self) -> int:
        """Fencing epoch of the partition; never goes down."""
        return self.fence.topic_epoch

    @property
    def slot(self) -> InstallFence | None:
        """The install of the exclusive grant that holds the partition."""
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

    def tenures(self) -> list[Tenure]:
        """Who holds the slot and who held it, the latest first."""
        return [*reversed(self.fence.present()), *reversed(self.fence.tenures.ended.values())]

    def has_due(self, now_ms: int) -> bool:
        """Whether something would be forgotten if a command brought this time."""
        return (
            self.producers.has_idle(now_ms, self.config.producer_ttl_ms)
            or self.message_ids.has_due(now_ms)
            or self.stages.has_due(now_ms)
        )

    def apply(self, index: int, term: int, command: bytes) -> Result | StockadeError:
        """Apply one committed command. Raises only when the bytes are no command or the disk fails."""
        decoded = decode_command(command)
        if isinstance(decoded, Append):
            return self._append(decoded)
        return self._handlers[type(decoded)](decoded)

    def _pass_time(self, now_ms: int) -> None:
        """The clock never goes back; what is due goes before the command is judged (SEMANTICS 8)."""
        if now_ms <= self.clock_ms:
            return
        self.clock_ms = now_ms
        self.producers.forget_idle(now_ms, self.config.producer_ttl_ms, self.fence.holds)
        self.message_ids.forget_due(now_ms)
        self.stages.forget_due(now_ms)

    def _append(self, command: Append) -> Result | StockadeError:
        self._pass_time(command.now_ms)
        refusal = self._judge_writer(command, command.count)
        return refusal if refusal is not None else self._append_of_writer(command)

    def _append_of_writer(self, command: Append) -> Result | StockadeError:
        """Append for somebody who may write."""
        stamp = command.stamp
        if stamp is not None:
            verdict = self.producers.judge(stamp, command.count, self.config, self.log)
            if isinstance(verdict, Repeated):
                return self._duplicate(verdict.batch)
            if verdict is not None:
                return verdict
        if command.message_id is not None:
            named = self._judge_message_id(command.message_id)
            if named is not None:
                return named
        if command.if_log_end not in (None, self.log_end):
            return OffsetMismatch(log_end=self.log_end)
        return self._store(command)

    def _store(self, command: Append) -> Appended:
        base_offset = self.log.append(command, self.topic_epoch)
        last_offset = base_offset + command.count - 1
        if command.stamp is not None:
            self.producers.store(
                command.stamp, command.count, base_offset, command.timestamp_ms, self.clock_ms, command.token
            )
        if command.message_id is not None:
            deadline_ms = self.clock_ms + self.config.dedupe_window_ms
            named = Named(base_offset, last_offset, command.timestamp_ms, deadline_ms)
            self.message_ids.store(command.message_id, named)
        return Appended(base_offset, last_offset, False, self.log_start, command.timestamp_ms)

    def _judge_writer(self, command: Append | AppendStage, count: int) -> StockadeError | None:
        refusal = self._judge_topic(command) or self._judge_fence(command, count)
        if refusal is not None or self.config.writer_group is None:
            return refusal
        return self.readers.judge(self.config.writer_group, command.fence_epoch)

    def _judge_topic(self, command: Append | Trim | PutStage | ChangeStages | AppendStage) -> StockadeError | None:
        topic_id = self.config.topic_id
        is_other = command.topic_id is not None and command.topic_id != topic_id
        token = None if isinstance(command, _TOKENLESS) else command.token
        if is_other or (token is not None and is_of_other_topic(token.grant_id, topic_id)):
            return InconsistentTopicId(topic_id=topic_id)
        if self.config.sealed and isinstance(command, _STORING):
            return TopicSealed(log_end=self.log_end)
        return None

    def _judge_fence(self, command: Append | AppendStage, count: int) -> StockadeError | None:
        refusal = None if _ACCEPTS_ANY_EPOCH else self.fence.judge(command.token, self.config.require_fence)
        if isinstance(refusal, ProducerFenced) and command.stamp is not None:
            outcome = self.producers.outcome(command.stamp, count) if count else UNKNOWN_FIELDS
            return ProducerFenced(**refusal.fields, outcome=outcome)
        return refusal

    def _judge_message_id(self, message_id: str) -> Appended | StockadeError | None:
        if not self.config.dedupe_window_ms:
            return InvalidRequest("message_id: the topic has no dedupe_window_ms")
        named = self.message_ids.find(message_id, self.clock_ms)
        if named is not None:
            return Appended(named.base_offset, named.last_offset, True, self.log_start, named.timestamp_ms)
        wait_ms = self.message_ids.wait_ms(self.clock_ms)
        if wait_ms is not None:
            text = f"{MESSAGE_IDS_MAX} message ids are remembered here already"
            return ThrottlingQuotaExceeded(text, retry_after_ms=wait_ms)
        return None

    def _duplicate(self, batch: CachedBatch | None) -> Appended:
        if batch is None:
            return Appended(None, None, True, self.log_start, None)
        return Appended(batch.base_offset, batch.last_offset, True, self.log_start, batch.timestamp_ms)

    def _put_stage(self, command: PutStage) -> Staged | StockadeError:
        self._pass_time(command.now_ms)
        return self._judge_topic(command) or self.stages.put(command, self.clock_ms)

    def _change_stages(self, command: ChangeStages) -> StagesChanged | NotEnrolled | StockadeError:
        self._pass_time(command.now_ms)
        refusal = self._judge_topic(command) or self.producers.judge_epoch(command.pid, command.epoch)
        if refusal is not None:
            return refusal
        return self.stages.change(command.keep, command.delete)

    def _append_stage(self, command: AppendStage) -> Result | StockadeError:
        """The verdict is that of an append of the same batch, once: what was appended is known by its name."""
        self._pass_time(command.now_ms)
        stage = self.stages.stages.get(command.name)
        refusal = self._judge_writer(command, stage.count if stage is not None else 0)
        if refusal is not None:
            return refusal
        if stage is None:
            return NotFound(f"there is no stage {command.name}", what="stage")
        if stage.base_offset is not None:
            last_offset = stage.base_offset + stage.count - 1
            return Appended(stage.base_offset, last_offset, True, self.log_start, stage.timestamp_ms)
        result = self._append_of_writer(self.stages.append_of(stage, command))
        if isinstance(result, Appended) and not result.duplicate:
            self.stages.appended(stage, result, self.clock_ms)
        return result

    def _install_producer(self, command: InstallProducer) -> ProducerInstalled:
        self._pass_time(command.now_ms)
        return ProducerInstalled(self.producers.install(command, self.config.max_producers, self.clock_ms))

    def _trim(self, command: Trim) -> Trimmed | StockadeError:
        self._pass_time(command.now_ms)
        refusal = self._judge_topic(command) or self.fence.judge(command.token, self.config.require_fence)
        if refusal is not None:
            return refusal
        before = self.log_end if command.before is None else command.before
        if before > self.log_end:
            return OffsetOutOfRange(before, self.log_start, self.log_end)
        return self._drop_below(before)

    def _retain(self, command: Retain) -> Trimmed:
        self._pass_time(command.now_ms)
        return self._drop_below(min(command.before, self.log_end))

    def _drop_below(self, before: Offset) -> Trimmed:
        """Entries of producers and epochs stay as they are."""
        self.log.trim(before)
        return Trimmed(self.log_start, self.log_end)

    def _commit_position(self, command: CommitPosition) -> PositionCommitted | StockadeError:
        return self.readers.commit(command, self.log_start, self.log_end)

    def _configure(self, command: Configure) -> Configured:
        """A sealed topic stays sealed."""
        if command.order > self.config_order:
            assert command.config.topic_id == self.config.topic_id
            is_sealed = self.config.sealed or command.config.sealed
            self.config = msgspec.structs.replace(command.config, sealed=is_sealed)
            self.config_order = command.order
            self.producers.make_room(self.config.max_producers)
        self._pass_time(command.now_ms)
        return Configured(self.config_order)
