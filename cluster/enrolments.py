"""Which named producers write to which partitions, and which partitions have to be told of a new producer
epoch.

A partition enrols a named producer before its first append there, so that a later epoch can be installed
wherever the old one may write. Installing never lowers an epoch, so lost, repeated and late installs do no
harm. Pure state of the controller's machine.
"""

from collections.abc import Iterable

import msgspec

from ..partition.commands import ProducerId
from ..partition.errors import ThrottlingQuotaExceeded
from .commands import GroupId, ProducerFence
from .work import InstallProducerWork

PRODUCER_EPOCH_FINAL = 32767
"""Never given to a client, so nobody can write any more once it is installed: the enrolment has done its
duty.
"""
ENROLMENTS_MAX = 1_000_000
RETRY_AFTER_MS = 1000


class SavedEnrolments(msgspec.Struct, frozen=True):
    """``owed``: in the order in which the partitions came to be owed something."""

    owed: list[tuple[GroupId, list[tuple[ProducerId, int]]]]
    groups: list[tuple[ProducerId, list[GroupId]]]


class Enrolments:
    """Pairs of producer and partition, and the epochs that partitions are owed."""

    def __init__(self) -> None:
        self.owed: dict[GroupId, dict[ProducerId, int]] = {}
        self._groups: dict[ProducerId, set[GroupId]] = {}
        self._pids: dict[GroupId, set[ProducerId]] = {}
        self._count = 0

    def enrol(self, pid: ProducerId, group: GroupId) -> None:
        """From now on the partition is told every epoch of this producer.

        Idempotent; what is owed stays owed.
        """
        groups = self._groups.get(pid, set())
        if group in groups:
            return
        if self._count >= ENROLMENTS_MAX:
            raise ThrottlingQuotaExceeded(f"over {ENROLMENTS_MAX} enrolments", retry_after_ms=RETRY_AFTER_MS)
        self._add(pid, group)

    def raise_epoch(self, pid: ProducerId, epoch: int) -> None:
        """Every partition where the producer is enrolled has to know this epoch."""
        for group in self.groups(pid):
            self.owed.setdefault(group, {})[pid] = epoch

    def installed(self, pid: ProducerId, epoch: int, group: GroupId) -> None:
        """The partition knows this epoch or a higher one."""
        if not self._owes(group, pid) or self.owed[group][pid] > epoch:
            return
        final = self.owed[group][pid] == PRODUCER_EPOCH_FINAL
        del self.owed[group][pid]
        if not self.owed[group]:
            del self.owed[group]
        if final:
            self._remove(pid, group)

    def forget(self, groups: Iterable[GroupId]) -> None:
        """The partitions are no more."""
        for group in groups:
            self.owed.pop(group, None)
            for pid in sorted(self._pids.get(group, ())):
                self._remove(pid, group)

    def groups(self, pid: ProducerId) -> list[GroupId]:
        """Where a producer is enrolled, ascending."""
        return sorted(self._groups.get(pid, ()))

    def pending(self, pids: Iterable[ProducerId]) -> list[ProducerFence]:
        """What has to be installed before these producers are known everywhere to be what the registry says."""
        return [
            ProducerFence(pid, self.owed[group][pid], group)
            for pid in pids
            for group in sorted(self._groups.get(pid, ()))
            if self._owes(group, pid)
        ]

    def is_installed(self, fence: ProducerFence) -> bool:
        """Whether the partition knows that epoch or a higher one, or is no more."""
        return not self._owes(fence.group_id, fence.pid)

    def work_on(self, group: GroupId, index: int) -> list[InstallProducerWork]:
        """What to do on a partition now, after the command at ``index``."""
        owed = sorted(self.owed.get(group, {}).items())
        return [InstallProducerWork(group, pid, epoch, index) for pid, epoch in owed]

    def save(self) -> SavedEnrolments:
        """Everything that decides future answers."""
        groups = [(pid, sorted(groups)) for pid, groups in sorted(self._groups.items())]
        owed = [(group, sorted(epochs.items())) for group, epochs in self.owed.items()]
        return SavedEnrolments(owed, groups)

    def load(self, saved: SavedEnrolments) -> None:
        """Inverse of save, into an empty one."""
        for pid, groups in saved.groups:
            for group in groups:
                self._add(pid, group)
        self.owed = {group: dict(epochs) for group, epochs in saved.owed}

    def _owes(self, group: GroupId, pid: ProducerId) -> bool:
        return pid in self.owed.get(group, ())

    def _add(self, pid: ProducerId, group: GroupId) -> None:
        self._groups.setdefault(pid, set()).add(group)
        self._pids.setdefault(group, set()).add(pid)
        self._count += 1

    def _remove(self, pid: ProducerId, group: GroupId) -> None:
        self._count -= 1
        self._groups[pid].discard(group)
        self._pids[group].discard(pid)
        if not self._groups[pid]:
            del self._groups[pid]
        if not self._pids[group]:
            del self._pids[group]
