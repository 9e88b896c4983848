"""A small blocking reader for places without an event loop, such as Spark's executors. It can be pickled.

It needs the standard library and pyarrow. It only reads, so every request may be repeated at any node; writing needs a
producer (or writer.py), which makes repetitions harmless.
"""

import time
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pyarrow as pa

from ...partition.errors import RequestTimedOut, StockadeError
from ..api.fetched import ARROW_STREAM, Fetched, fetched
from ..config import BOOTSTRAP_URLS_MAX, Bootstrap, ClientConfig, Credentials, is_downgrade
from ..errors import ClusterUnreachable
from .http import PlainAnswer, PlainHttp
from .waiting import Waiting

CONNECT_PATIENCE_MS = 10_000
"""How long ``connect`` repeats its attempts while no node can be connected to."""
PROBED_MAX = 5
"""Nodes that a client tries before its first request, to find one that answers."""
_known: dict[tuple[str, ...], tuple[str, ...]] = {}
"""The nodes that clients of this process know, by their ``bootstrap``: Spark's clients live for a few requests, and its
processes for many clients.
"""
CLUSTERS_MAX = 100
"""Clusters of which a process knows the nodes; above it, the one that came first is forgotten."""


class PartitionLeader(NamedTuple):
    """A partition, and the base URL of its leader; None while none is known."""

    partition: int
    leader: str | None


class TopicLeaders(NamedTuple):
    """A topic and its leaders; ``topic_id`` tells it from a deleted topic of the same name."""

    name: str
    topic_id: int
    partitions: list[PartitionLeader]


class BlockingClient:
    """Reads from one cluster, one request at a time. Not thread-safe.

    ``bootstrap`` as for `Client`. ``credentials`` None: those of the configuration. Requests are repeated for
    ``delivery_timeout_ms`` while there is no leader, no answer, or overload. It asks the nodes of ``bootstrap`` first,
    and then the other nodes of the cluster that any client of this process has heard of.
    """

    def __init__(self, bootstrap: Bootstrap | None = None, credentials: Credentials | None = None) -> None:
        self.config: ClientConfig = ClientConfig.of(bootstrap)
        self.credentials: Credentials = credentials or self.config.credentials()
        self._http = PlainHttp(
            self.credentials,
            self.config.request_timeout_ms / 1000,
            self.config.connect_timeout_ms / 1000,
            self.config.bootstrap,
        )
        self._node: str | None = None

    def __reduce__(self) -> tuple[type["BlockingClient"], tuple[ClientConfig, Credentials]]:
        return BlockingClient, (self.config, self.credentials)

    def connect(self, patience_ms: int = CONNECT_PATIENCE_MS) -> None:
        """Connect to a node, and ask it for the others. No other method needs this: it tells early whether there is a
        cluster.

        Raises ClusterUnreachable, with a reason for each node, when no node can be connected to for ``patience_ms``; 0:
        after one attempt at each. The attempt under way then may last ``connect_timeout_ms`` for each node.
        """
        waiting = Waiting("connecting to the cluster", patience_ms / 1000, self.config)
        while True:
            for node in self.nodes:
                try:
                    self._http.connected(node)
                except ClusterUnreachable as error:
                    waiting.failed(node, error)
                else:
                    self._node = self._answering(node)
                    waiting.answered()
                    self._learn_all()
                    return
            tried = ", ".join(f"{node} ({why})" for node, why in waiting.nodes.items())
            unreachable = ClusterUnreachable(
                f"no node can be connected to: {tried}. Start the cluster, or correct its addresses"
            )
            time.sleep(waiting.pause_s(unreachable))

    @property
    def node(self) -> str:
        """The node to ask next, if a partition's leader is not known."""
        if self._node is None:
            self._node = self._answering(self.config.bootstrap[0])
        return self._node

    @property
    def nodes(self) -> tuple[str, ...]:
        """The known nodes, those of ``bootstrap`` first."""
        bootstrap = tuple(self.config.bootstrap)
        return _known.get(bootstrap, bootstrap)

    def learn(self, nodes: Iterable[str | None]) -> None:
        """Remember nodes of the cluster, BOOTSTRAP_URLS_MAX at most: the newest, beside ``bootstrap``. Left out are
        None, and nodes without TLS after a ``bootstrap`` with TLS.
        """
        bootstrap = tuple(self.config.bootstrap)
        usable = (node for node in nodes if node and not is_downgrade(node, bootstrap))
        if len(_known) >= CLUSTERS_MAX and bootstrap not in _known:
            _known.pop(next(iter(_known)), None)
        _known[bootstrap] = tuple(dict.fromkeys([*bootstrap, *usable, *self.nodes]))[:BOOTSTRAP_URLS_MAX]

    def look_elsewhere(self, leader: str | None = None) -> None:
        """Ask another node next: ``leader`` if a refusal has named it, otherwise the next one that answers."""
        nodes, node = self.nodes, self.node
        following = nodes[(nodes.index(node) + 1) % len(nodes)] if node in nodes else nodes[0]
        self._node = leader or self._answering(following)

    def topics(self) -> list[str]:
        """Names of all topics, ascending."""
        return [each["name"] for each in self._json("/v1/topics")["topics"]]

    def topic(self, name: str) -> TopicLeaders:
        """A topic's id and leaders. Raises UnknownTopicOrPartition."""
        answer = self._json(f"/v1/topics/{quote(name, safe='')}")
        leaders = [PartitionLeader(each["partition"], each["leader"]) for each in answer["partitions"]]
        self.learn(each.leader for each in leaders)
        return TopicLeaders(answer["name"], answer["topic_id"], leaders)

    def offsets(self, topic: str, partition: int, topic_id: int | None = None) -> tuple[int, int]:
        """The first retained offset, and the next offset to be written (log start and log end)."""
        answer = self._offsets(topic, partition, "latest", topic_id)
        return answer["log_start"], answer["log_end"]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int, topic_id: int | None = None) -> int | None:
        """The offset of the first record at or after ``timestamp_ms`` (Unix time); None if there is none."""
        offset: int = self._offsets(topic, partition, timestamp_ms, topic_id)["offset"]
        return None if offset < 0 else offset

    def fetch_arrow(
        self, topic: str, partition: int, offset: int, max_bytes: int | None = None
    ) -> tuple[int, list[pa.RecordBatch]]:
        """The first row's offset, and whole batches, of which the first contains ``offset``: skip the rows before it.

        No batches at the log's end. ``max_bytes`` None: ``fetch_bytes_max``. Raises OffsetOutOfRange.
        """
        answer = self.fetch(topic, partition, offset, max_bytes)
        return answer.base_offset, answer.batches

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        *,
        topic_id: int | None = None,
        meta: bool = False,
    ) -> Fetched:
        """As `fetch_arrow`, but the result also has the log's bounds and, with ``meta``, the producer of each batch.

        Also raises InconsistentTopicId when the topic has another id than ``topic_id``.
        """
        bytes_max = max_bytes or self.config.fetch_bytes_max
        query = {"offset": offset, "max_bytes": bytes_max} | _guard(topic_id)
        query |= {"origins": "true"} if meta else {}
        answer = self._get(f"{partition_path(topic, partition)}/records?{urlencode(query)}", Accept=ARROW_STREAM)
        return fetched(answer.source, answer.headers.get, answer.body, max_bytes=bytes_max, meta=meta)

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        self._http.close()

    def _offsets(self, topic: str, partition: int, at: str | int, topic_id: int | None) -> Any:
        return self._json(f"{partition_path(topic, partition)}/offsets?{urlencode({'at': at} | _guard(topic_id))}")

    def _json(self, path: str) -> Any:
        return self._get(path).json()

    def _get(self, path: str, **headers: str) -> PlainAnswer:
        waiting = Waiting(f"GET {path.partition('?')[0]}", self.config.delivery_timeout_ms / 1000, self.config)
        while True:
            try:
                answer = self._http.request(self.node, "GET", path, headers)
            except StockadeError as error:
                waiting.failed(self.node, error)
                pause_s = waiting.pause_s(error)
                self.look_elsewhere(error.fields.get("leader"))
            else:
                waiting.answered()
                return answer
            time.sleep(pause_s)

    def _answering(self, first: str) -> str:
        """The first of several nodes, from ``first`` on, that answers within ``standstill_ms``; ``first`` if none does.

        A process that is stopped or hangs still takes connections: each of Spark's many short-lived clients would wait
        ``request_timeout_ms`` for it.
        """
        nodes, time_s = self.nodes, self.config.standstill_ms / 1000
        if len(nodes) == 1:
            return first
        start = nodes.index(first)
        with closing(PlainHttp(self.credentials, time_s, time_s, nodes)) as probe:
            for node in (*nodes[start:], *nodes[:start])[:PROBED_MAX]:
                try:
                    probe.request(node, "GET", "/healthz")
                except (ClusterUnreachable, RequestTimedOut):
                    continue
                except StockadeError:
                    pass  # it answers
                return node
        return first

    def _learn_all(self) -> None:
        """Learn the cluster's nodes, if the answer comes within ``standstill_ms``."""
        time_s = self.config.standstill_ms / 1000
        with closing(PlainHttp(self.credentials, time_s, time_s, self.nodes)) as http, suppress(StockadeError):
            self.learn(each["url"] for each in http.request(self.node, "GET", "/v1/cluster").json()["nodes"])


def partition_path(topic: str, partition: int) -> str:
    """The path of a partition, below which its records, offsets and stages are."""
    return f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}"


def _guard(topic_id: int | None) -> dict[str, Any]:
    return {} if topic_id is None else {"topic_id": topic_id}
