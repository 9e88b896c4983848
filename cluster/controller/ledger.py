"""The ledger: an entry for each change of who may write, and for each act of administration. Pure state of the
controller's machine.

The apply that makes a change makes its entry, so an acknowledged act is in the ledger by the same commit. The entry
waits in the *outbox*, here in the replicated state, until the controller's leader has copied it to the ledger's topic
(leader/ledger_keeper.py) and drops it by LedgerCopied.

*Exactly once.* Entries are numbered, and each has the hash of the one before it: the bytes of entry k are the same on
every replica and for every leader. Entry k is copied to offset k - 1, by an append that is accepted only at that end of
the log. So a copy that is repeated, by this leader or the next one, is refused, and the refusal has the topic's log
end, up to which entries were copied. Entries are dropped here only when a majority of the topic's replicas has them. A
deposed leader that copies late copies the same bytes.

*Bounds.* The outbox takes OUTBOX_ENTRIES_MAX entries and OUTBOX_BYTES_MAX bytes. No writer waits for the ledger: beyond
these bounds grants are still given, taken over and ended, and their entries are left out and counted; one entry,
``ledger.gap``, reports them as soon as there is room again. Acts of administration have a reserve on top of the bounds,
RESERVE_ENTRIES and RESERVE_BYTES, so that acts that repair the ledger's topic can be done and are recorded. When the
reserve is used up, too, acts are refused (LedgerFull) rather than left out, but for the three that fence a writer
(``topic.fence``, ``session.fence`` and ``producer.fence``): these are done, left out and counted. The outcome of an
intent that was recorded is always recorded: INTENTS_MAX bounds these entries.

The bytes that an apply makes are replicated state. A version that makes other bytes for the same command may do so only
from a feature level on.
"""

import hashlib
import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from ...partition.api.ledger import NO_HASH, LedgerEntry, Outcome, encode_entry, entry_hash
from ...partition.api.topics import TopicConfig
from ...partition.errors import InvalidRequest, LedgerFull
from ..model import NO_PRINCIPAL, By
from .timed import Asked, Timed

OUTBOX_ENTRIES_MAX = 50_000
OUTBOX_BYTES_MAX = 16 * 1024 * 1024
RESERVE_ENTRIES = 5_000
RESERVE_BYTES = 4 * 1024 * 1024
"""The reserve of acts of administration, on top of OUTBOX_ENTRIES_MAX and OUTBOX_BYTES_MAX."""
DETAIL_BYTES_MAX = 64 * 1024
"""Longest ``before`` or ``after`` of an entry, as JSON; a longer one is replaced by its SHA-256 and length."""
ALWAYS = math.inf
INTENTS_MAX = 1_000
"""Intents that may be without an outcome at a time."""
INTENT_TTL_MS = 60_000
"""On the lease clock, from an intent on: then its outcome is recorded as unknown."""
RETRY_AFTER_MS = 1000
FORMAT = 1


class BeginLedger(Timed, frozen=True, tag="begin_ledger"):
    """Record from this command on. Idempotent. Answers Done."""


class KeepLedger(Timed, frozen=True, tag="keep_ledger"):
    """Create the topic of the ledger on these nodes, unless it is there, and give it this configuration. Answers
    TopicCreated, TopicChanged, or a refusal of CreateTopic or ChangeTopic.
    """

    config: TopicConfig
    nodes: list[tuple[str, str | None]]


class LedgerCopied(Timed, frozen=True, tag="ledger_copied"):
    """The ledger's topic has the entries up to this number. Idempotent. Answers Done, or InvalidRequest when no entry
    has this number yet.
    """

    number: int


class NoteIntent(Asked, frozen=True, tag="note_intent"):
    """Record that a node is about to ask a Raft group for an act that is no command of the controller, such as a
    transfer of leadership. Answers Noted, or LedgerFull.
    """

    act: str
    topic: str | None = None
    partition: int | None = None
    wanted: dict[str, Any] = msgspec.field(default_factory=dict)


class NoteOutcome(Timed, frozen=True, tag="note_outcome"):
    """Record the outcome of an intent, unless that has an outcome already. Answers Done."""

    intent: int
    outcome: Outcome
    code: str | None = None
    result: dict[str, Any] | None = None


LedgerCommand = BeginLedger | KeepLedger | LedgerCopied | NoteIntent | NoteOutcome


class Noted(msgspec.Struct, frozen=True, tag="noted"):
    """The number of the entry; 0: this cluster does not record yet."""

    number: int


class OpenIntent(msgspec.Struct, frozen=True):
    """An intent without an outcome; at ``deadline_ms`` of the lease clock its outcome is recorded as unknown."""

    number: int
    deadline_ms: int
    act: str
    topic: str | None
    topic_id: int | None
    partitions: str
    by: By


class Gap(msgspec.Struct, frozen=True):
    """The number of entries that were left out, with the index in the controller's log, and the wall clock in
    milliseconds since 1970, of the first and the last of them.
    """

    left_out: int
    first_index: int
    last_index: int
    first_ms: int
    last_ms: int


class SavedLedger(msgspec.Struct, frozen=True):
    """The saved state of Ledger. ``next``: the number of the next entry, ``head``: the hash of the last one.
    ``waiting``: the entries that are not known to be copied, the oldest first. ``topic_id`` None: there is no topic
    yet. ``gap``: the entries left out that are not reported yet. ``at_ms``: the last wall clock that a command carried.
    """

    is_recording: bool = False
    next: int = 1
    head: str = NO_HASH
    waiting: list[bytes] = []
    intents: list[OpenIntent] = []
    topic_id: int | None = None
    gap: Gap | None = None
    at_ms: int = 0


class Ledger:
    """The ledger's outbox, its open intents, and the end of its hash chain. ``by``: the caller of the command that is
    being applied; None: the cluster itself. ``topic_id`` None: the ledger has no topic yet.
    """

    def __init__(self) -> None:
        self.is_recording: bool = False
        self.topic_id: int | None = None
        self.by: By | None = None
        self.next: int = 1
        self.head: str = NO_HASH
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._intents: dict[int, OpenIntent] = {}
        self._gap: Gap | None = None
        self._index = self._at_ms = self._clock_ms = 0

    def at(self, index: int, at_ms: int, clock_ms: int) -> None:
        """Begin a command: its index, wall clock and lease clock are those of the entries that it leads to. ``at_ms``
        0: it has no wall clock, and its entries get the last one. Intents past their deadline get unknown outcomes.
        """
        self.by = None
        self._index, self._clock_ms = index, clock_ms
        if at_ms or not self.is_recording:
            self._at_ms = at_ms
        while self._intents and (oldest := next(iter(self._intents.values()))).deadline_ms <= clock_ms:
            self._conclude(oldest, "unknown", None, None)

    def record(
        self,
        act: str,
        *,
        by: By | None = None,
        outcome: Outcome = "done",
        reserve: float = 0,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        **about: Any,
    ) -> int:
        """Make an entry; returns its number, 0 if it is left out. ``by`` None: the caller of the command. A ``by``
        without principal and request, such as NO_PRINCIPAL, stands for the cluster itself. ``reserve`` 1: the entry may
        use the reserve; ALWAYS: it is made in any case. ``about``: further fields of LedgerEntry.
        """
        if not self.is_recording:
            return 0
        if not self._has_room(reserve):
            self._leave_out()
            return 0
        who = by or self.by or NO_PRINCIPAL
        entry = LedgerEntry(
            number=self.next,
            previous=self.head,
            index=self._index,
            at_ms=self._at_ms,
            clock_ms=self._clock_ms,
            act=act,
            outcome=outcome,
            principal=who.principal if who.request or who.principal else None,
            request=who.request,
            client=who.client,
            before=_bounded(before),
            after=_bounded(after),
            **about,
        )
        encoded = encode_entry(entry)
        self.next += 1
        self.head = entry_hash(encoded)
        self._waiting.append(encoded)
        self._bytes += len(encoded)
        return entry.number

    def begin(self) -> bool:
        """Record from now on. Returns False when the ledger had begun already."""
        if self.is_recording:
            return False
        self.is_recording = True
        self.record("ledger.begin", after={"format": FORMAT})
        return True

    def check_room(self) -> None:
        """Check that there is room for a command that is refused rather than left out. Raises LedgerFull."""
        if not self._has_room(reserve=1):
            raise LedgerFull(entries=len(self._waiting), retry_after_ms=RETRY_AFTER_MS)

    def _has_room(self, reserve: float) -> bool:
        """Whether the outbox is below its bounds, to which ``reserve`` times the reserve is added."""
        is_below = len(self._waiting) < OUTBOX_ENTRIES_MAX + reserve * RESERVE_ENTRIES
        return is_below and self._bytes < OUTBOX_BYTES_MAX + reserve * RESERVE_BYTES

    def _leave_out(self) -> None:
        gap = self._gap or Gap(0, self._index, self._index, self._at_ms, self._at_ms)
        self._gap = msgspec.structs.replace(gap, left_out=gap.left_out + 1, last_index=self._index, last_ms=self._at_ms)

    @property
    def waiting(self) -> int:
        """The number of entries that are not known to be copied."""
        return len(self._waiting)

    @property
    def used(self) -> float:
        """The part of the outbox that is used, by that one of its bounds which is nearer; from 1 on, entries are left
        out.
        """
        return max(len(self._waiting) / OUTBOX_ENTRIES_MAX, self._bytes / OUTBOX_BYTES_MAX)

    @property
    def first_waiting(self) -> int:
        """The number of the first entry that waits; of the next one, when none waits."""
        return self.next - len(self._waiting)

    def oldest(self, entries_max: int, bytes_max: int) -> tuple[int, list[bytes]]:
        """The number of the first entry that waits, and the entries from it on, within both bounds, but at least one if
        one waits.
        """
        found: list[bytes] = []
        size = 0
        for entry in islice(self._waiting, entries_max):
            size += len(entry)
            if found and size > bytes_max:
                break
            found.append(entry)
        return self.first_waiting, found

    def copied(self, number: int) -> None:
        """Drop the entries up to this number, which the topic has; report a gap if there is room. Raises
        InvalidRequest.
        """
        if number >= self.next:
            raise InvalidRequest(
                f"the ledger's topic has {number} entries, and the controller has made {self.next - 1}"
            )
        while self._waiting and self.first_waiting <= number:
            self._bytes -= len(self._waiting.popleft())
        if self._gap is not None and self._has_room(reserve=0):
            told, self._gap = self._gap, None
            self.record("ledger.gap", after=msgspec.structs.asdict(told))

    def intend(self, command: NoteIntent, topic_id: int | None) -> Noted:
        """Record an intent, which is open until its outcome is recorded. Raises LedgerFull."""
        if not self.is_recording:
            return Noted(0)
        if len(self._intents) >= INTENTS_MAX:
            raise LedgerFull(
                f"{INTENTS_MAX} acts have begun whose outcome is not known yet",
                entries=len(self._waiting),
                retry_after_ms=RETRY_AFTER_MS,
            )
        partitions = "" if command.partition is None else str(command.partition)
        about: dict[str, Any] = {"topic": command.topic, "topic_id": topic_id, "partitions": partitions}
        number = self.record(command.act, by=command.by, outcome="intended", reserve=1, after=command.wanted, **about)
        deadline_ms = self._clock_ms + INTENT_TTL_MS
        self._intents[number] = OpenIntent(number, deadline_ms, command.act, **about, by=command.by)
        return Noted(number)

    def conclude(self, command: NoteOutcome) -> None:
        """Record the outcome of an intent, if it is open."""
        intent = self._intents.get(command.intent)
        if intent is not None:
            self._conclude(intent, command.outcome, command.code, command.result)

    def next_deadline_ms(self) -> int | None:
        """The lease clock before which no outcome becomes unknown; None: no intent is open."""
        return next((intent.deadline_ms for intent in self._intents.values()), None)

    def _conclude(
        self, intent: OpenIntent, outcome: Outcome, code: str | None, result: Mapping[str, Any] | None
    ) -> None:
        del self._intents[intent.number]
        self.record(
            intent.act,
            by=intent.by,
            outcome=outcome,
            reserve=ALWAYS,
            after=result,
            code=code,
            intent=intent.number,
            topic=intent.topic,
            topic_id=intent.topic_id,
            partitions=intent.partitions,
        )

    def save(self) -> SavedLedger:
        """All state on which future answers and entries depend."""
        intents = list(self._intents.values())
        waiting, at_ms = list(self._waiting), self._at_ms if self.is_recording else 0
        return SavedLedger(self.is_recording, self.next, self.head, waiting, intents, self.topic_id, self._gap, at_ms)

    def load(self, saved: SavedLedger) -> None:
        """Inverse of ``save``, on an empty instance."""
        self.is_recording, self.next, self.head, self.topic_id = (
            saved.is_recording,
            saved.next,
            saved.head,
            saved.topic_id,
        )
        self._gap, self._at_ms = saved.gap, saved.at_ms
        self._waiting = deque(saved.waiting)
        self._bytes = sum(map(len, saved.waiting))
        self._intents = {intent.number: intent for intent in saved.intents}


def chained(first: int, entries: Sequence[bytes], previous: str) -> bool:
    """Whether these are the entries from number ``first`` on, and each has the hash of the entry before it;
    ``previous``: that of the entry before the first.
    """
    for number, encoded in enumerate(entries, first):
        entry = msgspec.json.decode(encoded, type=LedgerEntry)
        if (entry.number, entry.previous) != (number, previous):
            return False
        previous = entry_hash(encoded)
    return True


def _bounded(detail: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if detail is None:
        return None
    encoded = msgspec.json.encode(detail)
    if len(encoded) <= DETAIL_BYTES_MAX:
        return dict(detail)
    return {"sha256": hashlib.sha256(encoded).hexdigest(), "bytes": len(encoded)}
