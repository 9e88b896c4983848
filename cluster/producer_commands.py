"""Commands about producer names and ids (SEMANTICS 6.5). Part of the controller's commands (commands.Command)."""

import msgspec

from ..partition.commands import ProducerId
from .timed import Timed


class InitProducer(Timed, frozen=True, tag="init_producer"):
    """InitProducerId (SEMANTICS 6.5). ``pair`` is (pid, epoch) of a caller that was here before.

    Answers ProducerState, or InvalidRequest, InvalidTransactionTimeout, ProducerFenced,
    ThrottlingQuotaExceeded.
    """

    name: str | None
    timeout_ms: int
    pair: tuple[int, int] | None = None
    nonce: str | None = None


class FenceProducer(Timed, frozen=True, tag="fence_producer"):
    """Fence whoever writes under this name (SEMANTICS 5.15). Answers ProducerState, or NotFound."""

    name: str


class Enrol(Timed, frozen=True, tag="enrol"):
    """A partition asks about a producer that it does not know; from now on it is told every epoch of it.

    Answers Enrolled, or UnknownTopicOrPartition, InvalidProducerIdMapping, ProducerFenced,
    ThrottlingQuotaExceeded.
    """

    pid: ProducerId
    group_id: int


class ProducerFenceInstalled(Timed, frozen=True, tag="producer_fence_installed"):
    """The partition has committed InstallProducer with this epoch. Idempotent. Answers Done."""

    pid: ProducerId
    epoch: int
    group_id: int


class WithdrawProducers(Timed, frozen=True, tag="withdraw_producers"):
    """The partition does not know these producers, and takes nothing of them that was decided up to ``order``: unless
    something was decided since, it need not be told of them any more. Answers Done.
    """

    group_id: int
    pids: list[ProducerId]
    order: int


class ForgetNames(Timed, frozen=True, tag="forget_names"):
    """Forget those of these names that nobody has used for long, and that no partition may know. Answers Done."""

    names: list[str]


ProducerCommand = InitProducer | FenceProducer | Enrol | ProducerFenceInstalled | WithdrawProducers | ForgetNames


class ProducerFence(msgspec.Struct, frozen=True):
    """An epoch that a partition must know before the producer's pair is given out (is_installed tells)."""

    pid: ProducerId
    epoch: int
    group_id: int


class ProducerState(msgspec.Struct, frozen=True, tag="producer"):
    """The pair of a producer; give it to the client when every one of ``pending`` is installed."""

    pid: ProducerId
    epoch: int
    name: str | None
    pending: list[ProducerFence]


class Enrolled(msgspec.Struct, frozen=True, tag="enrolled"):
    """The epoch to install on the partition that asked: the registry's, or 0 for an anonymous producer. ``order`` is
    the log index of this answer.
    """

    pid: ProducerId
    epoch: int
    order: int
