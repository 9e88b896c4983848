"""HTTP with the standard library alone: single attempts over persistent connections.

For places where only Python is installed, such as Spark's executors. It never repeats a request, and distinguishes an
unknown outcome (RequestTimedOut) from a refusal. Not thread-safe.
"""

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..config import Credentials, is_downgrade
from ..errors import ClusterUnreachable, PlaintextRefused, Source, UnreadableAnswer, refusal_of, unanswered
from ..loop_affinity import LoopAffinity


class PlainAnswer(NamedTuple):
    """A successful answer, and where it came from."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    source: Source

    def json(self) -> Any:
        """The JSON object of the body. Raises UnreadableAnswer for any other body."""
        try:
            found = json.loads(self.body)
            if not isinstance(found, dict):
                raise ValueError("it is no JSON object")
        except (ValueError, RecursionError) as error:
            raise UnreadableAnswer(self.source, self.body, str(error)) from error
        return found


class PlainHttp:
    """Connections to nodes, by base URL."""

    def __init__(
        self, credentials: Credentials, timeout_s: float, connect_timeout_s: float, bootstrap: Sequence[str] = ()
    ) -> None:
        """``timeout_s``: the longest wait for further bytes of an answer. ``connect_timeout_s``: the longest wait while
        connecting. ``bootstrap``: the addresses that the application gave; if one has TLS, no node beside them is asked
        without TLS.
        """
        self._bootstrap = bootstrap
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._affinity = LoopAffinity()
        self._context: ssl.SSLContext | None = None

    def request(
        self, node: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> PlainAnswer:
        """A single attempt.

        Raises the refusal; ClusterUnreachable and PlaintextRefused when nothing was sent; RequestTimedOut when no
        answer came.
        """
        if is_downgrade(node, self._bootstrap):
            raise PlaintextRefused(node)
        connection = self.connected(node)
        try:
            connection.request(
                method, urlsplit(node).path + path, body, {**self._credentials.headers(), **(headers or {})}
            )
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise unanswered(method, f"{node}: {error!r}") from error
        source = Source(method, node, response.status, response.headers.get("Content-Type"))
        if response.status >= 300:
            raise refusal_of(source, content)
        return PlainAnswer(response.status, response.headers, content, source)

    def close(self) -> None:
        """Close all connections; the next request opens a new one."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connected(self, node: str) -> http.client.HTTPConnection:
        """An open connection to the node, made if there is none. Raises ClusterUnreachable if that fails."""
        if self._affinity.is_forked:
            # The parent goes on with its connections; two processes would read each other's answers.
            self._connections, self._affinity = {}, LoopAffinity()
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._made(node)
        if connection.sock is None:
            try:
                self._connect(connection)
            except OSError as error:
                connection.close()
                raise ClusterUnreachable(f"{node}: {error}") from error
        return connection

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        connection.connect()
        connection.sock.settimeout(self._timeout_s)

    def _made(self, node: str) -> http.client.HTTPConnection:
        parts = urlsplit(node)
        if parts.scheme != "https":
            return http.client.HTTPConnection(parts.netloc, timeout=self._connect_timeout_s)
        if self._context is None:
            self._context = self._credentials.context()
        kind: Any = http.client.HTTPSConnection
        timeout_s = self._connect_timeout_s
        connection: http.client.HTTPConnection = kind(parts.netloc, timeout=timeout_s, context=self._context)
        return connection
