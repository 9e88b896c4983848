"""What a replica does with what is to be stored: from a batch to the verdict of apply.

The only kind of write that needs more than its verdict is that of a producer whom the partition does not know yet: it
is enrolled first, and what it asked for proposed again.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ..partition.commands import (
    Append,
    Appended,
    AppendStage,
    ChangeStages,
    Configure,
    Configured,
    InstallProducer,
    NotEnrolled,
    Result,
    encode_command,
)
from ..partition.config import PartitionConfig
from ..partition.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    NotOwner,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    UnknownTopicOrPartition,
)
from ..partition.records import Batch
from ..partition.stored import StoredMachine
from ..partition.switches import stop_at
from ..raft.group import Group, Outcome, Rejected
from .model import Conditions, Settle, TopicConfig
from .outcomes import verdict
from .partition_group import RETRY_AFTER_MS, AppliedMachine, PartitionGroup

Enrol = Callable[[int, int, float], Awaitable[tuple[int, int]]]
"""(pid, group id, timeout in seconds) -> the producer epoch in force and the order of this answer among others.
Raises what the registry answers.
"""


class Writing(PartitionGroup):
    """How one partition is written to, and the configuration under which that is judged."""

    def __init__(
        self,
        name: tuple[str, int, int],
        config: TopicConfig,
        stored: StoredMachine,
        open_group: Callable[[AppliedMachine], Group],
        *,
        url_of: Callable[[str | None], str | None],
        enrol: Enrol,
        timeout_s: float,
    ) -> None:
        """``name`` is (topic, topic id, partition); ``timeout_s`` bounds every call."""
        super().__init__(name, stored, open_group, url_of, timeout_s)
        self.config: TopicConfig = config
        self._enrol = enrol
        self._is_sealed = False
        self.config_order: int = self.topic_id
        self._configuring = asyncio.Lock()

    def reconfigure(self, config: TopicConfig, *, is_sealed: bool, order: int) -> None:
        """The topic's configuration as decided at ``order`` of the controller's log (at its creation: the topic's id).

        The leader puts it into the partition's log before the next write, or when ``configure`` is called.
        """
        if order > self.config_order:
            self.config, self._is_sealed, self.config_order = config, is_sealed, order

    @property
    def is_configured(self) -> bool:
        """Whether the configuration that this node knows is in force in the machine."""
        return self.machine.config_order >= self.config_order

    async def configure(self) -> None:
        """Bring the machine's configuration up to date, if this node leads."""
        async with self._configuring:
            if self.group.is_leader and not self.is_configured:
                config = self.config
                wanted = PartitionConfig(
                    self.topic_id,
                    config.require_fence,
                    config.strict_sequence,
                    config.max_producers,
                    config.producer_ttl_ms,
                    config.dedupe_window_ms,
                    config.writer_group,
                    self._is_sealed,
                )
                await self._ask(Configure(self.config_order, wanted, self.now_ms()), Configured)

    async def append(self, batch: Batch, conditions: Conditions) -> Appended:
        """Propose the batch; a producer that is new here is enrolled first and the batch proposed again."""
        await self._prepare_write()
        stop_at("append-received")
        appended = await self._append(self._command(batch, conditions))
        stop_at("append-applied")
        return appended

    def submit(self, batch: Batch, conditions: Conditions, settle: Settle) -> bool:
        """Propose the batch without waiting: ``settle`` is called with the verdict, exactly once.

        False: nothing was proposed, and ``settle`` is not called, for the topic's configuration has to be put in force
        first. ``append`` does that.
        """
        if not self.is_configured:
            return False
        stop_at("append-received")

        def decided(outcome: Outcome) -> None:
            stop_at("append-applied")
            settle(self._verdict(outcome))

        self.group.submit(encode_command(self._command(batch, conditions)), self._timeout_s, decided)
        return True

    def _verdict(self, outcome: Outcome) -> Appended | StockadeError | None:
        found = None if isinstance(outcome, Rejected) else verdict(outcome, RETRY_AFTER_MS)
        if isinstance(found, NotOwner):
            return self._named(found)
        return found if isinstance(found, Appended | StockadeError) else None

    def _command(self, batch: Batch, conditions: Conditions) -> Append:
        message_id = conditions.message_id
        if message_id is not None and not self.machine.config.dedupe_window_ms:
            raise InvalidRequest("message_id: the topic has no dedupe_window_ms")
        return Append(
            batch.message,
            batch.count,
            batch.crc,
            batch.received_ms,
            batch.max_timestamp_ms,
            conditions.topic_id,
            conditions.token,
            conditions.stamp,
            conditions.if_log_end,
            self.now_ms(),
            conditions.fence_epoch,
            message_id,
        )

    async def _prepare_write(self) -> None:
        """Raises NotLeaderOrFollower, LeaderNotAvailable."""
        self._check_leading()
        if not self.is_configured:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self.configure()
            except (TimeoutError, RequestTimedOut) as error:  # nothing of the write was proposed yet
                raise LeaderNotAvailable("the topic's configuration could not be put in force in time") from error

    async def _append(self, command: Append | AppendStage) -> Appended:
        try:
            result = await self._decide(command)
        except NotOwner as refusal:
            raise self._named(refusal) from None
        assert isinstance(result, Appended), result
        return result

    def _named(self, refusal: NotOwner) -> NotOwner:
        """The machine does not know the resource's name."""
        return NotOwner(**refusal.fields, resource=f"{self.topic}/{self.partition}")

    async def _decide(self, command: Append | AppendStage | ChangeStages) -> Result:
        """Propose what a producer asks for; one that is new here is enrolled first and the command proposed again."""
        deadline = self._deadline()
        result = await self._propose(command, deadline)
        while isinstance(result, NotEnrolled):
            await self._introduce(result.pid, deadline)
            result = await self._propose(command, deadline)
        return result

    async def _introduce(self, pid: int, deadline: float) -> None:
        """Make a producer known here. Nothing of the append was stored yet, so even a lost step is no unknown
        outcome.
        """
        try:
            remaining = deadline - asyncio.get_running_loop().time()
            epoch, order = await self._enrol(pid, self.group.group_id, remaining)
            await self._propose(InstallProducer(pid, epoch, order, self.now_ms()), deadline)
        except ProducerFenced as refusal:  # by the registry, of a producer that is not known here
            unknown = {"state": "unknown", "base_offset": None, "last_offset": None}
            raise ProducerFenced(**refusal.fields, outcome=unknown) from None
        except RequestTimedOut as error:
            raise LeaderNotAvailable("the producer could not be looked up in time") from error
        except UnknownTopicOrPartition as error:
            # The controller knows topics by id here; this partition is being deleted.
            raise UnknownTopicOrPartition(topic=self.topic, partition=None) from error
