"""Reading as a member of a consumer group: the members share the partitions, and the log fences a stalled member.

Each partition that a member reads is a resource that it owns; every fetch and every commit carries the fence_epoch of
that ownership. So a member that was replaced while it stood still can neither read on nor set a position back.

Each member decides by itself, from the present owners of the group's resources, which partitions it reads (`plan`,
pure). A member owns a member number of its topic, a resource ``members/TOPIC/0``, ``members/TOPIC/1``, and so on: a new
member takes the first free one, or, if others want that too, one of the next. The rank of a number among those taken
gives the member's share; shares differ by at most one and add up to all partitions. A member with more than its share
gives the surplus up; one with less takes free partitions. Members need no rebalance protocol: of two members that claim
the same partition one gets it, and the other plans again.
"""

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

from ...partition.api.ledger import session_handle
from ...partition.api.ownership import Resource
from ...partition.errors import (
    InconsistentTopicId,
    NotOwner,
    RequestTimedOut,
    StockadeError,
    UnknownTopicOrPartition,
)
from ..api.client import Client
from ..errors import with_fields
from ..retry import is_momentary
from ..session.session import Session
from .reader import TURN_S, Start, bytes_of_a_fetch, fetch_again, first_offset
from .records import ConsumedRecord, Piece

MEMBERS = "members/{}/"
"""Prefix of the resources that are member numbers of a topic. No topic has a slash in its name, so that none of these
is the name of a partition.
"""
PIECES_AHEAD_MAX = 2
"""Fetched pieces that wait for the application, over all partitions."""
CHOICE_MAX = 1_024
"""Most free member numbers among which a new member chooses."""
ATTEMPTS_MAX = 5
"""How often a member tries to take its share, where others took partitions first, before it waits for its next look."""
REQUESTS_MAX = 16
"""Requests about single partitions at a time: behind those about thousands, a renewal would come too late."""
UNANSWERED_S = 0.5
"""How long a partition that does not answer holds up others, in seconds."""
LOOKS_PER_TTL = 3
"""How often a member looks at what the group owns, per session ttl."""

_GONE = (InconsistentTopicId, UnknownTopicOrPartition)
"""Why a member ends, and commits nothing more: the topic was created again, or deleted."""

_log = logging.getLogger(__name__)


T = TypeVar("T")


class Plan(NamedTuple):
    """The next step of a member: resources to give up, resources to claim."""

    give_up: list[str]
    take: list[str]


def free_member(topic: str, resources: Sequence[Resource], place: int = 0) -> str:
    """A member number of ``topic`` that no member owns: the first (``place`` 0), or one of the next."""
    members = MEMBERS.format(topic)
    taken = _numbers(members, resources)
    return f"{members}{[number for number in range(len(taken) + place + 1) if number not in taken][place]}"


def plan(member: str, mine: Sequence[str], wanted: Sequence[str], resources: Sequence[Resource]) -> Plan:
    """The next step of the member with the number ``member`` that owns ``mine``; the group reads ``wanted``."""
    prefix, own = member[: member.rindex("/") + 1], int(member.rpartition("/")[2])
    members = sorted({*_numbers(prefix, resources), own})
    rank = members.index(own)
    share, rest = divmod(len(wanted), len(members))
    due = share + (rank < rest)
    own_now = {*mine}
    held = [resource for resource in wanted if resource in own_now]
    owned = {resource.resource for resource in resources if resource.owned} | own_now
    free = [resource for resource in wanted if resource not in owned]
    # Members that plan at the same moment should not all claim the same partitions.
    first = (rank * share + min(rank, rest)) * len(free) // max(1, len(wanted))
    free = free[first:] + free[:first]
    return Plan(held[due:], free[: max(0, due - len(held))])


def _numbers(members: str, resources: Sequence[Resource]) -> set[int]:
    """The member numbers with this prefix that have an owner."""
    names = [each.resource for each in resources if each.owned and each.resource.startswith(members)]
    return {int(number) for name in names if (number := name.removeprefix(members)).isdecimal()}


@dataclass(eq=False, slots=True)
class _Claim:
    """A partition that this member owns."""

    resource: str
    partition: int
    fence_epoch: int
    position: int | None = None
    """The offset after the last record that the application got; None before the first."""
    committed: int | None = None
    log_end: int = 0
    """The log's end, as of the last answer."""
    task: "asyncio.Task[None] | None" = None
    """Reads the partition. After a failure it has ended, and the next iteration starts another one."""
    is_over: bool = False
    """Whether the application gets no more records of the partition."""
    let_go_at_s: float = 0.0
    """Until then (monotonic clock) the application may commit its records of a partition that is given up."""

    @classmethod
    def of(cls, resource: str, fence_epoch: int = 0) -> Self:
        """The claim of the partition that the resource names. ``fence_epoch`` 0: not known, of one to be given up."""
        return cls(resource, int(resource.rpartition("/")[2]), fence_epoch)

    @property
    def is_committed(self) -> bool:
        """Whether everything that the application got is committed."""
        return self.position is None or self.position == self.committed


class GroupReading:
    """A member of a group: iterate over its records, or over ``pieces``, and ``commit`` what is processed."""

    def __init__(
        self,
        client: Client,
        session: Session,
        group: str,
        topic: str,
        topic_id: int,
        start: Start,
        *,
        skip_trimmed: bool = False,
    ) -> None:
        self._client = client
        self._session = session
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._start = start
        self._skip_trimmed = skip_trimmed
        self._member = ""
        self._claims: dict[str, _Claim] = {}
        self._leaving: list[_Claim] = []
        self._disowning: dict[_Claim, asyncio.Task[None]] = {}
        self._unanswered: set[str] = set()
        """Resources that the session may own without this member's knowledge: those of claims without an answer."""
        self._ready: asyncio.Queue[tuple[_Claim, Piece | Exception]] = asyncio.Queue(PIECES_AHEAD_MAX)
        self._at: tuple[_Claim, Piece, Iterator[ConsumedRecord]] | None = None
        self._taking = asyncio.Lock()  # several tasks may iterate
        self._committing = asyncio.Lock()  # an older position must not arrive behind a newer one
        self._turns = asyncio.Semaphore(REQUESTS_MAX)
        # A node holds a request about a partition that commits nothing for long, and renewals need connections, too.
        self._asking = asyncio.Semaphore(client.config.connections_max // 2)
        self._tasks: list[asyncio.Task[None]] = []
        self._turn_ends_s = 0.0
        self._end: Exception | None = None
        """The reason with which every iteration ends from now on; None while the member reads."""

    @property
    def partitions(self) -> list[int]:
        """The partitions that this member owns now."""
        return sorted(claim.partition for claim in self._claims.values())

    @property
    def positions(self) -> dict[int, int]:
        """By partition, the offset after the last record that the application got; absent before the first."""
        return {claim.partition: claim.position for claim in self._claims.values() if claim.position is not None}

    @property
    def lag(self) -> dict[int, int]:
        """By partition, the number of records after the position, as of the partition's last answer."""
        claims = self._claims.values()
        return {each.partition: max(each.log_end - each.position, 0) for each in claims if each.position is not None}

    async def pieces(self) -> AsyncIterator[Piece]:
        """Arrow batches of the partitions that this member owns, as they come. Raises when the session ends."""
        while True:
            try:
                async with self._taking:
                    claim, piece = await self._next_piece()
                    claim.position = piece.next_offset
            except StopAsyncIteration:
                return
            yield piece

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        if time.monotonic() >= self._turn_ends_s:
            await asyncio.sleep(0)
            self._turn_ends_s = time.monotonic() + TURN_S
        while True:
            if self._at is None:
                async with self._taking:
                    if self._at is None:
                        claim, piece = await self._next_piece()
                        self._at = claim, piece, piece.records()
            claim, _, records = self._at
            record = next(records, None) if self._may_read(claim) else None
            if record is not None:
                claim.position = record.offset + 1
                return record
            self._at = None

    async def _next_piece(self) -> tuple[_Claim, Piece]:
        """The rest of the present piece, or the next piece."""
        self._client.affinity.enter()
        if self._at is not None:
            (claim, piece, _), self._at = self._at, None
            rest = piece.behind(claim.position)
            if self._may_read(claim) and rest.batch.num_rows:
                return claim, rest
        while True:
            if self._end is not None:
                raise with_fields(self._end) if isinstance(self._end, StockadeError) else self._end
            claim, ready = await self._ready.get()
            if not self._may_read(claim):
                continue
            if isinstance(ready, Piece):
                return claim, ready
            claim.task = asyncio.create_task(self._read(claim))  # for the next iteration
            raise ready

    def _may_read(self, claim: _Claim) -> bool:
        """Whether this member may still read the partition, as far as it knows."""
        return not claim.is_over and self._end is None

    def _stop(self, end: Exception) -> None:
        """End every iteration, now and later, with ``end``; the first call decides."""
        self._end = self._end or end
        if self._ready.empty():
            self._ready.put_nowait((_Claim("", 0, 0), end))  # wakes an iteration that waits

    def put_back(self, item: Piece | ConsumedRecord) -> None:
        """Let the next iteration begin with ``item``, which did not reach the application: it was interrupted."""
        offset = item.base_offset if isinstance(item, Piece) else item.offset
        self.back_to(item.partition, offset)
        claim = next((each for each in self._claims.values() if each.partition == item.partition), None)
        if claim is None:
            return  # given up: its next reader begins at this offset
        if isinstance(item, Piece) and self._at is None:
            self._at = claim, item, item.records()
        elif self._at is not None and self._at[0] is claim and self._at[1].base_offset <= offset:
            self._at = claim, self._at[1], self._at[1].behind(offset).records()
        else:  # another iteration has gone on: the partition's next reader begins at the committed position
            self._give_up(claim)

    def back_to(self, partition: int, offset: int) -> None:
        """Records of ``partition`` from ``offset`` on are not processed: ``commit`` leaves them to the next reader."""
        for claim in (*self._claims.values(), *self._leaving):
            if claim.partition == partition and claim.position is not None:
                claim.position = min(claim.position, offset)

    async def commit(self) -> None:
        """Commit that every record that the application got is processed, the present one included.

        Where another member has taken a partition over meanwhile, its position stays, and this member drops the
        partition. Raises InconsistentTopicId when the topic was created again: the positions of the new one say nothing
        of these records; and UnknownTopicOrPartition when it was deleted.
        """
        if isinstance(self._end, _GONE):
            raise with_fields(self._end)
        async with self._committing:
            claims = (*self._claims.values(), *self._leaving)
            due = [(each, each.position) for each in claims if each.position is not None and not each.is_committed]
            _ = await _all(self._commit(*each) for each in due)
            await self._let_go()

    async def _commit(self, claim: _Claim, position: int) -> None:
        try:
            async with self._asking, _turn(self._turns):
                await self._keep(claim, position)
        except NotOwner:
            self._drop(claim)
        except _GONE as error:
            self._stop(error)
            raise

    async def _keep(self, claim: _Claim, position: int) -> None:
        await self._client.commit_position(
            self._group, self._topic, claim.partition, position, topic_id=self._topic_id, fence_epoch=claim.fence_epoch
        )
        claim.committed = position

    # Sharing out

    async def begin(self) -> None:
        """Take a member number and a first share.

        Of members that join at once, one gets the first number. The others choose among twice as many numbers with each
        attempt: all after the same one, a thousand members would need a thousand attempts each.
        """
        choice = 1
        while not self._member:
            place = random.randrange(choice)  # noqa: S311  # nosec B311
            choice = min(2 * choice, CHOICE_MAX)
            wanted = free_member(self._topic, await self._client.resources(self._group), place)
            [verdict] = await self._client.own(self._group, self._session.id, [wanted], atomic=False)
            self._member = wanted if verdict.granted else ""
        await self._share()
        self._tasks = [asyncio.create_task(self._keep_sharing()), asyncio.create_task(self._until_lost())]

    async def end(self) -> None:
        """Stop reading: an iteration ends. Ownership ends with the session, at once when that is closed."""
        self._stop(StopAsyncIteration())
        reads = [claim.task for claim in self._claims.values() if claim.task is not None]
        running = [*self._tasks, *self._disowning.values(), *reads]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _keep_sharing(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._patience_ms / 1000)
                await self._share()
        except Exception as error:
            self._stop(error)

    async def _until_lost(self) -> None:
        await self._session.lost.wait()
        assert self._session.error is not None
        self._stop(self._session.error)

    async def _share(self) -> None:
        try:
            wanted = [f"{self._topic}/{partition}" for partition in await self._all_partitions()]
            for _ in range(ATTEMPTS_MAX):
                resources = await self._client.resources(self._group)
                self._unanswered |= self._unknown(resources)
                known = [each for each in resources if each.resource not in self._unanswered]
                step = plan(self._member, [*self._claims], wanted, known)  # a claim may have been dropped meanwhile
                for resource in step.give_up:
                    self._give_up(self._claims[resource])
                self._leaving += [_Claim.of(each) for each in self._unanswered.difference(step.take)]
                self._unanswered.intersection_update(step.take)
                await self._let_go()
                leaving = {claim.resource for claim in self._leaving}
                take = [each for each in step.take if each not in leaving]
                if not take or await self._take(take):
                    return
        except StockadeError as error:
            if not is_momentary(error):
                raise
            _log.info("group %s: the partitions cannot be assigned now: %s", self._group, error)

    def _unknown(self, resources: Sequence[Resource]) -> set[str]:
        """What this session owns, and this member does not know of: a claim was under way for so long that it came
        behind its repetition, or behind the end of what that had got.
        """
        handle, known = session_handle(self._session.id), {claim.resource for claim in self._leaving}
        mine = {each.resource for each in resources if each.handle == handle}
        return mine.difference(known, self._claims, [self._member])

    async def _all_partitions(self) -> list[int]:
        """The topic's partitions. Raises when it was deleted, or created again, and then the member is at its end."""
        try:
            described = await self._client.topic(self._topic)
            if described.topic_id != self._topic_id:
                raise InconsistentTopicId(topic_id=described.topic_id)
        except _GONE as error:
            self._stop(error)
            raise
        return [state.partition for state in described.partitions]

    async def _take(self, resources: Sequence[str]) -> bool:
        """Claim partitions. Returns False if another attempt should follow at once.

        A claim is answered when each of its partitions has committed it. So partitions whose claim got no answer are
        claimed one by one: one that has no majority must not keep the member from the others.
        """
        together = [each for each in resources if each not in self._unanswered]
        claims = [[each] for each in resources if each in self._unanswered] + ([together] if together else [])
        return all(await _all(map(self._claim, claims)))

    async def _claim(self, resources: Sequence[str]) -> bool:
        self._unanswered.update(resources)
        try:
            async with self._asking, _turn(self._turns):
                verdicts = await self._client.own(
                    self._group, self._session.id, resources, atomic=False, patience_ms=self._patience_ms
                )
        except RequestTimedOut as error:
            _log.info("group %s: %d partitions cannot be claimed now: %s", self._group, len(resources), error)
            return len(resources) == 1  # of several, another attempt shows which
        self._unanswered.difference_update(resources)
        for verdict in verdicts:
            if verdict.granted:
                claim = self._claims[verdict.resource] = _Claim.of(verdict.resource, verdict.fence_epoch)
                claim.task = asyncio.create_task(self._read(claim))
        return all(verdict.granted for verdict in verdicts)

    @property
    def _patience_ms(self) -> int:
        """How long to repeat a claim, or its end: until the next look, which comes back to it."""
        return self._client.config.session_ttl_ms // LOOKS_PER_TTL

    def _give_up(self, claim: _Claim) -> None:
        """Give a partition up: the application gets no more of its records, and has one session ttl to commit."""
        self._drop(claim)
        claim.let_go_at_s = time.monotonic() + self._client.config.session_ttl_ms / 1000
        self._leaving.append(claim)

    async def _let_go(self) -> None:
        """Disown the partitions given up that are committed, or were not committed in time, side by side. The next
        reader of each starts at the committed position. One that commits nothing gives no answer for as long as the
        node waits: each request for it holds this up once, for UNANSWERED_S.
        """
        due = [each for each in self._leaving if each.is_committed or each.let_go_at_s <= time.monotonic()]
        begun = {each: asyncio.create_task(self._disown(each)) for each in due if each not in self._disowning}
        self._disowning |= begun
        if begun:
            _ = await asyncio.wait([*begun.values()], timeout=UNANSWERED_S)

    async def _disown(self, claim: _Claim) -> None:
        try:
            async with self._asking, _turn(self._turns):
                await self._client.disown(self._group, self._session.id, claim.resource, patience_ms=self._patience_ms)
        except NotOwner:
            pass
        except Exception as error:
            if not (isinstance(error, StockadeError) and is_momentary(error)):
                self._stop(error)
            return  # the next look asks again
        finally:
            del self._disowning[claim]
        if claim in self._leaving:
            self._leaving.remove(claim)

    def _drop(self, claim: _Claim) -> None:
        claim.is_over = True
        if self._claims.get(claim.resource) is claim:  # else it was given up before, and may have been claimed anew
            del self._claims[claim.resource]
        if claim in self._leaving:
            self._leaving.remove(claim)
        if claim.task is not None:
            claim.task.cancel()

    # Reading

    async def _read(self, claim: _Claim) -> None:
        try:
            async with _turn(self._turns):
                committed = (await self._client.position(self._group, self._topic, claim.partition)).offset
            claim.committed = committed
            known = committed if claim.position is None else claim.position
            position: Start = self._start if known is None else known
            is_behind = True
            while not claim.is_over:
                answer = await fetch_again(
                    self._client,
                    self._topic,
                    claim.partition,
                    position,
                    max_bytes=bytes_of_a_fetch(self._client.config.fetch_bytes_max, len(self._claims)),
                    max_wait_ms=0 if is_behind else self._client.config.fetch_wait_ms,
                    skip_trimmed=self._skip_trimmed,
                    topic_id=self._topic_id,
                    guard=(self._group, claim.fence_epoch),
                )
                claim.log_end = answer.log_end
                if position == "latest":
                    # Without a committed position, the next owner's "latest" would skip records written until then.
                    await self._keep(claim, answer.log_end)
                for base, batch in answer.after(first_offset(position, answer)):
                    await self._ready.put((claim, Piece(self._topic, claim.partition, base, batch)))
                position = answer.next_offset
                is_behind = position < answer.log_end
        except NotOwner:
            self._drop(claim)  # another member reads it now
        except Exception as error:
            await self._ready.put((claim, error))


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results, once all have ended; raises the first failure. What concerns one partition holds up no other."""
    results: list[T] = []
    for each in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each
        results.append(each)
    return results


@asynccontextmanager
async def _turn(free: asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold ``free`` in the block, though for UNANSWERED_S at most."""
    await free.acquire()
    held = [free]

    def release() -> None:
        if held:
            held.pop().release()

    timer = asyncio.get_running_loop().call_later(UNANSWERED_S, release)
    try:
        yield
    finally:
        timer.cancel()
        release()


@asynccontextmanager
async def reading_as_member(
    client: Client, group: str, topic: str, start: Start, client_id: str | None, *, skip_trimmed: bool = False
) -> AsyncIterator[GroupReading]:
    """Be a member of the group inside the block."""
    described = await client.topic(topic)
    member = client_id or f"consumer-{socket.gethostname()[:200]}-{os.getpid()}-{secrets.token_hex(2)}"
    async with Session(client, member) as session:
        reading = GroupReading(client, session, group, topic, described.topic_id, start, skip_trimmed=skip_trimmed)
        try:
            await reading.begin()
            yield reading
        finally:
            await reading.end()
