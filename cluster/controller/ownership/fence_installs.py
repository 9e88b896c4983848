"""What the controller's leader has to bring about on partitions, as values, and which readers' fences are owed to them.
How slots are installed is in slots.py.

Each kind of work has the command to propose to the partition's group, and makes the command that reports it to the
controller's group. Both may be lost, repeated, late, or sent by the leader of an earlier term; slots.py argues why that
is safe.

For each partition and group there is at most one reader's fence to install: the last (fence_epoch, owned). The
partition takes nothing older than what it knows; of one fence_epoch, ``owned=False`` is later than ``owned=True``. So
lost, repeated and late installs do no harm. Pure state of the controller's machine.
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
    """Install a producer's new epoch on a partition where it is enrolled, as it was after the command at ``order``."""

    group_id: GroupId
    pid: ProducerId
    epoch: int
    order: int
    principal: str = ""

    @property
    def command(self) -> InstallProducer:
        """To propose to the partition's group."""
        return InstallProducer(pid=self.pid, epoch=self.epoch, order=self.order, principal=self.principal)

    def report(self, answer: ProducerInstalled, now_ms: int) -> ProducerFenceInstalled:
        """To propose to the controller's group."""
        return ProducerFenceInstalled(now_ms=now_ms, pid=self.pid, epoch=answer.epoch, group_id=self.group_id)


class ReaderInstall(msgspec.Struct, frozen=True):
    """Install on a partition who may read it as a resource of a group: the owner with this fence_epoch, a session of
    ``principal``, or (``owned`` False) no session.
    """

    group_id: GroupId
    group: str
    fence_epoch: int
    owned: bool
    principal: str = ""

    @property
    def command(self) -> InstallReader:
        """To propose to the partition's group."""
        return InstallReader(self.group, self.fence_epoch, self.owned, self.principal)

    def report(self, answer: ReaderInstalled, now_ms: int) -> ReaderFenceInstalled:
        """To propose to the controller's group. The partition takes it, or knows a later one."""
        return ReaderFenceInstalled(
            now_ms=now_ms,
            group_id=self.group_id,
            group=self.group,
            fence_epoch=self.fence_epoch,
            owned=self.owned,
        )


class ProducerWithdrawal(msgspec.Struct, frozen=True):
    """Ask a partition which of these producers it has forgotten, nothing being owed to it about them after the command
    at ``order``. Not owed work: it is done now and then (garbage_collector.py).
    """

    group_id: GroupId
    pids: list[ProducerId]
    order: int

    @property
    def command(self) -> ForgetProducers:
        """To propose to the partition's group."""
        return ForgetProducers(self.pids, self.order)

    def report(self, answer: ProducersForgotten, now_ms: int) -> WithdrawProducers | None:
        """To propose to the controller's group; None when it knows all of them."""
        if not answer.pids:
            return None
        return WithdrawProducers(now_ms=now_ms, group_id=self.group_id, pids=answer.pids, order=self.order)


Work = SlotInstall | ProducerInstall | ReaderInstall | ProducerWithdrawal


class ReaderFence(msgspec.Struct, frozen=True, array_like=True):
    """fence_epoch, whether a session owns the resource, and that session's principal."""

    fence_epoch: int
    owned: bool
    principal: str = ""


SavedReaderFences = list[tuple[GroupId, list[tuple[str, ReaderFence]]]]


class ReaderFenceInstalls:
    """``owed``: by partition, then by group."""

    def __init__(self) -> None:
        self.owed: dict[GroupId, dict[str, ReaderFence]] = {}

    def owe(self, group_id: GroupId, group: str, fence: ReaderFence) -> None:
        """The partition has to commit this."""
        self.owed.setdefault(group_id, {})[group] = fence

    def installed(self, group_id: GroupId, group: str, fence_epoch: int, *, owned: bool) -> None:
        """The partition has committed this."""
        owed = self.owed.get(group_id, {})
        fence = owed.get(group)
        if fence is not None and (fence.fence_epoch, fence.owned) == (fence_epoch, owned):
            del owed[group]
            if not owed:
                del self.owed[group_id]

    def forget(self, groups: Iterable[GroupId]) -> None:
        """The partitions are no more."""
        for group_id in groups:
            self.owed.pop(group_id, None)

    def is_installed(self, ref: ReaderRef) -> bool:
        """Whether the partition is known to refuse older fence_epochs than this one, or is no more."""
        return ref.group not in self.owed.get(ref.group_id, ())

    def work_on(self, group_id: GroupId) -> list[ReaderInstall]:
        """What to do on a partition now."""
        return [
            ReaderInstall(group_id, group, fence.fence_epoch, fence.owned, fence.principal)
            for group, fence in self.owed.get(group_id, {}).items()
        ]

    def save(self) -> SavedReaderFences:
        """Everything that decides future answers."""
        return [(group_id, list(owed.items())) for group_id, owed in self.owed.items()]

    def load(self, saved: SavedReaderFences) -> None:
        """Inverse of save, into an empty one."""
        self.owed = {group_id: dict(owed) for group_id, owed in saved}
