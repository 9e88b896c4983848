"""Faults in the network between processes: a toxiproxy server of our own, and proxies between every two
nodes.

Speaks the server's HTTP interface itself: toxiproxy-python keeps one server's address in a class attribute
and lets an answer 500 pass, so a cut that failed would look like a cut that the system under test had
survived.
"""

import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

VERSION = "v2.12.0"
INSTALL = f"go install github.com/Shopify/toxiproxy/v2/cmd/server@{VERSION}"
START_TIMEOUT_S = 10.0
"""The server must answer this long after it was started."""
CALL_TIMEOUT_S = 5.0

Address = tuple[str, int]


class ProxyError(Exception):
    """The toxiproxy server is missing, or did not do what it was told; in one line."""


def find_server(tools: Path | None = None) -> Path:
    """The binary: on PATH, or in ``tools``, by default the checkout's ``.tools/bin``. Raises ProxyError."""
    tools = tools or Path(__file__).resolve().parents[1] / ".tools" / "bin"
    found = shutil.which("toxiproxy-server") or shutil.which("toxiproxy-server", path=str(tools))
    if found is None:
        raise ProxyError(f"no toxiproxy-server on PATH or in {tools}: `{INSTALL}`, then rename `server` to it")
    return Path(found)


class ProxyServer:
    """A running toxiproxy server; every change is confirmed by it before the call returns."""

    def __init__(self, binary: Path | None = None) -> None:
        """Start it. Raises ProxyError when it is missing or does not answer."""
        self._port = _free_port()
        command = [str(binary or find_server()), "-host", "127.0.0.1", "-port", str(self._port)]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._await_answer()
        except BaseException:
            self.close()
            raise

    def create(self, name: str, upstream: Address) -> "Proxy":
        """A proxy on a port of its own choice that passes everything on to ``upstream``."""
        wanted = {"name": name, "listen": "127.0.0.1:0", "upstream": _text(upstream), "enabled": True}
        made = self.call("POST", "/proxies", wanted)
        host, _, port = made["listen"].rpartition(":")
        return Proxy(self, name, (host, int(port)))

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request to the control port; its JSON answer, None when there is none. Raises ProxyError."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=CALL_TIMEOUT_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ProxyError(f"toxiproxy, {method} {path}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise ProxyError(f"toxiproxy, {method} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content else None

    def close(self) -> None:
        """End the server, and with it every connection through it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.call("GET", "/version")
                return
            except ProxyError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


class Proxy:
    """One proxy. ``address`` is where it listens, also after it was down."""

    def __init__(self, server: ProxyServer, name: str, address: Address) -> None:
        self.name = name
        self.address = address
        self._server = server

    def disable(self) -> None:
        """Break every connection through it and refuse new ones."""
        self._switch(enabled=False)

    def enable(self) -> None:
        """Listen again."""
        self._switch(enabled=True)

    def add_toxic(self, name: str, kind: str, stream: str, attributes: Mapping[str, Any]) -> None:
        """Add a toxic (toxiproxy's README names the kinds) to ``stream``: upstream or downstream."""
        toxic = {
            "name": name,
            "type": kind,
            "stream": stream,
            "toxicity": 1.0,
            "attributes": dict(attributes),
        }
        self._server.call("POST", f"/proxies/{self.name}/toxics", toxic)

    def remove_toxic(self, name: str) -> None:
        """Remove a toxic."""
        self._server.call("DELETE", f"/proxies/{self.name}/toxics/{name}")

    def _switch(self, *, enabled: bool) -> None:
        answer = self._server.call("POST", f"/proxies/{self.name}", {"enabled": enabled})
        if answer["enabled"] is not enabled:
            raise ProxyError(f"toxiproxy left {self.name} {'down' if enabled else 'up'}")


CutKind = Literal["refused", "silent"]
"""A cut link refuses connections, or takes them and swallows every byte, as a lost cable does."""


class Mesh:
    """A proxy for each ordered pair of nodes, so that any of them can be cut from any other, and healed."""

    def __init__(self, server: ProxyServer, nodes: Mapping[str, Address]) -> None:
        """``nodes``: where each node really listens."""
        self._nodes = set(nodes)
        self._proxies = {
            (dialer, target): server.create(f"{dialer}-to-{target}", nodes[target])
            for dialer, target in permutations(sorted(nodes), 2)
        }
        self._cuts: dict[tuple[str, str], CutKind] = {}

    def address(self, dialer: str, target: str) -> Address:
        """Where ``dialer`` reaches ``target``."""
        return self._proxies[dialer, target].address

    def link(self, dialer: str, target: str) -> Proxy:
        """The proxy through which ``dialer`` reaches ``target``, for other faults than cuts."""
        return self._proxies[dialer, target]

    def isolate(self, nodes: Iterable[str], kind: CutKind) -> None:
        """Cut every link between ``nodes`` and the others; links within either side stay."""
        side = set(nodes)
        for link in self._proxies:
            if len(side.intersection(link)) == 1 and link not in self._cuts:
                self._cut(link, kind)

    def heal(self) -> None:
        """Every link is up again."""
        for link, kind in list(self._cuts.items()):
            proxy = self._proxies[link]
            if kind == "refused":
                proxy.enable()
            else:
                for stream in ("upstream", "downstream"):
                    proxy.remove_toxic(f"silent-{stream}")
            del self._cuts[link]

    def _cut(self, link: tuple[str, str], kind: CutKind) -> None:
        proxy = self._proxies[link]
        if kind == "refused":
            proxy.disable()
        else:
            for stream in ("upstream", "downstream"):
                # 0 never times out: bytes are thrown away until the toxic goes, and the connection with it.
                proxy.add_toxic(f"silent-{stream}", "timeout", stream, {"timeout": 0})
        self._cuts[link] = kind


class Proxies:
    """All proxies of a cluster: ``mesh`` between its nodes, and for each node a ``door`` for all clients."""

    def __init__(self, server: ProxyServer, raft: Mapping[str, Address], http: Mapping[str, Address]) -> None:
        """``raft`` and ``http``: where each node really listens."""
        self.mesh: Mesh = Mesh(server, raft)
        self.doors: dict[str, Proxy] = {node: server.create(f"clients-to-{node}", http[node]) for node in sorted(http)}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
