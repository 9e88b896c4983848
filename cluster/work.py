"""What the controller's leader has to bring about on partitions, as values.

Each kind of work knows the command to propose to the partition's group, and the command that tells the
controller's group that it is done. Both may be lost, repeated, late, or sent by a leader of the past: see
ownership.py.
"""

import msgspec

from ..partition.commands import (
    ClearFence,
    InstallFence,
    InstallProducer,
    ProducerId,
    ProducerInstalled,
    SlotState,
)
from .commands import FenceCleared, FenceInstalled, GroupId, ProducerFenceInstalled


class InstallFenceWork(msgspec.Struct, frozen=True):
    """Install a live grant on one of its partitions."""

    group_id: GroupId
    grant_id: str
    grant_index: int
    epoch: int
    session: str
    producer_name: str
    mode: str

    def command(self) -> InstallFence:
        """To propose to the partition's group."""
        return InstallFence(
            grant_id=self.grant_id,
            epoch=self.epoch,
            session=self.session,
            producer_name=self.producer_name,
            mode=self.mode,
            grant_index=self.grant_index,
        )

    def report(self, answer: SlotState, now_ms: int) -> FenceInstalled | None:
        """To propose to the controller's group; None when the partition refused: this work is out of date."""
        if not answer.done:
            return None
        return FenceInstalled(now_ms=now_ms, group_id=self.group_id, grant_id=self.grant_id)


class ClearFenceWork(msgspec.Struct, frozen=True):
    """Empty the slot of a partition of a grant that ended."""

    group_id: GroupId
    grant_id: str
    grant_index: int
    epoch: int

    def command(self) -> ClearFence:
        """To propose to the partition's group."""
        return ClearFence(grant_id=self.grant_id, epoch=self.epoch, grant_index=self.grant_index)

    def report(self, answer: SlotState, now_ms: int) -> FenceCleared | None:
        """To propose to the controller's group."""
        if not answer.done:
            return None
        return FenceCleared(now_ms=now_ms, group_id=self.group_id, grant_id=self.grant_id)


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


Work = InstallFenceWork | ClearFenceWork | InstallProducerWork
