"""A small blocking reader for places without an event loop, such as Spark's executors. It can be pickled.

It needs the standard library and pyarrow, nothing else. Reads only, so any node may be asked again after any failure.
It must never be used for writing: repetition there needs the producer's care.
"""

import json
import time
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pyarrow as pa

from ..partition.errors import StockadeError
from .access import Access
from .config import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig
from .fetched import ARROW_STREAM, Fetched, fetched
from .plain_http import PlainAnswer, PlainHttp
from .retry import backoff_s, is_momentary


class PartitionLeader(NamedTuple):
    """A partition, and the base URL of its leader; None while there is none."""

    partition: int
    leader: str | None


class TopicLeaders(NamedTuple):
    """A topic; ``topic_id`` tells incarnations of a name apart."""

    name: str
    topic_id: int
    partitions: list[PartitionLeader]


class BlockingClient:
    """Reads from one cluster, one request at a time. ``bootstrap`` as for Client. Not safe for several threads."""

    def __init__(self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, access: Access | None = None) -> None:
        self.config: ClientConfig = ClientConfig.of(bootstrap)
        self.access: Access = access or Access()
        self._http = PlainHttp(self.access, self.config.request_timeout_ms / 1000)
        self._node = self.config.bootstrap[0]

    def __reduce__(self) -> tuple[type["BlockingClient"], tuple[ClientConfig, Access]]:
        return BlockingClient, (self.config, self.access)

    def topics(self) -> list[str]:
        """Names of all topics, ascending."""
        return [each["name"] for each in self._json("/v1/topics")["topics"]]

    def topic(self, name: str) -> TopicLeaders:
        """Incarnation and leaders. Raises UnknownTopicOrPartition."""
        answer = self._json(f"/v1/topics/{quote(name, safe='')}")
        leaders = [PartitionLeader(each["partition"], each["leader"]) for each in answer["partitions"]]
        return TopicLeaders(answer["name"], answer["topic_id"], leaders)

    def offsets(self, topic: str, partition: int, topic_id: int | None = None) -> tuple[int, int]:
        """(first retained offset, next offset to be written)."""
        answer = self._offsets(topic, partition, "latest", topic_id)
        return answer["log_start"], answer["log_end"]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int, topic_id: int | None = None) -> int | None:
        """Offset of the first record at or after ``timestamp_ms``; None when there is none."""
        offset: int = self._offsets(topic, partition, timestamp_ms, topic_id)["offset"]
        return None if offset < 0 else offset

    def fetch_arrow(
        self, topic: str, partition: int, offset: int, max_bytes: int | None = None
    ) -> tuple[int, list[pa.RecordBatch]]:
        """Whole batches from ``offset`` on and the offset of the first row: at most ``offset``, so skip rows before it.

        An empty list at the log end. ``max_bytes`` None: the configuration's. Raises OffsetOutOfRange.
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
        """As ``fetch_arrow``, with the bounds of the log, and with ``meta`` who wrote each batch.

        Raises also InconsistentTopicId, for a topic made anew.
        """
        query = {"offset": offset, "max_bytes": max_bytes or self.config.fetch_bytes_max} | _guard(topic_id)
        query |= {"origins": "true"} if meta else {}
        answer = self._get(f"{_path(topic, partition)}/records?{urlencode(query)}", Accept=ARROW_STREAM)
        return fetched(answer.headers.get, answer.body, meta=meta)

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        self._http.close()

    def _offsets(self, topic: str, partition: int, at: str | int, topic_id: int | None) -> Any:
        return self._json(f"{_path(topic, partition)}/offsets?{urlencode({'at': at} | _guard(topic_id))}")

    def _json(self, path: str) -> Any:
        return json.loads(self._get(path).body)

    def _get(self, path: str, **headers: str) -> PlainAnswer:
        deadline_s = time.monotonic() + self.config.delivery_timeout_ms / 1000
        attempts = 0
        while True:
            try:
                return self._http.request(self._node, "GET", path, headers)
            except StockadeError as error:
                attempts += 1
                pause_s = backoff_s(self.config, attempts, error)
                if not is_momentary(error) or time.monotonic() + pause_s > deadline_s:
                    raise
                self._node = error.fields.get("leader") or self._next_node()
            time.sleep(pause_s)

    def _next_node(self) -> str:
        nodes = self.config.bootstrap
        return nodes[(nodes.index(self._node) + 1) % len(nodes)] if self._node in nodes else nodes[0]


def _path(topic: str, partition: int) -> str:
    return f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}"


def _guard(topic_id: int | None) -> dict[str, Any]:
    return {} if topic_id is None else {"topic_id": topic_id}
