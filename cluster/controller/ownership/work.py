"""The installs that the controller's leader has to carry out on partitions, as values. slots.py has those of slots.

Each kind of work has the command to propose to the partition's group, and makes the command that reports it to the
controller's group. Both may be lost, repeated, late, or sent by the leader of an earlier term; slots.py and
reader_fences.py argue why that is safe.
"""

import msgspec

from ....partition.commands import (
    ForgetProducers,
    InstallProducer,
    InstallReader,
    ProducerId,
    ProducerInstalled,
    ProducersForgotten,
    ReaderInstalled,
)
from ..commands import GroupId, ProducerFenceInstalled, ReaderFenceInstalled, WithdrawProducers
from .slots import SlotInstall


class ProducerInstall(msgspec.Struct, frozen=True):
    """Install a producer's epoch, as of the command at log index ``order``, on a partition where it is enrolled."""

    group_id: GroupId
    pid: ProducerId
    epoch: int
    order: int
    principal: str = ""

    @property
    def command(self) -> InstallProducer:
        """The command to propose to the partition's group."""
        return InstallProducer(pid=self.pid, epoch=self.epoch, order=self.order, principal=self.principal)

    def report(self, answer: ProducerInstalled, now_ms: int) -> ProducerFenceInstalled:
        """The command to propose to the controller's group."""
        return ProducerFenceInstalled(now_ms=now_ms, pid=self.pid, epoch=answer.epoch, group_id=self.group_id)


class ReaderInstall(msgspec.Struct, frozen=True):
    """Install the reader fence of a group on a partition: as a resource of the group, the partition has this
    fence_epoch, and its owner is a session of ``principal``, or (``owned`` False) it has none.
    """

    group_id: GroupId
    group: str
    fence_epoch: int
    owned: bool
    principal: str = ""

    @property
    def command(self) -> InstallReader:
        """The command to propose to the partition's group."""
        return InstallReader(self.group, self.fence_epoch, self.owned, self.principal)

    def report(self, answer: ReaderInstalled, now_ms: int) -> ReaderFenceInstalled:
        """The command to propose to the controller's group. The partition took this fence, or has a later one."""
        return ReaderFenceInstalled(
            now_ms=now_ms,
            group_id=self.group_id,
            group=self.group,
            fence_epoch=self.fence_epoch,
            owned=self.owned,
        )


class ProducerWithdrawal(msgspec.Struct, frozen=True):
    """Ask a partition which of these producers it has forgotten; after the command at log index ``order``, no install
    of theirs was owed to it. The leader asks from time to time (garbage_collector.py): this work is not owed.
    """

    group_id: GroupId
    pids: list[ProducerId]
    order: int

    @property
    def command(self) -> ForgetProducers:
        """The command to propose to the partition's group."""
        return ForgetProducers(self.pids, self.order)

    def report(self, answer: ProducersForgotten, now_ms: int) -> WithdrawProducers | None:
        """The command to propose to the controller's group; None when the partition knows all of them."""
        if not answer.pids:
            return None
        return WithdrawProducers(now_ms=now_ms, group_id=self.group_id, pids=answer.pids, order=self.order)


Work = SlotInstall | ProducerInstall | ReaderInstall | ProducerWithdrawal
