"""Producer names and ids: InitProducerId as SEMANTICS 6.5 has it, row by row.

Named ids are odd and anonymous ones even, so a zombie of a forgotten name never passes as anonymous. Pure
state of the controller's machine; which partitions must learn of a new epoch is enrolments.py's.

A name that nobody has used for NAME_TTL_MS is forgotten when no partition knows one of its ids, or may come to
(enrolments.py says why that is known). What is left of its instances is refused at its next append as
INVALID_PRODUCER_ID_MAPPING, since a partition that does not know it asks here; the name itself begins anew with an id
that nobody had. While a partition knows it, a name stays, however long that is: so the registry outlives every state
that sequence numbers are judged by.
"""

import msgspec

from ..partition.commands import PRODUCER_EPOCH_MAX, ProducerId, is_named
from ..partition.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotFound,
    ProducerFenced,
    ThrottlingQuotaExceeded,
)
from .commands import Enrol, Enrolled, InitProducer, ProducerState, WithdrawProducers
from .enrolments import PRODUCER_EPOCH_FINAL, Enrolments, SavedEnrolments

NAMES_MAX = 1_000_000
NONCES_PER_NAME_MAX = 8
"""Nonces remembered, the newest included; a delayed first call with one of the older ones is refused."""
TIMEOUT_MS_MAX = 900_000
FIRST_NAMED_PID = 1001
FIRST_ANONYMOUS_PID = 1000
RETRY_AFTER_MS = 1000
NAME_TTL_MS = 2 * 86_400_000
"""On the lease clock, since a name was asked for or fenced, or since a partition began or ceased to know it."""


class Row(msgspec.Struct):
    """A name. ``last`` is the pair that a retry of the last bump comes with, None when nobody may repeat it.

    ``nonces`` has the last ones, oldest first; ``nonce`` is the one that the present pair was given for, if
    any. ``retired`` has the ids that were rotated out when their epochs were used up. ``last_used_ms`` is when the name
    was used last.
    """

    name: str
    pid: ProducerId
    epoch: int
    timeout_ms: int
    last: tuple[int, int] | None = None
    nonce: str | None = None
    nonces: list[str] = []
    retired: list[ProducerId] = []
    last_used_ms: int = 0


class SavedRegistry(msgspec.Struct, frozen=True):
    """The next ids of both kinds, the names, and where they are enrolled."""

    next_named: ProducerId
    next_anonymous: ProducerId
    rows: list[Row]
    enrolments: SavedEnrolments


class Registry:
    """Every producer id that was given out."""

    def __init__(self) -> None:
        self.enrolments: Enrolments = Enrolments()
        self.rows: dict[str, Row] = {}
        self._by_pid: dict[ProducerId, Row] = {}
        self._next_named = FIRST_NAMED_PID
        self._next_anonymous = FIRST_ANONYMOUS_PID

    def init(self, index: int, now_ms: int, command: InitProducer) -> ProducerState:
        """The pair to write with; the row numbers are those of the table. ``now_ms`` is the lease clock, here as below,
        and ``index`` the command's place in the log.
        """
        if command.name is None:  # row 1
            self._next_anonymous += 2
            return ProducerState(self._next_anonymous - 2, 0, None, [])
        _check_shape(command, command.name)  # rows 2 and 3
        row = self.rows.get(command.name)
        if row is None:
            row = self._add(command.name, command)  # row 5; with no row there is no nonce to meet row 4
        else:
            self._advance(index, row, command)
        row.last_used_ms = now_ms
        return self.state(row)

    def fence(self, index: int, now_ms: int, name: str) -> ProducerState:
        """Throw out whoever writes under this name (SEMANTICS 5.15); not even a retry gets the old pair back."""
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
        """Check a producer that a partition does not know.

        The caller has checked that the partition exists.
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
            raise ProducerFenced(reason="identity", current_epoch=row.epoch)
        self.enrolments.enrol(index, pid, command.group_id)
        row.last_used_ms = now_ms
        return Enrolled(pid, row.epoch, index)

    def withdraw(self, now_ms: int, command: WithdrawProducers) -> None:
        """A partition has forgotten producers."""
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
        """Of a name that is idle."""
        row = self.rows.pop(name)
        for pid in (*row.retired, row.pid):
            del self._by_pid[pid]

    def state(self, row: Row) -> ProducerState:
        """As answered, with what must be installed first: also of retired ids, which may be written with
        still.
        """
        return ProducerState(row.pid, row.epoch, row.name, self.enrolments.pending([*row.retired, row.pid]))

    def is_anonymous(self, pid: ProducerId) -> bool:
        """Whether this id was given to a producer without a name."""
        return not is_named(pid) and FIRST_ANONYMOUS_PID <= pid < self._next_anonymous

    def by_pid(self, pid: ProducerId) -> Row | None:
        """The name that an id belongs to or belonged to."""
        return self._by_pid.get(pid)

    def save(self) -> SavedRegistry:
        """Everything that decides future answers."""
        return SavedRegistry(self._next_named, self._next_anonymous, list(self.rows.values()), self.enrolments.save())

    def load(self, saved: SavedRegistry) -> None:
        """Inverse of save, into an empty one."""
        self._next_named, self._next_anonymous = saved.next_named, saved.next_anonymous
        for row in saved.rows:
            self.rows[row.name] = row
            self._by_pid.update(dict.fromkeys([*row.retired, row.pid], row))
        self.enrolments.load(saved.enrolments)

    def _add(self, name: str, command: InitProducer) -> Row:
        if len(self.rows) >= NAMES_MAX:
            raise ThrottlingQuotaExceeded(f"there are {NAMES_MAX} names", retry_after_ms=RETRY_AFTER_MS)
        row = Row(name, self._fresh_pid(), 0, command.timeout_ms)
        self.rows[name] = self._by_pid[row.pid] = row
        _remember(row, command.nonce)
        return row

    def _advance(self, index: int, row: Row, command: InitProducer) -> None:
        if command.nonce is not None and command.nonce in row.nonces:
            if command.nonce != row.nonce:
                raise ProducerFenced(reason="identity", current_epoch=row.epoch)
            return  # row 4
        pair = command.pair
        if pair is not None and pair == row.last:  # row 8
            return
        if pair is not None and pair != (row.pid, row.epoch):  # row 11
            raise ProducerFenced(reason="identity", current_epoch=row.epoch)
        if row.epoch < PRODUCER_EPOCH_MAX:  # rows 6 and 9
            self._set_epoch(index, row, row.epoch + 1)
        else:  # rows 7 and 10
            self._rotate(index, row)
        row.last = pair
        row.timeout_ms = command.timeout_ms
        if pair is None:
            _remember(row, command.nonce)

    def _set_epoch(self, index: int, row: Row, epoch: int) -> None:
        assert epoch > row.epoch
        row.epoch = epoch
        self.enrolments.raise_epoch(index, row.pid, epoch)

    def _rotate(self, index: int, row: Row) -> None:
        """A fresh id. The old one gets the epoch that no client has, so that nobody writes with it any more."""
        self.enrolments.raise_epoch(index, row.pid, PRODUCER_EPOCH_FINAL)
        row.retired.append(row.pid)
        row.pid, row.epoch = self._fresh_pid(), 0
        self._by_pid[row.pid] = row

    def _fresh_pid(self) -> ProducerId:
        self._next_named += 2
        return self._next_named - 2


def _check_shape(command: InitProducer, name: str) -> None:
    if not name:
        raise InvalidRequest("name: empty")
    if not 1 <= command.timeout_ms <= TIMEOUT_MS_MAX:
        raise InvalidTransactionTimeout(max=TIMEOUT_MS_MAX)


def _remember(row: Row, nonce: str | None) -> None:
    """A new instance: its nonce is the present one, and the others are superseded."""
    row.nonce = nonce
    if nonce is not None:
        row.nonces = [*row.nonces, nonce][-NONCES_PER_NAME_MAX:]
