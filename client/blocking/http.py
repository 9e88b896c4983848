"""HTTP with the standard library alone: single attempts, over connections that are kept.

For places where nothing but Python is installed, such as Spark's executors. It never repeats a request, and tells an
unknown outcome (RequestTimedOut) from a refusal. Not safe for several threads.
"""

import http.client
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..partition.errors import RequestTimedOut
from .access import Access
from .errors import ClusterUnreachable, refusal_of


class PlainAnswer(NamedTuple):
    """A successful answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class PlainHttp:
    """Connections to nodes, by base URL."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        """``timeout_s`` is for connecting, and for each wait for bytes of an answer."""
        self._access = access
        self._timeout_s = timeout_s
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._context: ssl.SSLContext | None = None

    def request(
        self, node: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> PlainAnswer:
        """One attempt. Raises the refusal; ClusterUnreachable when nothing was sent; RequestTimedOut when the outcome
        is unknown.
        """
        connection = self._connected(node)
        try:
            connection.request(method, urlsplit(node).path + path, body, {**self._access.headers(), **(headers or {})})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RequestTimedOut(f"{node}: {error!r}; the outcome is unknown") from error
        if response.status >= 300:
            raise refusal_of(response.status, content)
        return PlainAnswer(response.status, response.headers, content)

    def close(self) -> None:
        """Close all connections; the next request opens a new one."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connected(self, node: str) -> http.client.HTTPConnection:
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._made(node)
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                raise ClusterUnreachable(f"{node}: {error}") from error
        return connection

    def _made(self, node: str) -> http.client.HTTPConnection:
        parts = urlsplit(node)
        if parts.scheme != "https":
            return http.client.HTTPConnection(parts.netloc, timeout=self._timeout_s)
        if self._context is None:
            self._context = self._access.context()
        kind: Any = http.client.HTTPSConnection
        connection: http.client.HTTPConnection = kind(parts.netloc, timeout=self._timeout_s, context=self._context)
        return connection
