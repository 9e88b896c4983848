"""The installs that the controller's leader has to carry out on partitions, as values, and the reader fences that are
owed to partitions. slots.py has the installs of slots.

Each kind of work has the command to propose to the partition's group, and makes the command that reports it to the
controller's group. Both may be lost, repeated, late, or sent by the leader of an earlier term; slots.py argues why that
is safe.

For each partition and group there is at most one reader fence to install: the last (fence_epoch, owned). A partition
takes no older fence than the one it has; of one fence_epoch, ``owned=False`` is later than ``owned=True``. So lost,
repeated and late installs do no harm. Pure state of the controller's machine.
"""

from collections.abc import Iterable

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
from ..commands import (
    GroupId,
    ProducerFenceInstalled,
    ReaderFenceInstalled,
    ReaderRef,
    WithdrawProducers,
)
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


class ReaderFence(msgspec.Struct, frozen=True, array_like=True):
    """The fence of a resource: its fence_epoch, whether a session owns it, and that session's principal."""

    fence_epoch: int
    owned: bool
    principal: str = ""


SavedReaderFences = list[tuple[GroupId, list[tuple[str, ReaderFence]]]]


class ReaderFenceInstalls:
    """The reader fences that partitions have yet to commit. ``owed`` has them by partition, then by group."""

    def __init__(self) -> None:
        self.owed: dict[GroupId, dict[str, ReaderFence]] = {}

    def owe(self, group_id: GroupId, group: str, fence: ReaderFence) -> None:
        """Note that the partition has to commit this fence, in place of an earlier one for the same group."""
        self.owed.setdefault(group_id, {})[group] = fence

    def installed(self, group_id: GroupId, group: str, fence_epoch: int, *, owned: bool) -> None:
        """Note that the partition has committed this fence. A later one remains owed."""
        owed = self.owed.get(group_id, {})
        fence = owed.get(group)
        if fence is not None and (fence.fence_epoch, fence.owned) == (fence_epoch, owned):
            del owed[group]
            if not owed:
                del self.owed[group_id]

    def forget(self, groups: Iterable[GroupId]) -> None:
        """Drop what is owed to partitions that were deleted."""
        for group_id in groups:
            self.owed.pop(group_id, None)

    def is_installed(self, ref: ReaderRef) -> bool:
        """Whether the partition is known to refuse every fence_epoch older than this one, or was deleted."""
        return ref.group not in self.owed.get(ref.group_id, ())

    def work_on(self, group_id: GroupId) -> list[ReaderInstall]:
        """The installs that a partition is owed."""
        return [
            ReaderInstall(group_id, group, fence.fence_epoch, fence.owned, fence.principal)
            for group, fence in self.owed.get(group_id, {}).items()
        ]

    def save(self) -> SavedReaderFences:
        """The state on which future answers depend."""
        return [(group_id, list(owed.items())) for group_id, owed in self.owed.items()]

    def load(self, saved: SavedReaderFences) -> None:
        """Inverse of ``save``, on an empty instance."""
        self.owed = {group_id: dict(owed) for group_id, owed in saved}
