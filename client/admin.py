"""Typed calls to the cluster, one method for each. Producer, consumer and sessions are made of these.

Every call is repeated while its refusal is only momentary, until ``delivery_timeout_ms``. `append` and `fetch` are
single attempts: their callers know better when to repeat what.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ..partition.commands import Stamp, Token
from ..partition.errors import RequestTimedOut, StockadeError
from ..partition.records import STREAM_END, STREAM_START
from .calls import Calls, decode, present, quoted
from .claims import Claims
from .config import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig
from .fetched import ARROW_STREAM, Fetched, fetched
from .metadata import Metadata
from .model import (
    AppendAnswer,
    Cluster,
    Grant,
    Mode,
    Offsets,
    ProducerPair,
    SessionState,
    Tail,
    Ticket,
    Topic,
    TopicConfig,
    TopicList,
    TopicSummary,
)
from .operations import Operations
from .oversight import Oversight
from .standstill import Standstill
from .transport import Answer, Request


class Client(Operations, Claims, Oversight):
    """A connection to one cluster. An async context manager; otherwise ``close`` it.

    ``bootstrap``: base URL of some node, several of them, or a ClientConfig.
    """

    def __init__(self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
        self.config: ClientConfig = ClientConfig.of(bootstrap)
        self.metadata: Metadata = Metadata(self.topic)
        self._calls = Calls(self.config)
        patience_ms = self.config.standstill_ms
        self._standstill = Standstill(patience_ms, self._ask_others, self.metadata, self._calls.avoid)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        self._standstill.close()
        await self._calls.close()

    async def connect(self) -> Cluster:
        """Ask some node about the cluster, and remember the other nodes. Raises ClusterUnreachable at once.

        A node that takes connections and does not answer in ``connect_timeout_ms`` is passed over.
        """
        cluster = decode(await self._calls.first_answer("/v1/cluster"), Cluster)
        for node in cluster.nodes:
            self._calls.learn(node.url)
        return cluster

    async def topics(self) -> list[TopicSummary]:
        """All topics, ascending by name."""
        return (await self._calls.call(TopicList, "GET", "/v1/topics")).topics

    async def topic(self, name: str, *, patience_ms: int | None = None) -> Topic:
        """Definition and leaders, asked now. Raises UnknownTopicOrPartition."""
        return await self._calls.call(Topic, "GET", f"/v1/topics/{quoted(name)}", patience_ms=patience_ms)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: TopicConfig | Mapping[str, Any] | None = None,
    ) -> Topic:
        """Create a topic, or return the one of this definition. Raises TopicAlreadyExists, InvalidRequest.

        ``replication_factor`` None: 3, or all nodes when there are fewer. What ``config`` leaves out has its default.
        """
        body: dict[str, Any] = {"name": name, "partitions": partitions, "config": config or {}}
        if replication_factor is not None:
            body["replication_factor"] = replication_factor
        return await self._calls.call(Topic, "POST", "/v1/topics", body=body)

    async def delete_topic(self, name: str, *, topic_id: int | None = None) -> None:
        """Delete a topic; with ``topic_id`` only that incarnation. Raises UnknownTopicOrPartition."""
        self.metadata.forget(name)
        await self._calls.send("DELETE", f"/v1/topics/{quoted(name)}", params=present(topic_id=topic_id))

    async def offsets(self, topic: str, partition: int, at: str | int = "latest") -> Offsets:
        """``at``: earliest, latest, max_timestamp, or milliseconds for the first record at or after that time."""
        return await self._calls.call(Offsets, "GET", f"{_partition(topic, partition)}/offsets", params={"at": at})

    async def tail(self, topic: str, partition: int, count: int = 1) -> Tail:
        """The last ``count`` records with who wrote them: where a writer stands after an error."""
        return await self._calls.call(Tail, "GET", f"{_partition(topic, partition)}/tail", params={"n": count})

    async def open_session(self, client_id: str, ttl_ms: int) -> SessionState:
        """A new session; the ttl is moved into the range that the cluster allows."""
        return await self._calls.call(
            SessionState, "POST", "/v1/sessions", body={"client_id": client_id, "ttl_ms": ttl_ms}
        )

    async def renew_session(self, session: str, timeout_ms: int) -> SessionState:
        """Full ttl from now; one attempt. Raises UnknownSession, SessionExpired."""
        path = f"/v1/sessions/{quoted(session)}"
        return decode(await self._calls.once(Request(method="PUT", path=path, timeout_ms=timeout_ms)), SessionState)

    async def close_session(self, session: str, *, patience_ms: int | None = None) -> None:
        """Free everything the session holds; answers when its slots are cleared. Safe for a session that is gone."""
        await self._calls.send("DELETE", f"/v1/sessions/{quoted(session)}", patience_ms=patience_ms)

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
        """All of ``partitions`` (None: all of the topic) or none. Raises ProducerBusy, ProducerFenced, HoldAndWait.

        A Ticket when it is not in force everywhere yet: ask ``ticket`` until it has a grant.
        """
        wanted = "all" if partitions is None else sorted(partitions)
        body = {"partitions": wanted, "mode": mode, "producer_name": producer_name}
        body |= present(resume_epoch=resume_epoch, topic_id=topic_id)
        path = f"/v1/topics/{quoted(topic)}/grants"
        answer = await self._calls.send("POST", path, headers={"Stockade-Session": session}, body=body)
        return decode(answer, Grant) if answer.status == 201 else decode(answer, Ticket)

    async def ticket(self, ticket: str, session: str, wait_ms: int = 0) -> Ticket:
        """State of a ticket; the call is held up to ``wait_ms`` while it is in line."""
        headers = {"Stockade-Session": session}
        return await self._calls.call(
            Ticket,
            "GET",
            f"/v1/tickets/{quoted(ticket)}",
            headers=headers,
            params={"wait_ms": wait_ms},
            wait_ms=wait_ms,
        )

    async def cancel_ticket(self, ticket: str, session: str, *, patience_ms: int | None = None) -> Ticket:
        """Leave the line. If the grant came first, the ticket has it, and it is the caller's to release."""
        path, headers = f"/v1/tickets/{quoted(ticket)}", {"Stockade-Session": session}
        return await self._calls.call(Ticket, "DELETE", path, headers=headers, patience_ms=patience_ms)

    async def release(self, grant: str, session: str) -> None:
        """Free the slots of a grant; answers when they are cleared. Safe for a grant that is gone."""
        await self._calls.send("DELETE", f"/v1/grants/{quoted(grant)}", headers={"Stockade-Session": session})

    async def init_producer(
        self, name: str | None = None, *, pair: tuple[int, int] | None = None, nonce: str | None = None
    ) -> ProducerPair:
        """Producer id and epoch to write with; every older instance of ``name`` is refused from then on.

        ``pair``: the caller's present (id, epoch), to be recognised as the same instance. ``nonce`` makes a first call
        repeatable; one is made up when it is not given.
        """
        body = present(name=name, nonce=nonce or (None if pair else secrets.token_hex(16)))
        if pair is not None:
            body |= {"producer_id": pair[0], "producer_epoch": pair[1]}
        return await self._calls.call(ProducerPair, "POST", "/v1/producers", body=body)

    async def append(
        self,
        topic: str,
        partition: int,
        message: bytes,
        *,
        topic_id: int | None = None,
        stamp: Stamp | None = None,
        token: Token | None = None,
        if_log_end: int | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> AppendAnswer:
        """One attempt to append one batch (``message``: an Arrow message as partition.records makes it).

        Raises the refusal; RequestTimedOut when the outcome is unknown. ``on_written``: see transport.Request.
        """
        request = Request(
            method="POST",
            path=f"{_partition(topic, partition)}/records",
            params=present(topic_id=topic_id),
            headers=_append_headers(stamp, token, if_log_end),
            body=(STREAM_START, message, STREAM_END),
            node=self.metadata.leader(topic, partition),
            on_written=on_written,
        )
        return decode(await self._to_leader(request, topic, partition), AppendAnswer)

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
        """One attempt to read committed batches from ``offset`` (a number, earliest, latest).

        At the log end the call is held up to ``max_wait_ms``. ``local_node``: base URL of a node that shall answer from
        its own replica. ``guard``: a group and the fence_epoch under which the caller owns the partition in it. Raises
        OffsetOutOfRange, NotOwner.
        """
        params: dict[str, Any] = {"offset": offset, "max_bytes": max_bytes, "max_wait_ms": max_wait_ms}
        if guard is not None:
            params |= {"group": guard[0], "fence_epoch": guard[1]}
        request = Request(
            method="GET",
            path=f"{_partition(topic, partition)}/records",
            params=params | present(topic_id=topic_id, local="true" if local_node else None),
            headers={"Accept": ARROW_STREAM},
            node=local_node or self.metadata.leader(topic, partition),
            only_node=local_node is not None,
            wait_ms=max_wait_ms,
        )
        answer = await self._to_leader(request, topic, partition)
        return fetched(answer.headers.get, answer.body)

    async def _to_leader(self, request: Request, topic: str, partition: int) -> Answer:
        try:
            answer = await self._watched(request, topic, partition)
        except StockadeError as error:
            if error.metadata_stale or not error.no_side_effects:
                self.metadata.doubt(topic, partition, request.node)
            raise
        self.metadata.heard(topic, partition, answer.leader)
        return answer

    async def _watched(self, request: Request, topic: str, partition: int) -> Answer:
        if request.node is None or request.only_node:
            return await self._calls.once(request)
        try:
            async with asyncio.timeout(None) as limit:
                with self._standstill.over(topic, partition, request.node, limit, request.wait_ms):
                    return await self._calls.once(request)
        except TimeoutError as error:
            leader = self.metadata.leader(topic, partition)
            raise RequestTimedOut(f"{request.node} stands still, and {leader} leads; the outcome is unknown") from error

    async def _ask_others(self, topic: str, node: str) -> Topic:
        """A description of the topic that comes from another node, whichever answers first."""
        return decode(await self._calls.answer_without(node, f"/v1/topics/{quoted(topic)}"), Topic)


def _append_headers(stamp: Stamp | None, token: Token | None, if_log_end: int | None) -> dict[str, str]:
    headers = {"Content-Type": ARROW_STREAM}
    if stamp is not None:
        headers["Stockade-Producer-Id"] = str(stamp.pid)
        headers["Stockade-Producer-Epoch"] = str(stamp.epoch)
        headers["Stockade-Producer-Seq"] = str(stamp.first_seq)
    if token is not None:
        headers["Stockade-Fence-Grant"] = token.grant_id
        headers["Stockade-Fence-Epoch"] = str(token.epoch)
        headers["Stockade-Session"] = token.session
    if if_log_end is not None:
        headers["Stockade-If-Log-End"] = str(if_log_end)
    return headers


def _partition(topic: str, partition: int) -> str:
    return f"/v1/topics/{quoted(topic)}/partitions/{partition}"
