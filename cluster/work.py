"""What the controller's leader has to bring about on partitions, as values.

Each kind of work knows the command to propose to the partition's group, and the command that tells the
controller's group that it is done. Both may be lost, repeated, late, or sent by a leader of the past: see
ownership.py.
"""

import msgspec

from ..partition.commands import (
    ClearFence,
    ForgetProducers,
    InstallFence,
    InstallProducer,
    InstallReader,
    InstallSeats,
    ProducerId,
    ProducerInstalled,
    ProducersForgotten,
    ReaderInstalled,
    SlotState,
)
from .commands import FenceInstalled, GroupId, ProducerFenceInstalled, WithdrawProducers
from .group_commands import ReaderFenceInstalled


class SlotWork(msgspec.Struct, frozen=True):
    """Bring the slot of a partition to the last decision about it, whose place in their order is ``order``."""

    group_id: GroupId
    order: int
    asked: InstallFence | InstallSeats | ClearFence

    def command(self) -> InstallFence | InstallSeats | ClearFence:
        """To propose to the partition's group."""
        return self.asked

    def report(self, answer: SlotState, now_ms: int) -> FenceInstalled | None:
        """To propose to the controller's group; None when the partition refused: this work is out of date."""
        if not answer.done:
            return None
        return FenceInstalled(now_ms=now_ms, group_id=self.group_id, order=self.order)


class InstallProducerWork(msgspec.Struct, frozen=True):
    """Tell a partition where a producer is enrolled of its new epoch, as it was after the command at ``order``."""

    group_id: GroupId
    pid: ProducerId
    epoch: int
    order: int

    def command(self) -> InstallProducer:
        """To propose to the partition's group."""
        return InstallProducer(pid=self.pid, epoch=self.epoch, order=self.order)

    def report(self, answer: ProducerInstalled, now_ms: int) -> ProducerFenceInstalled:
        """To propose to the controller's group."""
        return ProducerFenceInstalled(now_ms=now_ms, pid=self.pid, epoch=answer.epoch, group_id=self.group_id)


class InstallReaderWork(msgspec.Struct, frozen=True):
    """Tell a partition who may read it as a resource of a group: the owner with this fence_epoch, or nobody."""

    group_id: GroupId
    group: str
    fence_epoch: int
    owned: bool

    def command(self) -> InstallReader:
        """To propose to the partition's group."""
        return InstallReader(self.group, self.fence_epoch, self.owned)

    def report(self, answer: ReaderInstalled, now_ms: int) -> ReaderFenceInstalled:
        """To propose to the controller's group. The partition takes it, or knows a later one."""
        return ReaderFenceInstalled(
            now_ms=now_ms,
            group_id=self.group_id,
            group=self.group,
            fence_epoch=self.fence_epoch,
            owned=self.owned,
        )


class WithdrawWork(msgspec.Struct, frozen=True):
    """Ask a partition which of these producers it has forgotten, nothing being owed to it about them after the command
    at ``order``. Not owed work: it is done now and then (sweeper.py).
    """

    group_id: GroupId
    pids: list[ProducerId]
    order: int

    def command(self) -> ForgetProducers:
        """To propose to the partition's group."""
        return ForgetProducers(self.pids, self.order)

    def report(self, answer: ProducersForgotten, now_ms: int) -> WithdrawProducers | None:
        """To propose to the controller's group; None when it knows all of them."""
        if not answer.pids:
            return None
        return WithdrawProducers(now_ms=now_ms, group_id=self.group_id, pids=answer.pids, order=self.order)


Work = SlotWork | InstallProducerWork | InstallReaderWork | WithdrawWork
