"""Which named producers write to which partitions, and which partitions have to be told of a new producer
epoch.

A partition enrols a named producer before its first append there, so that a later epoch can be installed
wherever the old one may write. Installing never lowers an epoch, so lost, repeated and late installs do no
harm. Pure state of the controller's machine.

An enrolment that no longer serves is withdrawn, and a name that is enrolled nowhere may be forgotten (registry.py). The
rule that keeps zombies out: *where a partition knows a named producer, or may still come to know it, the producer is
enrolled*, unless what it knows is the epoch that nobody writes with. For:

1. A partition learns of a producer by an install alone, and each carries the index of the decision that it comes from,
   or of a later one: an enrolment's, or that of a raise of the epoch. ``_groups`` has the last such index.
2. A partition is asked what it has forgotten with the index that the controller has applied, when it owes it nothing
   about the producer. So what it was owed has been reported, and all work made of that carries a lower index.
3. A partition that answers that it does not know a producer takes, from then on, no install of an unknown producer with
   that index or a lower one. What is under way and could still be taken was decided after the question.
4. Such a decision has left its index here, and then the answer withdraws nothing. Answers may therefore be late, be
   repeated, and come to another leader.
"""

from collections.abc import Iterable

import msgspec

from ..partition.commands import ProducerId
from ..partition.errors import ThrottlingQuotaExceeded
from .commands import GroupId, ProducerFence, WithdrawProducers
from .work import InstallProducerWork

PRODUCER_EPOCH_FINAL = 32767
"""Never given to a client, so nobody can write any more once it is installed: the enrolment has done its
duty.
"""
ENROLMENTS_MAX = 1_000_000
RETRY_AFTER_MS = 1000


class SavedEnrolments(msgspec.Struct, frozen=True):
    """``owed``: in the order in which the partitions came to be owed something. ``orders``: entry by entry those of
    ``groups``.
    """

    owed: list[tuple[GroupId, list[tuple[ProducerId, int]]]]
    groups: list[tuple[ProducerId, list[GroupId]]]
    orders: list[list[int]] = []


class Enrolments:
    """Pairs of producer and partition, and the epochs that partitions are owed."""

    def __init__(self) -> None:
        self.owed: dict[GroupId, dict[ProducerId, int]] = {}
        self._groups: dict[ProducerId, dict[GroupId, int]] = {}  # and the last decision about it there
        self._pids: dict[GroupId, set[ProducerId]] = {}
        self._count = 0

    def enrol(self, index: int, pid: ProducerId, group: GroupId) -> None:
        """From now on the partition is told every epoch of this producer.

        What is owed stays owed.
        """
        groups = self._groups.get(pid, {})
        if group in groups:
            groups[group] = index
            return
        if self._count >= ENROLMENTS_MAX:
            raise ThrottlingQuotaExceeded(f"over {ENROLMENTS_MAX} enrolments", retry_after_ms=RETRY_AFTER_MS)
        self._add(pid, group, index)

    def raise_epoch(self, index: int, pid: ProducerId, epoch: int) -> None:
        """Every partition where the producer is enrolled has to know this epoch."""
        for group in self.groups(pid):
            self.owed.setdefault(group, {})[pid] = epoch
            self._groups[pid][group] = index

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

    def withdraw(self, command: WithdrawProducers) -> list[ProducerId]:
        """What a partition has forgotten it need not be told of; those that this is true of still."""
        group = command.group_id
        gone = [
            pid
            for pid in command.pids
            if self._groups.get(pid, {}).get(group, command.order + 1) <= command.order and not self._owes(group, pid)
        ]
        for pid in gone:
            self._remove(pid, group)
        return gone

    def is_anywhere(self, pids: Iterable[ProducerId]) -> bool:
        """Whether a partition is told of one of these."""
        return any(pid in self._groups for pid in pids)

    def settled_on(self, group: GroupId) -> list[ProducerId]:
        """Whom a partition is told of, and owed nothing about."""
        return [pid for pid in self._pids.get(group, ()) if not self._owes(group, pid)]

    def partitions(self) -> list[GroupId]:
        """Where somebody is enrolled."""
        return list(self._pids)

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
        orders = [[self._groups[pid][group] for group in enrolled] for pid, enrolled in groups]
        owed = [(group, sorted(epochs.items())) for group, epochs in self.owed.items()]
        return SavedEnrolments(owed, groups, orders)

    def load(self, saved: SavedEnrolments) -> None:
        """Inverse of save, into an empty one."""
        for number, (pid, groups) in enumerate(saved.groups):
            orders = saved.orders[number] if saved.orders else [0] * len(groups)
            for group, order in zip(groups, orders, strict=True):
                self._add(pid, group, order)
        self.owed = {group: dict(epochs) for group, epochs in saved.owed}

    def _owes(self, group: GroupId, pid: ProducerId) -> bool:
        return pid in self.owed.get(group, ())

    def _add(self, pid: ProducerId, group: GroupId, order: int) -> None:
        self._groups.setdefault(pid, {})[group] = order
        self._pids.setdefault(group, set()).add(pid)
        self._count += 1

    def _remove(self, pid: ProducerId, group: GroupId) -> None:
        self._count -= 1
        del self._groups[pid][group]
        self._pids[group].discard(pid)
        if not self._groups[pid]:
            del self._groups[pid]
        if not self._pids[group]:
            del self._pids[group]
