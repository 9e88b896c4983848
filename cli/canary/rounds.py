"""Carries out the rounds of a canary. It sends each attempt of a write itself: the client repeats none."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ...client.api.client import Client
from ...client.consumer.records import Piece
from ...partition.api.ownership import Grant, SessionInfo
from ...partition.api.records import AppendAnswer
from ...partition.commands import Stamp, Token
from ...partition.errors import (
    OffsetOutOfRange,
    PermissionDenied,
    StockadeError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ...partition.records.batch import batch_of_value
from .verdict import Late, Round

TTL_MS = 60_000
"""Time to live of a round's sessions."""
NAME = "canary-"
"""Prefix of the names of canaries: a canary takes partitions over from other canaries, and from no other writer."""
FETCH_BYTES = 1 << 20
SCANNED_MAX = 10_000
"""Records before its own that a round reads at most; earlier rounds have read those below, or others wrote them."""
RETRIES = 25
"""Attempts of a write that is refused only for the moment; with PAUSE_S between them they outlast an election."""
PAUSE_S = 0.2
CONFIG: Mapping[str, Any] = {
    "require_fence": True,
    "retention_ms": 3_600_000,
    "retention_bytes": 16 * 1024 * 1024,
    "producer_ttl_ms": 600_000,
    "max_producers": 1_000,
}
"""Settings of the canary's topic, if the canary creates it: it keeps the records of an hour."""
RIGHTS = ("read", "produce", "acquire")
"""Verbs that a canary's principal needs on its topic; and ``admin``, if the canary has to create the topic."""


class NoRound(Exception):
    """A round ended early, and has shown nothing. ``reason``: a few words, for the label of a metric."""

    def __init__(self, reason: str, why: str) -> None:
        self.reason = reason
        super().__init__(why)


class _Note(msgspec.Struct, frozen=True):
    """The value of each record of a canary. ``role``: first, taken, closing; or zombie, which must not be stored."""

    canary: str
    round: int
    role: str


class _Writer(msgspec.Struct, frozen=True):
    """A session with its grant on one partition, and a producer id."""

    session: str
    grant: Grant
    pid: int
    epoch: int

    def stamp(self, sequence: int) -> Stamp:
        return Stamp(self.pid, self.epoch, sequence)

    def token(self, partition: int) -> Token:
        return Token(self.grant.grant, self.grant.epochs[str(partition)], self.session)


class Rounds:
    """Runs the rounds of one canary, on the partitions of a topic in turn."""

    def __init__(self, client: Client, topic: str, partitions: int) -> None:
        """``partitions``: their number, if the canary has to create the topic."""
        self._client = client
        self._topic = topic
        self._wanted = partitions
        self._partitions = 0
        self._number = 0
        self._name = f"{NAME}{secrets.token_hex(4)}"
        self._scanned: dict[int, int] = {}  # by partition: the offset up to which it was read

    async def prepare(self) -> None:
        """Create the topic, or find it if it exists. Raises NoRound."""
        try:
            found = await self._client.create_topic(self._topic, partitions=self._wanted, config=CONFIG)
        except (TopicAlreadyExists, PermissionDenied) as refusal:
            try:
                found = await self._client.topic(self._topic)
            except StockadeError as error:
                if isinstance(refusal, PermissionDenied) and isinstance(
                    error, PermissionDenied | UnknownTopicOrPartition
                ):
                    rights = ", ".join(f"{verb} topic:{self._topic}" for verb in RIGHTS)
                    why = f"{refusal.detail}; it needs {rights}, and admin topic:{self._topic} to create it"
                    raise NoRound("no right", why) from error
                raise NoRound("no topic", f"{error.detail} ({error.code})") from error
        except StockadeError as error:
            raise NoRound("no topic", f"{error.detail} ({error.code})") from error
        self._partitions = len(found.partitions)

    async def next(self) -> Round:
        """Run one round. Raises NoRound or a StockadeError if it ended early, and has shown nothing."""
        if not self._partitions:
            await self.prepare()
        partition, self._number = self._number % self._partitions, self._number + 1
        sessions: list[str] = []
        try:
            return await self._round(partition, sessions)
        except UnknownTopicOrPartition:
            self._partitions = 0  # the topic was deleted: the next round creates it again
            self._scanned.clear()
            raise
        finally:
            for session in sessions:
                with suppress(StockadeError):
                    await self._client.close_session(session, patience_ms=1_000)

    async def _round(self, partition: int, sessions: list[str]) -> Round:
        await self._check_own(partition)
        zombie, _ = await self._take(partition, sessions)
        first = await self._append(zombie, partition, "first", 0)
        heir, took_s = await self._take(partition, sessions)
        if heir.grant.epoch is None or zombie.grant.epoch is None or heir.grant.epoch <= zombie.grant.epoch:
            raise NoRound("no takeover", "the second grant has no higher epoch than the first one")
        await self._append(heir, partition, "taken", 0)
        late = await self._wake(zombie, partition)
        last = await self._append(heir, partition, "closing", 1)
        offsets, own, zombies = await self._read(partition, first, last)
        return Round(partition, heir.grant.grant, heir.grant.epoch, took_s, late, first, last, offsets, own, zombies)

    async def _check_own(self, partition: int) -> None:
        """Raises NoRound if the partition is in use by others: a writer that is no canary holds the slot, or wrote the
        last record. A round would evict that holder, and write into its log.
        """
        here = (await self._client.topic(self._topic)).partitions[partition]
        if here.slot_mode is not None and (here.holder is None or not here.holder.producer_name.startswith(NAME)):
            who = "several writers hold" if here.holder is None else f"{here.holder.producer_name} holds"
            raise NoRound("in use", f"{who} {self._topic}/{partition}, and no canary")
        if partition not in self._scanned:
            last = (await self._client.tail(self._topic, partition)).records
            if last and _note(last[-1].value) is None:
                raise NoRound("in use", f"the last record of {self._topic}/{partition} is not of a canary")

    async def _take(self, partition: int, sessions: list[str]) -> tuple[_Writer, float]:
        """Take the partition over, as any writer does. Returns the new writer, and the seconds until its grant was in
        force.
        """
        session: SessionInfo = await self._client.open_session(self._name, TTL_MS)
        sessions.append(session.session)
        pair = await self._client.init_producer()
        began = time.monotonic()
        grant = await self._client.acquire(
            self._topic, session.session, [partition], "ExclusiveWithFencing", self._name
        )
        took_s = time.monotonic() - began
        if not isinstance(grant, Grant):
            raise NoRound("no takeover", "the cluster answered a takeover with a ticket")
        return _Writer(session.session, grant, pair.producer_id, pair.producer_epoch), took_s

    async def _append(self, writer: _Writer, partition: int, role: str, sequence: int) -> int:
        """Store a record of the rightful writer; returns its offset. Retriable failures are repeated with the same
        stamp, so the record is stored once.
        """
        left = RETRIES
        while True:
            try:
                offset = (await self._write(writer, partition, role, sequence)).base_offset
            except StockadeError as error:
                left -= 1
                if not error.retriable or not left:
                    raise
                await asyncio.sleep(PAUSE_S)
                continue
            if offset is None:
                raise NoRound("no offset", f"the write {role} was answered without an offset")
            return offset

    async def _write(self, writer: _Writer, partition: int, role: str, sequence: int) -> AppendAnswer:
        value = msgspec.json.encode(_Note(self._name, self._number, role))
        batch = batch_of_value(value, now_ms=time.time_ns() // 1_000_000, batch_bytes_max=1 << 16)
        token, stamp = writer.token(partition), writer.stamp(sequence)
        return await self._client.append(self._topic, partition, batch.message, token=token, stamp=stamp)

    async def _wake(self, zombie: _Writer, partition: int) -> Late:
        """Write once more as the replaced writer; returns the answer. A retriable refusal is not the partition's
        answer, so the same write is sent again. After one attempt of unknown outcome the outcome of the write is
        unknown.
        """
        is_known, late = True, Late("", is_known=False)
        for _ in range(RETRIES):
            try:
                return Late(None, (await self._write(zombie, partition, "zombie", 1)).base_offset)
            except StockadeError as error:
                is_known = is_known and error.no_side_effects
                late = Late(error.code, None, error.fields, is_known)
                if not error.retriable:
                    break
            await asyncio.sleep(PAUSE_S)
        return late

    async def _read(self, partition: int, first: int, last: int) -> tuple[list[int], dict[str, int], list[int]]:
        """Read the log up to ``last``. Returns the offsets read from ``first`` on; the offsets of this round's rightful
        records, by role; and those of zombies' records, also of earlier rounds whose late write had an unknown outcome.
        """
        offset = max(min(self._scanned.get(partition, first), first), first - SCANNED_MAX)
        offsets: list[int] = []
        own: dict[str, int] = {}
        zombies: list[int] = []
        while offset <= last:
            try:
                got = await self._client.fetch(self._topic, partition, offset, max_bytes=FETCH_BYTES)
            except OffsetOutOfRange as error:  # retention has dropped records that no round has read
                if not offset < error.fields["log_start"] <= first:
                    raise
                offset = error.fields["log_start"]
                continue
            if got.next_offset <= offset:
                break
            for base, batch in got.after(offset):
                for record in Piece(self._topic, partition, base, batch).records():
                    note = _note(record.value)
                    if first <= record.offset <= last:
                        offsets.append(record.offset)
                    if note is not None and note.role == "zombie":
                        zombies.append(record.offset)
                    elif note is not None and (note.canary, note.round) == (self._name, self._number):
                        own[note.role] = record.offset
            offset = got.next_offset
        self._scanned[partition] = offset
        return offsets, own, zombies


def _note(value: bytes | None) -> _Note | None:
    """The note in a record's value; None if the record is not of a canary."""
    try:
        return msgspec.json.decode(value or b"", type=_Note)
    except msgspec.MsgspecError:
        return None
