"""A small blocking reader for places without an event loop, such as Spark's executors. It can be pickled.

Reads only, so any node may be asked again after any failure. It must never be used for writing: repetition there needs
the producer's care.
"""

import http.client
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pyarrow as pa

from ..partition.errors import RequestTimedOut, StockadeError
from .config import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig
from .errors import refusal_of
from .fetched import ARROW_STREAM, fetched
from .model import Offsets, Topic
from .retry import backoff_s, is_momentary

_Headers = http.client.HTTPMessage


class BlockingClient:
    """Reads from one cluster, one request at a time. ``bootstrap`` as for Client. Not safe for several threads."""

    def __init__(self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
        self.config = ClientConfig.of(bootstrap)
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._node = self.config.bootstrap[0]

    def __reduce__(self) -> tuple[type["BlockingClient"], tuple[ClientConfig]]:
        return BlockingClient, (self.config,)

    def topic(self, name: str) -> Topic:
        """Definition and leaders. Raises UnknownTopicOrPartition."""
        _, body = self._get(f"/v1/topics/{quote(name, safe='')}")
        return msgspec.json.decode(body, type=Topic)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """(first retained offset, next offset to be written)."""
        _, body = self._get(f"{_path(topic, partition)}/offsets")
        answer = msgspec.json.decode(body, type=Offsets)
        return answer.log_start, answer.log_end

    def fetch_arrow(
        self, topic: str, partition: int, offset: int, max_bytes: int | None = None
    ) -> tuple[int, list[pa.RecordBatch]]:
        """Whole batches from ``offset`` on and the offset of the first row: at most ``offset``, so skip rows before it.

        An empty list at the log end. ``max_bytes`` None: the configuration's. Raises OffsetOutOfRange.
        """
        query = {"offset": offset, "max_bytes": max_bytes or self.config.fetch_bytes_max}
        headers, body = self._get(f"{_path(topic, partition)}/records?{urlencode(query)}", Accept=ARROW_STREAM)
        answer = fetched(headers.get, body)
        return answer.base_offset, answer.batches

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _get(self, path: str, **headers: str) -> tuple[_Headers, bytes]:
        deadline_s = time.monotonic() + self.config.delivery_timeout_ms / 1000
        attempts = 0
        while True:
            try:
                return self._attempt(path, headers)
            except StockadeError as error:
                attempts += 1
                pause_s = backoff_s(self.config, attempts, error)
                if not is_momentary(error) or time.monotonic() + pause_s > deadline_s:
                    raise
                self._node = error.fields.get("leader") or self._next_node()
            time.sleep(pause_s)

    def _attempt(self, path: str, headers: Mapping[str, str]) -> tuple[_Headers, bytes]:
        connection = self._connection(self._node)
        try:
            connection.request("GET", urlsplit(self._node).path + path, headers=headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RequestTimedOut(f"{self._node}: {error!r}") from error
        if response.status >= 300:
            raise refusal_of(response.status, body)
        return response.headers, body

    def _connection(self, node: str) -> http.client.HTTPConnection:
        if node not in self._connections:
            parts = urlsplit(node)
            kind: Any = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._connections[node] = kind(parts.netloc, timeout=self.config.request_timeout_ms / 1000)
        return self._connections[node]

    def _next_node(self) -> str:
        nodes = self.config.bootstrap
        return nodes[(nodes.index(self._node) + 1) % len(nodes)] if self._node in nodes else nodes[0]


def _path(topic: str, partition: int) -> str:
    return f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}"
