"""Typed calls to the cluster, one method of `Client` for each route of the contract.

Every call is repeated while its refusal concerns only the moment (no leader, overload, no answer), for up to
``delivery_timeout_ms``; then it raises the last refusal. Exceptions are named in the docstrings: `append`, `fetch`,
`renew_session` and those that ask one named node are single attempts.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from ...partition.api.cluster import Cluster
from ...partition.api.ownership import (
    CancelledTicket,
    Fences,
    Grant,
    GroupList,
    OwnResult,
    Position,
    Resource,
    Resources,
    SessionFenced,
    SessionInfo,
    SessionList,
    Sever,
    Ticket,
    TopicFenced,
    grants_digest,
)
from ...partition.api.producers import ProducerList, ProducerPair, ProducerStatus
from ...partition.api.records import PARTS, AppendAnswer, Offsets, PartitionContents, TailAnswer, Trimmed
from ...partition.api.topics import Mode, Topic, TopicConfig, TopicList, TopicSummary, as_request
from ...partition.commands import Stamp, Token
from ...partition.errors import RequestTimedOut, StockadeError
from ...partition.records.batch import STREAM_END, STREAM_START
from ..config import Bootstrap, ClientConfig
from ..errors import UnreadableAnswer, unanswered
from ..loop_affinity import LoopAffinity
from ..transport.calls import Calls, decode, present, quoted
from ..transport.http import Answer, Request
from ..transport.leader_watchdog import LeaderWatchdog, Watched, end_now
from ..transport.metadata import Metadata
from ..transport.outage import Outage
from .administration import LISTED_MAX, SLOW_S, Administration, listed
from .conditions import UNCONDITIONAL, Conditions
from .fetched import ARROW_STREAM, Fetched, fetched
from .grants import GrantRequest, OwnRequest, SessionRequest, partition_numbers
from .news import News
from .parts import Part, PartAnswers, SettlePart, parts_body
from .session_route import SessionRoute, session_header
from .tail import Tail, tail_of

T = TypeVar("T")


class Client(Administration):
    """A connection to one cluster. Use it in ``async with``, or call ``close``.

    ``bootstrap``: the base URL of a node, several base URLs (also separated by commas), or a ClientConfig. None: the
    URLs in the environment variable STOCKADE_URL, or else the nodes of a local cluster with default ports.

    A Client belongs to the event loop in which it is first used, and serves any number of tasks there; so does each
    Producer, Consumer and Session. In another event loop its methods raise OtherEventLoop, in a forked child
    UsedAfterFork.

    Names of arguments have their units: ``_ms`` milliseconds, ``_bytes`` bytes. ``patience_ms`` replaces
    ``delivery_timeout_ms`` as the time for which a call is repeated.
    """

    def __init__(self, bootstrap: Bootstrap | None = None) -> None:
        self.config: ClientConfig = ClientConfig.of(bootstrap)
        self.metadata: Metadata = Metadata(self.topic)
        self.calls: Calls = Calls(self.config)
        self.affinity: LoopAffinity = self.calls.affinity
        self.outage: Outage = self.calls.outage
        self.news: News = News(self.calls, self.metadata, self.config)
        self._session_route = SessionRoute()
        self._watchdog = LeaderWatchdog(self.config.standstill_ms, self._ask_others, self.metadata, self.calls.avoid)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. The outcome of requests under way is unknown."""
        self._watchdog.close()
        self.outage.close()
        await self.calls.close()
        await self.news.close()
        await self.metadata.close()

    async def connect(self, *, patience_ms: int = 0) -> Cluster:
        """Ask the nodes of ``bootstrap`` in turn for the cluster's nodes, and remember the nodes of the answer.

        The client passes over a node that accepts a connection and does not answer in ``connect_timeout_ms``, and waits
        for one that has too much to do. Raises ClusterUnreachable when no node could be connected to for
        ``patience_ms``; 0: after one round. No other method needs this: it tells early whether there is a cluster.
        """
        return await self.calls.connect(patience_ms)

    # Topics

    async def topics(self, *, internal: bool = False) -> list[TopicSummary]:
        """All topics, ascending by name. ``internal``: include the topics that Stockade made for itself (the ledger,
        the decisions of Spark sinks).
        """
        params = {"internal": "true"} if internal else {}
        return (await self.calls.call(TopicList, "GET", "/v1/topics", params=params)).topics

    async def topic(self, name: str, *, patience_ms: int | None = None) -> Topic:
        """A topic's configuration, and its partitions with their leaders as of now. Raises UnknownTopicOrPartition."""
        return await self.calls.call(Topic, "GET", _topic(name), patience_ms=patience_ms)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: TopicConfig | Mapping[str, Any] | None = None,
    ) -> Topic:
        """Create a topic, or return the existing one of this definition, once each of its partitions has a leader.

        ``partitions``: 1 to 10,000. ``replication_factor``: odd, 1 to 7; None: 3, or 1 with fewer than three nodes.
        ``config``: fields of TopicConfig; fields left out have their defaults. Raises TopicAlreadyExists when the topic
        of this name has another definition, and InvalidRequest.
        """
        given = as_request(config) if isinstance(config, TopicConfig) else dict(config or {})
        body = {"name": name, "partitions": partitions, "config": given}
        body |= present(replication_factor=replication_factor)
        return await self.calls.call(Topic, "POST", "/v1/topics", body=body, quiet_s=SLOW_S)

    async def change_topic(
        self, name: str, *, partitions: int | None = None, config: Mapping[str, Any] | None = None, seal: bool = False
    ) -> Topic:
        """Give a topic more partitions, other values for fields of its TopicConfig, or seal it.

        Returns once the change is in force on every partition. ``seal``: the topic takes no more records, which cannot
        be undone. Raises UnknownTopicOrPartition, and InvalidRequest (also for fewer partitions than now).
        """
        body = present(partitions=partitions, config=dict(config) if config else None, sealed=True if seal else None)
        return await self.calls.call(Topic, "PATCH", _topic(name), body=body, quiet_s=SLOW_S)

    async def delete_topic(
        self, name: str, *, topic_id: int | None = None, if_grants: Sequence[str] | None = None
    ) -> None:
        """Delete a topic and its records.

        ``topic_id``: only if the topic has this id (else InconsistentTopicId). ``if_grants``: only if exactly these
        grants hold partitions of the topic (else PlanChanged). Raises UnknownTopicOrPartition.
        """
        self.metadata.forget(name)
        params = present(topic_id=topic_id, if_grants=None if if_grants is None else grants_digest(if_grants))
        await self.calls.send("DELETE", _topic(name), params=params, quiet_s=SLOW_S)

    async def trim(
        self,
        topic: str,
        partition: int,
        before: int,
        *,
        token: Token | None = None,
        if_epoch: int | None = None,
        if_log_end: int | None = None,
    ) -> Trimmed:
        """Drop the records below the offset ``before`` (-1: all).

        ``token``: the fencing token, which a topic with require_fence demands (FencingTokenRequired). ``if_epoch``,
        ``if_log_end``: only if the partition's fencing epoch and log end are these (else PlanChanged). Raises
        ProducerFenced for an old token.
        """
        path = f"{_partition(topic, partition)}/trim"
        body = {"before": before} | present(if_epoch=if_epoch, if_log_end=if_log_end)
        return await self.calls.call(Trimmed, "POST", path, headers=_fence_headers(token), body=body)

    async def begin_at(self, topic: str, partition: int, offset: int, *, topic_id: int | None = None) -> Trimmed:
        """Let the log of a partition that has never had a record begin at ``offset``, as the log in a backup did.

        Raises OffsetMismatch when the partition has had records, FeatureLevelTooLow before every node is upgraded,
        InconsistentTopicId.
        """
        path = f"{_partition(topic, partition)}/begin"
        return await self.calls.call(Trimmed, "POST", path, params=present(topic_id=topic_id), body={"offset": offset})

    async def contents(self, topic: str, partition: int, most: int = LISTED_MAX) -> PartitionContents:
        """A partition's offsets and stored bytes, and the positions of the ``most`` groups that are furthest behind."""
        path = f"{_partition(topic, partition)}/contents"
        return await self.calls.call(PartitionContents, "GET", path, params={"n": most})

    # Records

    async def append(
        self,
        topic: str,
        partition: int,
        message: bytes,
        *,
        topic_id: int | None = None,
        stamp: Stamp | None = None,
        token: Token | None = None,
        conditions: Conditions = UNCONDITIONAL,
        on_written: Callable[[], None] | None = None,
    ) -> AppendAnswer:
        """Append one batch, in a single attempt; returns once a majority of the replicas has the batch on disk.

        ``message``: an Arrow message as partition.records makes it. ``stamp``: producer id, epoch and first sequence
        number, which make a repetition harmless (KIP-98). ``token``: the fencing token. ``conditions``: what the
        partition checks besides (`Conditions`). ``on_written``: called each time a connection has taken the whole
        request. Raises the refusal, or RequestTimedOut when the outcome is unknown.

        To repeat an append with ``if_log_end`` after an unknown outcome, give it a ``stamp`` or a ``message_id`` and
        send the same again: the partition looks for a duplicate before it judges ``if_log_end``, so a batch that was
        stored is answered with its offsets. Without either, OffsetMismatch may be due to the caller's earlier attempt.
        """
        conditions.check()
        request = Request(
            method="POST",
            path=f"{_partition(topic, partition)}/records",
            params=present(topic_id=topic_id, fence_epoch=conditions.fence_epoch),
            headers=append_headers(stamp, token) | conditions.headers(),
            body=(STREAM_START, message, STREAM_END),
            node=self.metadata.leader(topic, partition),
            on_written=on_written,
        )
        return await self._to_leader(request, topic, partition, lambda answer: decode(answer, AppendAnswer))

    async def append_parts(self, node: str, parts: Sequence[Part], settle: SettlePart) -> StockadeError | None:
        """Append batches to partitions that ``node`` (base URL) leads, in a single attempt of a single request.

        ``settle`` is called once for each part, as soon as its outcome is known: with the part's index in ``parts``,
        and its answer, its refusal, or RequestTimedOut (outcome unknown). Returns None; or the refusal of the request
        as a whole if that had no effect, and then the parts that have no answer are not settled.
        """
        answers = PartAnswers(node, parts, settle, self.metadata, self._watchdog.done)
        request = Request(
            method="POST",
            path="/v1/append",
            headers={"Content-Type": PARTS},
            body=parts_body(parts),
            node=node,
            only_node=True,
            on_piece=answers.feed,
        )
        try:
            async with asyncio.timeout(None) as limit:
                answers.on_standstill = partial(end_now, limit)
                with self._watchdog.over(answers.watched):
                    answers.end(await self.calls.once(request))
        except TimeoutError:
            pass  # the watchdog has settled the last part
        except StockadeError as error:
            if error.no_side_effects:
                return error
            answers.fail(error)
        except asyncio.CancelledError:
            answers.fail(RequestTimedOut("closed before the answer came; the outcome is unknown"))
            raise
        return None

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int | str,
        *,
        max_bytes: int,
        max_wait_ms: int = 0,
        topic_id: int | None = None,
        local_node: str | None = None,
        guard: tuple[str, int] | None = None,
    ) -> Fetched:
        """Read committed batches from ``offset`` (a number, "earliest" or "latest"), in a single attempt.

        ``max_bytes``: the most bytes of the answer, except that its first batch always comes whole.
        ``max_wait_ms``: how long the node waits for a record at the log's end. ``local_node``: the base URL of a node
        that answers from its own replica, which may lag behind. ``guard``: a group, and the fence_epoch under which the
        caller owns the partition in this group (else NotOwner). Raises OffsetOutOfRange.
        """
        group, epoch = guard or (None, None)
        params: dict[str, Any] = {"offset": offset, "max_bytes": max_bytes, "max_wait_ms": max_wait_ms}
        request = Request(
            method="GET",
            path=f"{_partition(topic, partition)}/records",
            params=params | present(topic_id=topic_id, local=local_node and "true", group=group, fence_epoch=epoch),
            headers={"Accept": ARROW_STREAM},
            node=local_node or self.metadata.leader(topic, partition),
            only_node=local_node is not None,
            wait_ms=max_wait_ms,
        )
        return await self._to_leader(
            request, topic, partition, lambda got: fetched(got.source, got.headers.get, got.body, max_bytes=max_bytes)
        )

    async def offsets(self, topic: str, partition: int, at: str | int = "latest") -> Offsets:
        """The offset at ``at``, -1 if no record qualifies, with the partition's log start and log end.

        ``at``: "earliest", "latest" (the next offset to be written), "max_timestamp" (the record with the greatest
        timestamp), or Unix time in ms (the first record at or after that time).
        """
        return await self.calls.call(Offsets, "GET", f"{_partition(topic, partition)}/offsets", params={"at": at})

    async def tail(self, topic: str, partition: int, count: int = 1) -> Tail:
        """The last ``count`` records (1 to 10,000) and who wrote each: after an error a writer sees what is stored."""
        path = f"{_partition(topic, partition)}/tail"
        return tail_of(await self.calls.call(TailAnswer, "GET", path, params={"n": count}))

    # Sessions, grants and tickets

    async def open_session(self, client_id: str, ttl_ms: int) -> SessionInfo:
        """Open a session. A ``ttl_ms`` outside the range that the cluster allows becomes the nearest bound of it."""
        session, _ = await SessionRequest(client_id, ttl_ms).ask(self.calls)
        return session

    async def renew_session(self, session: str, timeout_ms: int) -> SessionInfo:
        """Restart the session's ttl, in a single attempt. ``timeout_ms``: how long a node may take to answer; after a
        quarter of it, other requests try that node last. Raises UnknownSession, SessionExpired.
        """
        end_s = time.monotonic() + timeout_ms / 1000

        async def attempt(path: str, headers: dict[str, str]) -> Answer:
            left_ms = max(int((end_s - time.monotonic()) * 1000), 1)
            ask = Request(method="PUT", path=path, headers=headers, timeout_ms=left_ms, silent_ms=left_ms // 4)
            return await self.calls.once(ask)

        return decode(await self._session_route.ask(session, attempt), SessionInfo)

    async def close_session(self, session: str, *, patience_ms: int | None = None) -> None:
        """End a session; returns once every slot that it held is free. Does nothing if the session has ended."""

        async def attempt(path: str, headers: dict[str, str]) -> Answer:
            return await self.calls.send("DELETE", path, headers=headers, patience_ms=patience_ms)

        await self._session_route.ask(session, attempt)

    async def acquire(
        self,
        topic: str,
        session: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        producer_name: str,
        *,
        resume_epoch: int | None = None,
        topic_id: int | None = None,
    ) -> Grant | Ticket:
        """Acquire all of ``partitions`` (None: all of the topic) or none.

        Returns a Grant that is in force on each of them, or a Ticket until there is one: call `ticket` until its
        ``grant`` is set. ``mode``: see `stockade.model.Mode`. ``resume_epoch``: the epoch of an earlier grant, to be
        granted again; ProducerFenced if the partitions are at a higher epoch. Raises ProducerBusy, ProducerFenced,
        HoldAndWait.
        """
        request = GrantRequest(topic, session, partitions, mode, producer_name, resume_epoch, topic_id)
        return await request.ask(self.calls)

    async def ticket(self, ticket: str, session: str, wait_ms: int = 0) -> Ticket:
        """The state of a ticket; the node holds the call for up to ``wait_ms`` while the ticket waits in the queue.

        Raises NotFound.
        """
        path, headers = f"/v1/tickets/{quoted(ticket)}", session_header(session)
        return await self.calls.call(Ticket, "GET", path, headers=headers, params={"wait_ms": wait_ms}, wait_ms=wait_ms)

    async def cancel_ticket(self, ticket: str, session: str, *, patience_ms: int | None = None) -> CancelledTicket:
        """Leave the wait queue. If the grant came before that, the result has it, and the caller must release it."""
        path, headers = f"/v1/tickets/{quoted(ticket)}", session_header(session)
        return await self.calls.call(CancelledTicket, "DELETE", path, headers=headers, patience_ms=patience_ms)

    async def release(self, grant: str, session: str) -> None:
        """End a grant; returns once its slots are free. Does nothing if the grant has ended."""
        await self.calls.send("DELETE", f"/v1/grants/{quoted(grant)}", headers=session_header(session))

    async def fence_topic(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        *,
        reason: str | None = None,
        if_grants: Sequence[str] | None = None,
    ) -> TopicFenced:
        """Evict the holders of ``partitions`` (None: all) without a new holder; returns once the fence is in force.

        The fencing epochs rise, so the evicted tokens are refused; the next ticket in each queue is promoted.
        ``reason``: shown in the slots' history, 1 to 200 characters. ``if_grants``: only if exactly these grants would
        end (else PlanChanged).
        """
        wanted = "all" if partitions is None else partition_numbers(partitions)
        body = {"partitions": wanted} | present(reason=reason, if_grants=None if if_grants is None else list(if_grants))
        return await self.calls.call(TopicFenced, "POST", f"{_topic(topic)}/fence", body=body)

    async def fences(self, topic: str, partition: int) -> Fences:
        """The holders of a partition's slot, present and past, the latest first."""
        return await self.calls.call(Fences, "GET", f"{_partition(topic, partition)}/fences")

    async def sessions(self, prefix: str = "", most: int = LISTED_MAX, *, handle: str | None = None) -> SessionList:
        """The first ``most`` live sessions whose client_id begins with ``prefix``; or the one that has ``handle``."""
        params = listed(prefix, most) | present(handle=handle)
        return await self.calls.call(SessionList, "GET", "/v1/sessions", params=params)

    async def fence_session(
        self,
        handle: str,
        *,
        reason: str | None = None,
        if_grants: Sequence[str] | None = None,
        if_resources: int | None = None,
    ) -> SessionFenced:
        """End, as an operator, the session that `sessions` lists with this handle, and all that it holds.

        Returns once each of its partitions refuses its writes. ``reason``: shown in the slots' history, 1 to 200
        characters. ``if_grants``, ``if_resources``: only if exactly these grants, and this number of resources, would
        end (else PlanChanged). Raises NotFound if the session has ended.
        """
        grants = None if if_grants is None else grants_digest(if_grants)
        body = {"handle": handle} | present(reason=reason, if_grants=grants, if_resources=if_resources)
        return await self.calls.call(SessionFenced, "POST", "/v1/cluster/session_fences", body=body)

    # Groups: resources and positions

    async def own(
        self,
        group: str,
        session: str,
        resources: Sequence[str],
        *,
        generation: int | None = None,
        atomic: bool = True,
        sever: Sever = "session",
        patience_ms: int | None = None,
    ) -> list[OwnResult]:
        """Claim resources of a group; returns the verdicts in the order of ``resources``.

        A resource is any text of 1 to 1024 bytes in UTF-8; the resource ``<topic>/<partition>`` guards that partition.
        ``generation`` None: claims a free resource, or renews the claim of this session. A number that is at least the
        owner's generation takes the resource over; 0 always does, and resets the generation. ``sever``: what the loser
        of a takeover loses, all that its "session" holds, or this "resource" alone. ``atomic``: all claims succeed or
        none, and a refused one is raised (GenerationFenced).
        """
        request = OwnRequest(group, session, resources, generation, atomic, sever)
        return await request.ask(self.calls, patience_ms=patience_ms)

    async def disown(
        self, group: str, session: str, resource: str | Sequence[str], *, patience_ms: int | None = None
    ) -> None:
        """Give a resource up, or several in one step; their generations and fence_epochs stay as they are.

        Raises NotOwner when another session owns one of the resources; then none is given up.
        """
        params = {"resource": [resource] if isinstance(resource, str) else list(resource)}
        path, headers = f"{_group(group)}/own", session_header(session)
        await self.calls.send("DELETE", path, headers=headers, params=params, patience_ms=patience_ms)

    async def resources(self, group: str, *, patience_ms: int | None = None) -> list[Resource]:
        """Every resource ever owned in the group, ascending; a linearizable read."""
        path = f"{_group(group)}/resources"
        return (await self.calls.call(Resources, "GET", path, patience_ms=patience_ms)).resources

    async def position(self, group: str, topic: str, partition: int) -> Position:
        """The group's committed position: the next offset that it reads from the partition, None before a commit."""
        return await self.calls.call(Position, "GET", _position(group, topic, partition))

    async def commit_position(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        topic_id: int | None = None,
        fence_epoch: int | None = None,
        metadata: str | None = None,
    ) -> Position:
        """Commit that the group has processed everything below ``offset``. Raises NotOwner, OffsetOutOfRange.

        ``topic_id``: only in the topic with this id (else InconsistentTopicId). ``fence_epoch``: that of the caller's
        ownership of the partition in the group. ``metadata``: kept with the position, at most 4,096 characters; None:
        the position has none, even if the one before had some.
        """
        path, body = _position(group, topic, partition), {"offset": offset}
        body |= present(fence_epoch=fence_epoch, metadata=metadata)
        return await self.calls.call(Position, "PUT", path, params=present(topic_id=topic_id), body=body)

    async def forget_position(
        self, group: str, topic: str, partition: int, *, fence_epoch: int | None = None
    ) -> Position:
        """Delete the group's position in the partition, which keeps the positions of 10,000 groups at most.

        ``fence_epoch``: as for `commit_position`. Raises NotOwner, FeatureLevelTooLow.
        """
        params = present(fence_epoch=fence_epoch)
        return await self.calls.call(Position, "DELETE", _position(group, topic, partition), params=params)

    async def groups(self, prefix: str = "", most: int = LISTED_MAX) -> GroupList:
        """The first ``most`` groups whose names begin with ``prefix``; a group is listed once a resource was owned."""
        return await self.calls.call(GroupList, "GET", "/v1/groups", params=listed(prefix, most))

    # Producers

    async def init_producer(
        self, name: str | None = None, *, pair: tuple[int, int] | None = None, nonce: str | None = None
    ) -> ProducerPair:
        """A producer id and epoch to write with (InitProducerId, KIP-98 and KIP-360).

        From then on every partition refuses older instances of ``name``. ``pair``: the caller's present (id, epoch),
        which proves that it is the same instance. ``nonce``: identifies a first call, so that its repetition gets the
        same pair; None: a random nonce. Raises ProducerFenced when ``pair`` is not the latest.
        """
        body = present(name=name, nonce=nonce or (None if pair else secrets.token_hex(16)))
        if pair is not None:
            body |= {"producer_id": pair[0], "producer_epoch": pair[1]}
        return await self.calls.call(ProducerPair, "POST", "/v1/producers", body=body)

    async def producers(self, prefix: str = "", most: int = LISTED_MAX, *, internal: bool = False) -> ProducerList:
        """The first ``most`` producers whose names begin with ``prefix``. ``internal``: include the producers that drew
        a random name for one run.
        """
        params = listed(prefix, most) | ({"internal": "true"} if internal else {})
        return await self.calls.call(ProducerList, "GET", "/v1/producers", params=params)

    async def producer(self, key: int | str) -> ProducerStatus:
        """A producer, by id or name: its entry in the registry, and each partition that knows it. Raises NotFound."""
        return await self.calls.call(ProducerStatus, "GET", f"/v1/producers/{quoted(str(key))}")

    async def fence_producer(self, name: str) -> ProducerPair:
        """Raise the epoch of ``name``, so that every partition refuses its running instance. Raises NotFound."""
        return await self.calls.call(ProducerPair, "POST", "/v1/cluster/producer_fences", body={"name": name})

    # How requests travel

    async def _to_leader(self, request: Request, topic: str, partition: int, read: Callable[[Answer], T]) -> T:
        """Send a request to the partition's leader, note what its answer says of the leader, and return it decoded."""
        try:
            answer = await self._watched(request, topic, partition)
            value = read(answer)
        except StockadeError as error:
            if isinstance(error, UnreadableAnswer):
                self.calls.avoid(error.fields["node"])
            if error.metadata_stale or isinstance(error, RequestTimedOut) or not error.no_side_effects:
                self.metadata.doubt(topic, partition, request.node)
            raise
        self.metadata.heard(topic, partition, answer.leader)
        return value

    async def _watched(self, request: Request, topic: str, partition: int) -> Answer:
        if request.node is None or request.only_node:
            return await self.calls.once(request)
        try:
            async with asyncio.timeout(None) as limit:
                waiting = Watched(topic, partition, request.node, partial(end_now, limit))
                with self._watchdog.over([waiting], request.wait_ms):
                    return await self.calls.once(request)
        except TimeoutError as error:
            leader = self.metadata.leader(topic, partition)
            raise unanswered(request.method, f"{request.node} stands still, and {leader} leads") from error

    async def _ask_others(self, topic: str, node: str) -> Topic:
        """The topic's description by a node other than ``node``: the first one that answers."""
        return decode(await self.calls.answer_without(node, _topic(topic)), Topic)


def append_headers(stamp: Stamp | None, token: Token | None) -> dict[str, str]:
    """The headers of a request that appends an Arrow stream: content type, producer stamp, fencing token."""
    headers = {"Content-Type": ARROW_STREAM}
    if stamp is not None:
        headers["Stockade-Producer-Id"] = str(stamp.pid)
        headers["Stockade-Producer-Epoch"] = str(stamp.epoch)
        headers["Stockade-Producer-Seq"] = str(stamp.first_seq)
    return headers | _fence_headers(token)


def _fence_headers(token: Token | None) -> dict[str, str]:
    if token is None:
        return {}
    return {
        "Stockade-Fence-Grant": token.grant_id,
        "Stockade-Fence-Epoch": str(token.epoch),
        **session_header(token.session),
    }


def _topic(name: str) -> str:
    return f"/v1/topics/{quoted(name)}"


def _partition(topic: str, partition: int) -> str:
    return f"{_topic(topic)}/partitions/{partition}"


def _group(name: str) -> str:
    return f"/v1/groups/{quoted(name)}"


def _position(group: str, topic: str, partition: int) -> str:
    return f"{_group(group)}/positions/{quoted(topic)}/{partition}"
