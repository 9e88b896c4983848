"""Producer names and ids (InitProducerId as SEMANTICS 6.5 has it, row by row), and the partitions that must know of
them.

Named ids are odd and anonymous ones even, so a zombie of a forgotten name never passes as anonymous. Pure state of the
controller's machine.

*Enrolment.* A partition enrols a named producer before its first append there, so that a later epoch can be installed
on every partition where the old one may write. Installing never lowers an epoch, so lost, repeated and late installs do
no harm.

*Forgetting.* A name that was not used for NAME_TTL_MS is forgotten when no partition knows one of its ids, or may still
come to know one. Its earlier instances are refused at their next append as INVALID_PRODUCER_ID_MAPPING, since a
partition that does not know the id asks here; the name itself begins anew with a fresh id. While a partition knows it,
a name stays: so the registry outlives every state by which partitions judge sequence numbers.

A partition's enrolment is withdrawn once the partition has forgotten the producer. The rule that keeps zombies out:
*where a partition knows a named producer, or may still come to know it, the producer is enrolled*, unless it knows the
epoch PRODUCER_EPOCH_FINAL, with which no client writes. For:

1. A partition learns of a producer by an install alone. Each install carries the index of the decision that it comes
   from (an enrolment, or a raise of the epoch), or a later index. ``_groups`` has the index of the last such decision.
2. The controller asks a partition which producers it has forgotten only when no install of the producer is due there;
   the question carries the applied index. So all earlier installs were reported, and carry a lower index.
3. A partition that answers that it does not know a producer takes, from then on, no install of an unknown producer with
   that index or a lower one. An install under way that it could still take was decided after the question.
4. Such a decision has left its index here, and then the answer withdraws nothing. Answers may therefore be late, be
   repeated, and come to another leader.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from ...partition.commands import PRODUCER_EPOCH_MAX, ProducerId, belongs_to_another, is_named
from ...partition.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    NotFound,
    ProducerFenced,
    ThrottlingQuotaExceeded,
)
from ..access.quotas import check_most
from ..access.rights import lacks
from ..features import FENCED_TAKEOVERS
from ..model import By
from .commands import Enrol, Enrolled, GroupId, InitProducer, ProducerFence, ProducerState, WithdrawProducers
from .ownership.work import ProducerInstall

PRODUCER_EPOCH_FINAL = 32767
"""Never given to a client: a partition that has installed it accepts no append of this id, and needs no enrolment."""
ENROLMENTS_MAX = 1_000_000
RETRY_AFTER_MS = 1000


class SavedEnrolments(msgspec.Struct, frozen=True):
    """The saved state of Enrolments. ``owed``: in the order in which partitions came to be owed an install. ``flat``:
    for each producer, ascending, its id, the number of its enrolments, and for each of these, ascending, group and
    order. One list of numbers, since a million lists would set off the garbage collector while the event loop waits.

    Version 1 of the state had ``groups`` and ``orders`` instead, of which the entries correspond one to one.
    """

    owed: list[tuple[GroupId, list[tuple[ProducerId, int]]]]
    groups: list[tuple[ProducerId, list[GroupId]]] = []
    orders: list[list[int]] = []
    flat: list[int] = []


class Enrolments:
    """The enrolments, which are pairs of producer and partition, and the epochs that partitions are owed."""

    def __init__(self) -> None:
        self.owed: dict[GroupId, dict[ProducerId, int]] = {}
        self._groups: dict[ProducerId, dict[GroupId, int]] = {}  # with the index of the last decision about it there
        self._pids: dict[GroupId, set[ProducerId]] = {}
        self._count = 0

    def enrol(self, index: int, pid: ProducerId, group: GroupId) -> None:
        """From now on every epoch of this producer is installed on the partition. An epoch that is owed stays owed."""
        groups = self._groups.get(pid, {})
        if group in groups:
            groups[group] = index
            return
        if self._count >= ENROLMENTS_MAX:
            raise ThrottlingQuotaExceeded(
                f"the cluster would have over {ENROLMENTS_MAX} enrolments of producers", retry_after_ms=RETRY_AFTER_MS
            )
        self._add(pid, group, index)

    def raise_epoch(self, index: int, pid: ProducerId, epoch: int) -> None:
        """Owe this epoch to every partition where the producer is enrolled."""
        for group in self.groups(pid):
            self.owed.setdefault(group, {})[pid] = epoch
            self._groups[pid][group] = index

    def installed(self, pid: ProducerId, epoch: int, group: GroupId) -> None:
        """Note that the partition knows this epoch or a higher one; the final epoch ends the enrolment."""
        if not self._owes(group, pid) or self.owed[group][pid] > epoch:
            return
        final = self.owed[group][pid] == PRODUCER_EPOCH_FINAL
        del self.owed[group][pid]
        if not self.owed[group]:
            del self.owed[group]
        if final:
            self._remove(pid, group)

    def withdraw(self, command: WithdrawProducers) -> list[ProducerId]:
        """End the enrolments of producers that the partition has forgotten. Returns the producers whose this ended."""
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
        """Whether one of these is enrolled on any partition."""
        return any(pid in self._groups for pid in pids)

    def enrolled_on(self, group: GroupId) -> list[ProducerId]:
        """The producers enrolled on a partition."""
        return list(self._pids.get(group, ()))

    def settled_on(self, group: GroupId, pids: Iterable[ProducerId]) -> list[ProducerId]:
        """Those of ``pids`` that are enrolled on a partition, and about which it is owed no install, ascending."""
        enrolled = self._pids.get(group, ())
        return sorted(pid for pid in pids if pid in enrolled and not self._owes(group, pid))

    def partitions(self) -> list[GroupId]:
        """The partitions with enrolments."""
        return list(self._pids)

    def forget(self, groups: Iterable[GroupId]) -> None:
        """Drop what is known of partitions that were deleted."""
        for group in groups:
            self.owed.pop(group, None)
            for pid in sorted(self._pids.get(group, ())):
                self._remove(pid, group)

    def groups(self, pid: ProducerId) -> list[GroupId]:
        """The partitions where a producer is enrolled, ascending."""
        return sorted(self._groups.get(pid, ()))

    def pending(self, pids: Iterable[ProducerId]) -> list[ProducerFence]:
        """The installs that are owed before all partitions know the registry's epochs of these producers."""
        return [
            ProducerFence(pid, self.owed[group][pid], group)
            for pid in pids
            for group in sorted(self._groups.get(pid, ()))
            if self._owes(group, pid)
        ]

    def is_installed(self, fence: ProducerFence) -> bool:
        """Whether the partition knows that epoch or a higher one, or was deleted."""
        return not self._owes(fence.group_id, fence.pid)

    def owed_to(self, group: GroupId) -> list[tuple[ProducerId, int]]:
        """The epochs that a partition has to know, by producer, ascending."""
        return sorted(self.owed.get(group, {}).items())

    def save(self) -> SavedEnrolments:
        """The state on which future answers depend."""
        flat: list[int] = []
        for pid in sorted(self._groups):
            orders = self._groups[pid]
            flat += (pid, len(orders))
            for group in sorted(orders):
                flat += (group, orders[group])
        owed = [(group, sorted(epochs.items())) for group, epochs in self.owed.items()]
        return SavedEnrolments(owed, flat=flat)

    def load(self, saved: SavedEnrolments) -> None:
        """Inverse of ``save``, on an empty instance."""
        for number, (pid, groups) in enumerate(saved.groups):
            orders = saved.orders[number] if saved.orders else [0] * len(groups)
            for group, order in zip(groups, orders, strict=True):
                self._add(pid, group, order)
        numbers = iter(saved.flat)
        for pid in numbers:
            for _ in range(next(numbers)):
                self._add(pid, next(numbers), next(numbers))
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


NAMES_MAX = 1_000_000
NONCES_PER_NAME_MAX = 8
"""Nonces remembered, the newest included; a delayed first call with one of the older ones is refused."""
FIRST_NAMED_PID = 1001
FIRST_ANONYMOUS_PID = 1000
NAME_TTL_MS = 2 * 86_400_000
"""Time on the lease clock after a name was asked for or fenced, or a partition began or ceased to know it."""


class ProducerRow(msgspec.Struct):
    """A producer's name. ``last`` is the pair with which a retry of the last bump comes; None: no bump can be retried.

    ``nonces`` has the last nonces, oldest first; ``nonce`` is the one for which the present pair was given, if any.
    ``retired`` has the ids that were rotated out when their epochs were used up. ``last_used_ms`` is the lease clock
    of the last use. ``principal`` owns the name ("": none does).
    """

    name: str
    pid: ProducerId
    epoch: int
    last: tuple[int, int] | None = None
    nonce: str | None = None
    nonces: list[str] = []
    retired: list[ProducerId] = []
    last_used_ms: int = 0
    principal: str = ""


class SavedRegistry(msgspec.Struct, frozen=True):
    """The saved state of ProducerRegistry: the next ids of both kinds, the names, and the enrolments."""

    next_named: ProducerId
    next_anonymous: ProducerId
    rows: list[ProducerRow]
    enrolments: SavedEnrolments


class ProducerRegistry:
    """The producers' names, with the ids that they have and had, the enrolments of these, and the anonymous ids."""

    def __init__(self) -> None:
        self.enrolments: Enrolments = Enrolments()
        self.rows: dict[str, ProducerRow] = {}
        self._by_pid: dict[ProducerId, ProducerRow] = {}
        self._counts: Counter[str] = Counter()  # names by principal
        self._next_named = FIRST_NAMED_PID
        self._next_anonymous = FIRST_ANONYMOUS_PID

    def init(self, index: int, now_ms: int, command: InitProducer, level: int) -> ProducerState:
        """The pair to write with; row numbers are those of the table in SEMANTICS 6.5. ``now_ms`` is the lease clock,
        here as below, ``index`` the command's log index, and ``level`` the cluster's feature level.
        """
        if command.name is None:  # row 1
            self._next_anonymous += 2
            return ProducerState(self._next_anonymous - 2, 0, None, [])
        if not command.name:  # rows 2 and 3
            raise InvalidRequest("name: empty")
        row = self.rows.get(command.name)
        if row is not None:
            _check_may_take(row, command.by)
        if row is None or command.by.principal not in ("", row.principal):
            check_most(command.by, self._counts[command.by.principal], "names of producers")
        if row is None:
            row = self._add(command.name, command)  # row 5; with no row there is no nonce to meet row 4
        else:
            heir = command.by.principal or row.principal
            is_taken = level >= FENCED_TAKEOVERS and belongs_to_another(row.principal, heir)
            self._advance(index, row, command, is_taken=is_taken)
        self._give(row, command.by.principal or row.principal)
        row.last_used_ms = now_ms
        return self.state(row)

    def fence(self, index: int, now_ms: int, name: str) -> ProducerState:
        """Fence the writer of this name (SEMANTICS 5.15); not even a retry gets the old pair back."""
        row = self.rows.get(name)
        if row is None:
            raise NotFound(what="producer")
        if row.epoch < PRODUCER_EPOCH_FINAL:
            self._set_epoch(index, row, row.epoch + 1)
        else:
            self._rotate(index, row)
        row.last = row.nonce = None
        row.last_used_ms = now_ms
        return self.state(row)

    def enrol(self, index: int, now_ms: int, command: Enrol) -> Enrolled:
        """Enrol a producer on a partition that does not know it, unless its id is anonymous. Raises
        InvalidProducerIdMapping, ProducerFenced, ThrottlingQuotaExceeded. The caller knows that the partition exists.
        """
        pid = command.pid
        if not is_named(pid):
            if not self.is_anonymous(pid):
                raise InvalidProducerIdMapping()
            return Enrolled(pid, 0, index)
        row = self._by_pid.get(pid)
        if row is None:
            raise InvalidProducerIdMapping()
        if row.pid != pid:
            raise _superseded(row)
        self.enrolments.enrol(index, pid, command.group_id)
        row.last_used_ms = now_ms
        return Enrolled(pid, row.epoch, index, row.principal)

    def withdraw(self, now_ms: int, command: WithdrawProducers) -> None:
        """End enrolments of producers that a partition has forgotten."""
        for pid in self.enrolments.withdraw(command):
            self._by_pid[pid].last_used_ms = now_ms

    def is_idle(self, name: str, now_ms: int) -> bool:
        """Whether a name was not used for NAME_TTL_MS, and no partition knows it."""
        row = self.rows.get(name)
        return (
            row is not None
            and now_ms - row.last_used_ms >= NAME_TTL_MS
            and not self.enrolments.is_anywhere([*row.retired, row.pid])
        )

    def forget(self, name: str) -> None:
        """Forget a name that is idle, and its ids."""
        row = self.rows.pop(name)
        self._counts[row.principal] -= 1
        for pid in (*row.retired, row.pid):
            del self._by_pid[pid]

    def work_on(self, group: GroupId, index: int) -> list[ProducerInstall]:
        """The installs that a partition is owed, as of the command at ``index``."""
        return [
            ProducerInstall(group, pid, epoch, index, self._by_pid[pid].principal)
            for pid, epoch in self.enrolments.owed_to(group)
        ]

    def state(self, row: ProducerRow) -> ProducerState:
        """The answer for a name, with the installs that must come first: also those of retired ids, with which a
        producer may still write.
        """
        return ProducerState(row.pid, row.epoch, row.name, self.enrolments.pending([*row.retired, row.pid]))

    def is_anonymous(self, pid: ProducerId) -> bool:
        """Whether this id was given to a producer without a name."""
        return not is_named(pid) and FIRST_ANONYMOUS_PID <= pid < self._next_anonymous

    def find(self, key: int | str) -> ProducerState | None:
        """The present pair of a name, or of the name that an id belongs or belonged to."""
        row = self.rows.get(key) if isinstance(key, str) else self._by_pid.get(key)
        return self.state(row) if row is not None else None

    def by_pid(self, pid: ProducerId) -> ProducerRow | None:
        """The row of the name that an id belongs to or belonged to."""
        return self._by_pid.get(pid)

    def save(self) -> SavedRegistry:
        """The state on which future answers depend."""
        return SavedRegistry(self._next_named, self._next_anonymous, list(self.rows.values()), self.enrolments.save())

    def load(self, saved: SavedRegistry) -> None:
        """Inverse of ``save``, on an empty instance."""
        self._next_named, self._next_anonymous = saved.next_named, saved.next_anonymous
        for row in saved.rows:
            self.rows[row.name] = row
            self._counts[row.principal] += 1
            self._by_pid.update(dict.fromkeys([*row.retired, row.pid], row))
        self.enrolments.load(saved.enrolments)

    def _add(self, name: str, command: InitProducer) -> ProducerRow:
        if len(self.rows) >= NAMES_MAX:
            raise ThrottlingQuotaExceeded(
                f"the cluster has {NAMES_MAX} producer names already", retry_after_ms=RETRY_AFTER_MS
            )
        row = ProducerRow(name, self._fresh_pid(), 0)
        self.rows[name] = self._by_pid[row.pid] = row
        self._counts[row.principal] += 1
        _remember(row, command.nonce)
        return row

    def _give(self, row: ProducerRow, principal: str) -> None:
        self._counts[row.principal] -= 1
        row.principal = principal
        self._counts[principal] += 1

    def _advance(self, index: int, row: ProducerRow, command: InitProducer, *, is_taken: bool) -> None:
        """``is_taken``: another principal takes the name over, so this is no retry, and the present pair is fenced."""
        if command.nonce is not None and command.nonce in row.nonces:
            if command.nonce != row.nonce:
                raise _superseded(row)
            if not is_taken:  # row 4
                return
        pair = command.pair
        if pair is not None and pair == row.last and not is_taken:  # row 8
            return
        if pair not in (None, (row.pid, row.epoch)) and not (is_taken and pair == row.last):  # row 11
            raise _superseded(row)
        if row.epoch < PRODUCER_EPOCH_MAX:  # rows 6 and 9
            self._set_epoch(index, row, row.epoch + 1)
        else:  # rows 7 and 10
            self._rotate(index, row)
        row.last = pair
        if pair is None:
            _remember(row, command.nonce)

    def _set_epoch(self, index: int, row: ProducerRow, epoch: int) -> None:
        assert epoch > row.epoch
        row.epoch = epoch
        self.enrolments.raise_epoch(index, row.pid, epoch)

    def _rotate(self, index: int, row: ProducerRow) -> None:
        """Give a name a fresh id. The old id gets PRODUCER_EPOCH_FINAL, which no client has, so every append with it is
        refused.
        """
        self.enrolments.raise_epoch(index, row.pid, PRODUCER_EPOCH_FINAL)
        row.retired.append(row.pid)
        row.pid, row.epoch = self._fresh_pid(), 0
        self._by_pid[row.pid] = row

    def _fresh_pid(self) -> ProducerId:
        self._next_named += 2
        return self._next_named - 2


def _check_may_take(row: ProducerRow, by: By) -> None:
    if belongs_to_another(row.principal, by.principal) and not by.evicts:
        raise lacks(by, f"evict producer:{row.name}", "the name is another principal's")


def _superseded(row: ProducerRow) -> ProducerFenced:
    """The refusal of a caller whose name a later producer has taken."""
    why = f"a later producer named {row.name} has started, or the name was fenced; "
    why += "a standby needs a producer name of its own, or none"
    return ProducerFenced(why, reason="identity", current_epoch=row.epoch)


def _remember(row: ProducerRow, nonce: str | None) -> None:
    """Note that a new instance uses the name: its nonce is the present one, and the earlier nonces are superseded."""
    row.nonce = nonce
    if nonce is not None:
        row.nonces = [*row.nonces, nonce][-NONCES_PER_NAME_MAX:]
