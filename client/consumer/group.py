"""Reading as a member of a consumer group: partitions are shared out, and a stalled member is fenced by the log.

Each partition that a member reads is a resource that it owns; every fetch and every commit carries the fence_epoch of
that ownership. So a member that was replaced while it stood still can neither read on nor set a position back.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

from ..partition.errors import NotOwner, StockadeError
from .admin import Client
from .fencing import Session
from .pieces import ConsumedRecord, Piece
from .reading import Start, fetch_again, first_offset
from .retry import is_momentary
from .sharing import free_seat, plan

_log = logging.getLogger(__name__)
PIECES_AHEAD_MAX = 2
"""Fetched pieces that wait for the reader, over all partitions."""
LOOKS_PER_TTL = 3


@dataclass(eq=False, slots=True)
class _Claim:
    """One partition that this member owns."""

    resource: str
    partition: int
    fence_epoch: int
    position: int | None = None
    """Behind the last record that was handed over; None until something was."""
    committed: int | None = None
    log_end: int = 0
    """As of the last answer."""
    task: "asyncio.Task[None] | None" = None
    is_over: bool = False
    """Nothing is handed over from it any more."""
    let_go_at_s: float = 0.0
    """When it is given up: until then ``commit`` may tell what of it is done."""

    @property
    def is_committed(self) -> bool:
        """Whether the group knows of all that was handed over."""
        return self.position is None or self.position == self.committed


class GroupReading:
    """A member at work: iterate over its records, or over ``pieces``, and ``commit`` what is done."""

    def __init__(self, client: Client, session: Session, group: str, topic: str, topic_id: int, start: Start) -> None:
        self._client = client
        self._session = session
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._start = start
        self._seat = ""
        self._claims: dict[str, _Claim] = {}
        self._leaving: list[_Claim] = []
        self._ready: asyncio.Queue[tuple[_Claim | None, Piece | Exception]] = asyncio.Queue(PIECES_AHEAD_MAX)
        self._at: tuple[_Claim, Piece, Iterator[ConsumedRecord]] | None = None
        self._sharing: asyncio.Task[None] | None = None

    @property
    def partitions(self) -> list[int]:
        """What this member owns now."""
        return sorted(claim.partition for claim in self._claims.values())

    @property
    def positions(self) -> dict[int, int]:
        """Of each partition of which something was handed over: the offset behind it."""
        return {claim.partition: claim.position for claim in self._claims.values() if claim.position is not None}

    @property
    def lag(self) -> dict[int, int]:
        """Of the same partitions: records stored behind the position, as of the partition's last answer."""
        claims = self._claims.values()
        return {each.partition: max(each.log_end - each.position, 0) for each in claims if each.position is not None}

    async def pieces(self) -> AsyncIterator[Piece]:
        """Arrow batches as they come, of whatever this member owns. Never ends; raises when the session is lost."""
        while True:
            claim, piece = await self._next_piece()
            claim.position = piece.base_offset + piece.batch.num_rows
            yield piece

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        while True:
            if self._at is None:
                claim, piece = await self._next_piece()
                self._at = claim, piece, piece.records()
            claim, _, records = self._at
            record = None if claim.is_over else next(records, None)  # the rest may be somebody else's by now
            if record is not None:
                claim.position = record.offset + 1
                return record
            self._at = None

    async def _next_piece(self) -> tuple[_Claim, Piece]:
        """What is left of the one at hand, or the next."""
        if self._at is not None:
            (claim, piece, _), self._at = self._at, None
            done = (claim.position or piece.base_offset) - piece.base_offset
            if not claim.is_over and done < piece.batch.num_rows:
                return claim, replace(piece, base_offset=piece.base_offset + done, batch=piece.batch.slice(done))
        while True:
            owner, ready = await self._ready.get()
            if isinstance(ready, Exception):
                raise ready
            if owner is not None and not owner.is_over:
                return owner, ready

    def back_to(self, partition: int, offset: int) -> None:
        """Of what was handed over, nothing from ``offset`` on is done: ``commit`` leaves it to the next reader."""
        for claim in (*self._claims.values(), *self._leaving):
            if claim.partition == partition and claim.position is not None:
                claim.position = min(claim.position, offset)

    async def commit(self) -> None:
        """Everything handed over so far is done, the record at hand included. Where this member was replaced meanwhile,
        its successor's word counts: those partitions are dropped.
        """
        for claim in (*self._claims.values(), *self._leaving):
            await self._commit(claim)
        await self._let_go()

    async def _commit(self, claim: _Claim) -> None:
        position = claim.position
        if position is None or claim.is_committed:
            return
        try:
            await self._client.commit_position(
                self._group, self._topic, claim.partition, position, fence_epoch=claim.fence_epoch
            )
        except NotOwner:
            self._drop(claim)
        else:
            claim.committed = position

    # Sharing out

    async def begin(self) -> None:
        """Take a seat and a first share."""
        while not self._seat:
            wanted = free_seat(await self._client.resources(self._group))
            [verdict] = await self._client.own(self._group, self._session.id, [wanted], atomic=False)
            self._seat = wanted if verdict.granted else ""
        await self._share()
        self._sharing = asyncio.create_task(self._keep_sharing())

    async def end(self) -> None:
        """Stop reading. What is owned ends with the session, at once when that is closed."""
        tasks = [claim.task for claim in self._claims.values()] + [self._sharing]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _keep_sharing(self) -> None:
        try:
            while self._session.error is None:
                pause_s = self._client.config.session_ttl_ms / 1000 / LOOKS_PER_TTL
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._session.lost.wait(), pause_s)
                await self._share()
            await self._ready.put((None, self._session.error))
        except Exception as error:
            await self._ready.put((None, error))

    async def _share(self) -> None:
        try:
            described = await self._client.topic(self._topic)
            wanted = [f"{self._topic}/{state.partition}" for state in described.partitions]
            step = plan(self._seat, [*self._claims], wanted, await self._client.resources(self._group))
            for resource in step.give_up:
                self._give_up(self._claims[resource])
            await self._let_go()
            if step.take:
                await self._take(step.take)
        except StockadeError as error:
            if not is_momentary(error):
                raise
            _log.info("group %s is not shared out now: %s", self._group, error)

    async def _take(self, resources: Sequence[str]) -> None:
        for verdict in await self._client.own(self._group, self._session.id, resources, atomic=False):
            if verdict.granted:
                partition = int(verdict.resource.rpartition("/")[2])
                claim = _Claim(verdict.resource, partition, verdict.fence_epoch)
                self._claims[claim.resource] = claim
                claim.task = asyncio.create_task(self._read(claim))

    def _give_up(self, claim: _Claim) -> None:
        """Hand nothing more over. Only the application knows whether what was is done: it has a ttl to commit it."""
        self._drop(claim)
        claim.let_go_at_s = time.monotonic() + self._client.config.session_ttl_ms / 1000
        self._leaving.append(claim)

    async def _let_go(self) -> None:
        """Of what is given up and done, or was not done in time: the next reader gets it from where it is committed."""
        for claim in tuple(self._leaving):
            if claim.is_committed or claim.let_go_at_s <= time.monotonic():
                with suppress(NotOwner):
                    await self._client.disown(self._group, self._session.id, claim.resource)
                if claim in self._leaving:
                    self._leaving.remove(claim)

    def _drop(self, claim: _Claim) -> None:
        claim.is_over = True
        self._claims.pop(claim.resource, None)
        if claim in self._leaving:
            self._leaving.remove(claim)
        if claim.task is not None:
            claim.task.cancel()

    # Reading

    async def _read(self, claim: _Claim) -> None:
        try:
            committed = (await self._client.position(self._group, self._topic, claim.partition)).offset
            claim.committed = committed
            position: Start = self._start if committed is None else committed
            while not claim.is_over:
                answer = await fetch_again(
                    self._client,
                    self._topic,
                    claim.partition,
                    position,
                    max_bytes=self._client.config.fetch_bytes_max,
                    max_wait_ms=self._client.config.fetch_wait_ms if isinstance(position, int) else 0,
                    topic_id=self._topic_id,
                    guard=(self._group, claim.fence_epoch),
                )
                claim.log_end = answer.log_end
                for base, batch in answer.after(first_offset(position, answer)):
                    await self._ready.put((claim, Piece(self._topic, claim.partition, base, batch)))
                position = answer.next_offset
        except NotOwner:
            self._drop(claim)  # somebody else reads it now
        except Exception as error:
            await self._ready.put((None, error))


@asynccontextmanager
async def reading_as_member(
    client: Client, group: str, topic: str, start: Start, client_id: str
) -> AsyncIterator[GroupReading]:
    """A member of the group for as long as the block lasts."""
    described = await client.topic(topic)
    async with Session(client, client_id) as session:
        reading = GroupReading(client, session, group, topic, described.topic_id, start)
        try:
            await reading.begin()
            yield reading
        finally:
            await reading.end()
