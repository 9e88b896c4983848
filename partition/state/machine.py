"""The state machine of one partition: the only place that accepts or refuses a write (SEMANTICS 3, 5.8).

It decides the order of the checks and delegates each of them. It has no clock, no randomness and no IO but the log and
the stage files that it was given, so replicas that apply the same commands hold the same state. ``apply`` returns
refusals and never raises them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from ..commands import (
    AddTierObject,
    Append,
    Appended,
    AppendStage,
    BeginAt,
    BeginTier,
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
    ProducerId,
    ProducerInstalled,
    PutStage,
    Result,
    Retain,
    Staged,
    StagesChanged,
    Token,
    Trim,
    Trimmed,
    decode_command,
)
from ..config import PartitionConfig
from ..errors import (
    InconsistentTopicId,
    InvalidProducerEpoch,
    InvalidRequest,
    NotFound,
    NotOwner,
    OffsetMismatch,
    OffsetOutOfRange,
    PlanChanged,
    ProducerFenced,
    StockadeError,
    ThrottlingQuotaExceeded,
    TopicSealed,
)
from ..log.interface import Log
from .fence import Fence, Tenure, is_of_other_topic
from .message_ids import MESSAGE_IDS_MAX, MessageIds, StoredMessageId
from .producers import NO_BATCH, Entry, Outcome, Producers, Repeated
from .readers import Readers
from .stages import MemoryStageFiles, Stages
from .tier import Tier

__all__ = ["PartitionConfig", "PartitionMachine"]


class PartitionMachine:
    """The replicated state of one partition: log, producers, slot, readers, message ids, stages and tier.

    State can be read at any time on the node's loop, and is changed by ``apply`` alone.
    """

    def __init__(self, config: PartitionConfig, log: Log) -> None:
        """``config`` is in force until the first Configure is applied; it must be equal on every replica."""
        self.config: PartitionConfig = config
        self.config_order: int = -1
        self.clock_ms: int = 0
        self.log = log
        self.producers: Producers = Producers()
        self.fence: Fence = Fence()
        self.readers: Readers = Readers()
        self.message_ids: MessageIds = MessageIds()
        self.stages: Stages = Stages(MemoryStageFiles())
        self.tier: Tier = Tier()
        self.due_ms: float = 0
        """A lower bound of the deadlines of producers, message ids and stages: before it none of them is forgotten."""

    @property
    def topic_epoch(self) -> int:
        """Fencing epoch of the partition: it never goes down."""
        return self.fence.topic_epoch

    @property
    def slot(self) -> InstallFence | None:
        """The install of the exclusive grant that holds the partition; None if there is none."""
        return self.fence.slot

    @property
    def log_start(self) -> Offset:
        """The first offset of the log."""
        return self.log.log_start

    @property
    def log_end(self) -> Offset:
        """The next offset to be given; every record below it is committed."""
        return self.log.log_end

    def producer(self, pid: ProducerId) -> Entry | None:
        """The row of a producer in the producer table; None if the partition does not know the producer."""
        return self.producers.entries.get(pid)

    def tenures(self) -> list[Tenure]:
        """The tenures of the present and the former holders of the slot, the latest first."""
        return [*reversed(self.fence.present()), *reversed(self.fence.tenures.ended.values())]

    def has_due(self, now_ms: int) -> bool:
        """Whether a command with this lease clock would make the machine forget a producer, a message id or a stage."""
        return self._first_deadline_ms() <= now_ms

    def apply(self, index: int, term: int, command: bytes) -> Result | StockadeError:
        """Apply one committed command. Raises only when the bytes are no command or the disk fails."""
        decoded = decode_command(command)
        if type(decoded) is Append:
            self._pass_time(decoded.now_ms)
            result = self._judge_writer(decoded, decoded.count) or self._store(decoded, decoded.timestamp_ms)
        elif type(decoded) is AddTierObject:
            return self.tier.add(decoded, term, self.log_start, self.log_end)
        else:
            result = _HANDLERS[type(decoded)](self, decoded)
        if type(result) is ProducerFenced and isinstance(decoded, Append | AppendStage | Trim) and decoded.token:
            self.fence.tenures.refused(decoded.token.grant_id)
        return result

    def _pass_time(self, now_ms: int) -> None:
        """Advance the lease clock, which never goes back. Producers, message ids and stages that are due are forgotten
        here, before the command is judged (SEMANTICS 8).
        """
        if now_ms > self.clock_ms:
            self.clock_ms = now_ms
            if now_ms >= self.due_ms:
                self._forget_due()

    def _forget_due(self) -> None:
        now_ms = self.clock_ms
        self.producers.forget_idle(now_ms, self.config.producer_ttl_ms, self.fence.holds)
        self.message_ids.forget_due(now_ms)
        self.stages.forget_due(now_ms)
        self.due_ms = self._first_deadline_ms()

    def _first_deadline_ms(self) -> float:
        ttl_ms = self.config.producer_ttl_ms
        return min(self.producers.due_ms(ttl_ms), self.message_ids.due_ms, self.stages.due_ms)

    def _expect(self, deadline_ms: float) -> None:
        """Lower ``due_ms`` to the deadline of the producer, message id or stage that the command makes the machine
        remember.
        """
        self.due_ms = min(self.due_ms, deadline_ms)

    def _judge_writer(self, command: Append | AppendStage, count: int) -> StockadeError | None:
        """The refusal of a write of ``count`` records for its topic, its fencing token, or its fence_epoch; or None."""
        config, token = self.config, command.token
        refusal = self._judge_topic(command.topic_id, token, stores=True) or self.fence.judge(
            token, config.require_fence, command.principal
        )
        if refusal is None:
            if config.writer_group is None:
                return None
            refusal = self.readers.judge(config.writer_group, command.fence_epoch, command.principal)
        if not isinstance(refusal, ProducerFenced | NotOwner | TopicSealed):
            return refusal
        if isinstance(refusal, NotOwner) and (command.fence_epoch or 0) > refusal.fields["fence_epoch"]:
            return refusal  # the owner is not installed here yet: an earlier attempt of the write may still be stored
        return self._certified(refusal, command, count)

    def _certified(self, refusal: StockadeError, command: Append | AppendStage, count: int) -> StockadeError:
        """``refusal``, with the outcome certificate of the earlier attempts if the write has a stamp. The certificate
        follows from the name of the write's stage or its message id if these show that the batch is stored, and
        otherwise from the stamp.
        """
        stamp, stored = command.stamp, self._stored_by_name(command)
        if stamp is None:
            return refusal
        if stored is not None:
            outcome = Outcome("committed", stored.base_offset, stored.last_offset).fields()
        else:
            outcome = self.producers.outcome(stamp, count) if count else NO_BATCH.fields()
        return type(refusal)(**{**refusal.fields, "outcome": outcome})

    def _stored_by_name(self, command: Append | AppendStage) -> Appended | None:
        """The answer to a write whose batch is stored, by the name of its stage or by its message id; None if that is
        not known.
        """
        if isinstance(command, AppendStage):
            stage = self.stages.stages.get(command.name)
            if stage is None or stage.base_offset is None:
                return None
            last_offset = stage.base_offset + stage.count - 1
            return Appended(stage.base_offset, last_offset, True, self.log_start, stage.timestamp_ms)
        named = self.message_ids.find(command.message_id, self.clock_ms) if command.message_id is not None else None
        if named is None:
            return None
        return Appended(named.base_offset, named.last_offset, True, self.log_start, named.timestamp_ms)

    def may_store(self, command: Append | PutStage) -> bool:
        """Whether the batch, or the stage, may be stored when the command is applied: not if it would be refused for
        its topic, its token or its owner, or was stored before. Changes nothing.
        """
        if isinstance(command, PutStage):
            refusal = self._judge_topic(command.topic_id, None, stores=True)
            return refusal is None and command.name not in self.stages.stages
        stamp, message_id = command.stamp, command.message_id
        if self._judge_writer(command, command.count) is not None:
            return False
        if stamp is not None and isinstance(self.producers.judge(command, stamp, self.config, self.log), Repeated):
            return False
        return message_id is None or self.message_ids.find(message_id, self.clock_ms) is None

    def _judge_topic(self, topic_id: int | None, token: Token | None, *, stores: bool) -> StockadeError | None:
        """The refusal of a command that names another topic, or ``stores`` something in a sealed one; or None."""
        config = self.config
        if (topic_id is not None and topic_id != config.topic_id) or (
            token is not None and is_of_other_topic(token.grant_id, config.topic_id)
        ):
            return InconsistentTopicId(topic_id=config.topic_id)
        if stores and config.sealed:
            return TopicSealed(log_end=self.log_end)
        return None

    def _store(self, command: Append, received_ms: int) -> Result | StockadeError:
        """Store the batch of a writer that may write, unless its sequence number, its message id or ``if_log_end``
        forbids it. ``received_ms`` is the moment of receipt, which the answer has as its timestamp.
        """
        stamp, message_id, log_start = command.stamp, command.message_id, self.log.log_start
        if stamp is not None:
            verdict = self.producers.judge(command, stamp, self.config, self.log)
            if isinstance(verdict, Repeated):
                known = verdict.batch
                if known is None:
                    return Appended(None, None, True, log_start, None)
                return Appended(known.base_offset, known.last_offset, True, log_start, known.timestamp_ms)
            if verdict is not None:
                if isinstance(verdict, InvalidProducerEpoch):
                    verdict = self._certified(verdict, command, command.count)
                return verdict
        if message_id is not None and (named := self._judge_message_id(command)) is not None:
            return named
        if command.if_log_end is not None and command.if_log_end != self.log.log_end:
            return OffsetMismatch(log_end=self.log.log_end)
        base_offset = self.log.append(command, self.fence.topic_epoch)
        last_offset = base_offset + command.count - 1
        if stamp is not None:
            self.producers.store(stamp, command, base_offset, self.clock_ms, received_ms)
        if message_id is not None:
            deadline_ms = self.clock_ms + self.config.dedupe_window_ms
            self.message_ids.store(message_id, StoredMessageId(base_offset, last_offset, received_ms, deadline_ms))
            self._expect(deadline_ms)
        return Appended(base_offset, last_offset, False, log_start, received_ms)

    def _judge_message_id(self, command: Append) -> Appended | StockadeError | None:
        if not self.config.dedupe_window_ms:
            return InvalidRequest("message_id: the topic has no dedupe_window_ms")
        if (stored := self._stored_by_name(command)) is not None:
            return stored
        wait_ms = self.message_ids.wait_ms(self.clock_ms)
        if wait_ms is not None:
            text = f"the partition remembers {MESSAGE_IDS_MAX} message ids already"
            return ThrottlingQuotaExceeded(text, retry_after_ms=wait_ms)
        return None

    def _put_stage(self, command: PutStage) -> Staged | StockadeError:
        self._pass_time(command.now_ms)
        self._expect(self.clock_ms + command.ttl_ms)
        return self._judge_topic(command.topic_id, None, stores=True) or self.stages.put(command, self.clock_ms)

    def _change_stages(self, command: ChangeStages) -> StagesChanged | NotEnrolled | StockadeError:
        self._pass_time(command.now_ms)
        refusal = self._judge_topic(command.topic_id, None, stores=False) or self.producers.judge_epoch(command)
        if refusal is not None:
            return refusal
        return self.stages.change(command)

    def _append_stage(self, command: AppendStage) -> Result | StockadeError:
        """Append a stage's batch, judged as an append is; a stage that was appended before is a duplicate."""
        self._pass_time(command.now_ms)
        stage = self.stages.stages.get(command.name)
        refusal = self._judge_writer(command, stage.count if stage is not None else 0)
        refusal = refusal or self.stages.judge(command, command.name)
        if refusal is not None:
            return refusal
        if stage is None:
            return NotFound(f"there is no stage {command.name}", what="stage")
        if (stored := self._stored_by_name(command)) is not None:
            return stored
        result = self._store(self.stages.append_of(stage, command), stage.answered_ms)
        if isinstance(result, Appended) and not result.duplicate:
            self.stages.appended(stage, result, self.clock_ms)
            self._expect(self.clock_ms + stage.ttl_ms)
        return result

    def _install_producer(self, command: InstallProducer) -> ProducerInstalled:
        self._pass_time(command.now_ms)
        self._expect(self.clock_ms + self.config.producer_ttl_ms)
        return ProducerInstalled(self.producers.install(command, self.config.max_producers, self.clock_ms))

    def _trim(self, command: Trim) -> Trimmed | StockadeError:
        self._pass_time(command.now_ms)
        refusal = self._judge_topic(command.topic_id, command.token, stores=False) or self.fence.judge(
            command.token, self.config.require_fence, command.principal
        )
        if refusal is not None:
            return refusal
        if command.if_epoch not in (None, self.topic_epoch) or command.if_log_end not in (None, self.log_end):
            return PlanChanged(topic_epoch=self.topic_epoch, log_end=self.log_end)
        before = self.log_end if command.before is None else command.before
        if before > self.log_end:
            return OffsetOutOfRange(before, self.log_start, self.log_end)
        return self._drop_below(before)

    def _begin_at(self, command: BeginAt) -> Trimmed | StockadeError:
        """Let the log begin at an offset, unless it has given out an offset before: so no offset is skipped or given
        out twice.
        """
        self._pass_time(command.now_ms)
        refusal = self._judge_topic(command.topic_id, None, stores=True) or self.fence.judge(
            None, self.config.require_fence, command.principal
        )
        if refusal is not None:
            return refusal
        if self.log_start == self.log_end == 0:
            self.log.begin_at(command.offset)
        elif not self.log_start == self.log_end == command.offset:
            return OffsetMismatch(log_end=self.log_end)
        return Trimmed(self.log_start, self.log_end)

    def _retain(self, command: Retain) -> Trimmed:
        self._pass_time(command.now_ms)
        if command.all_message_ids:
            self.message_ids.forget_all_due(self.clock_ms)
        return self._drop_below(min(command.before, self.log_end))

    def _drop_below(self, before: Offset) -> Trimmed:
        """Drop the records below ``before``, and their objects in the tier. Producers and epochs stay as they are."""
        self.log.trim(before)
        self.tier.trim(self.log_start)
        return Trimmed(self.log_start, self.log_end)

    def _configure(self, command: Configure) -> Configured:
        """Put a configuration of a later order into force. A sealed topic stays sealed."""
        if command.order > self.config_order:
            assert command.config.topic_id == self.config.topic_id
            is_sealed = self.config.sealed or command.config.sealed
            self.config = msgspec.structs.replace(command.config, sealed=is_sealed)
            self.config_order = command.order
            self.producers.make_room(self.config.max_producers)
            self.due_ms = 0
        self._pass_time(command.now_ms)
        return Configured(self.config_order)


_HANDLERS: dict[type[Command], Callable[[PartitionMachine, Any], Result | StockadeError]] = {
    InstallFence: lambda machine, command: machine.fence.install(command, machine.log_end),
    InstallSeats: lambda machine, command: machine.fence.share(command, machine.log_end),
    ClearFence: lambda machine, command: machine.fence.clear(command, machine.log_end),
    InstallReader: lambda machine, command: machine.readers.install(command),
    CommitPosition: lambda machine, command: machine.readers.commit(command, machine.log_start, machine.log_end),
    InstallProducer: PartitionMachine._install_producer,
    ForgetProducers: lambda machine, command: machine.producers.forget(command),
    Trim: PartitionMachine._trim,
    BeginAt: PartitionMachine._begin_at,
    Retain: PartitionMachine._retain,
    Configure: PartitionMachine._configure,
    PutStage: PartitionMachine._put_stage,
    ChangeStages: PartitionMachine._change_stages,
    AppendStage: PartitionMachine._append_stage,
    BeginTier: lambda machine, command: machine.tier.begin(command),
}
"""The handler of each command, by its type. The table is not made for each machine: bound methods would make a cycle of
references, and a deleted partition's index, producers and message ids would stay in memory until Python's garbage
collector finds it.
"""
