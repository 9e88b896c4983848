"""Faults in the network between processes: a toxiproxy server of our own, and proxies between every two
nodes. toxiproxy-python is their client (toxiproxy_library.py).
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .undo import UndoShell

VERSION = "v2.12.0"
INSTALL = f"go install github.com/Shopify/toxiproxy/v2/cmd/server@{VERSION}"
LIBRARY = "pip install 'stockade[chaos]'"
START_TIMEOUT_S = 10.0
"""The server must answer this long after it was started."""

Address = tuple[str, int]


class ProxyError(Exception):
    """The toxiproxy server or its client is missing, or the server refused a request; in one line."""


def find_server(tools: Path | None = None) -> Path:
    """The binary: on PATH, or in ``tools``, by default the checkout's ``.tools/bin``. Raises ProxyError."""
    tools = tools or Path(__file__).resolve().parents[2] / ".tools" / "bin"
    found = shutil.which("toxiproxy-server") or shutil.which("toxiproxy-server", path=str(tools))
    if found is None:
        raise ProxyError(f"no toxiproxy-server on PATH or in {tools}: `{INSTALL}`, then rename `server` to it")
    return Path(found)


def why_not() -> str | None:
    """What is missing here for proxies, with the command that installs it; None if nothing is."""
    if find_spec("toxiproxy") is None:
        return f"no toxiproxy-python: `{LIBRARY}`"
    try:
        find_server()
    except ProxyError as error:
        return str(error)
    return None


class ProxyServer:
    """A running toxiproxy server. A call returns once the server has confirmed the change."""

    def __init__(self) -> None:
        """Start the server. Raises ProxyError if it is missing or does not answer."""
        self._port = _free_port()
        command = [str(find_server()), "-host", "127.0.0.1", "-port", str(self._port)]
        self._process = subprocess.Popen(  # a list of words, no shell  # noqa: S603  # nosec B603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._undo = UndoShell()
        self._undo.register("kill", "-KILL", str(self._process.pid))
        try:
            self._await_answer()
        except BaseException:
            self.close()
            raise

    def create(self, name: str, upstream: Address) -> "Proxy":
        """Make a proxy on a free port that forwards to ``upstream``."""
        with _calls_to(self._port, f"make {name}") as library:
            made = library.Toxiproxy().create(f"{upstream[0]}:{upstream[1]}", name)
        return Proxy(self._port, made)

    def close(self) -> None:
        """End the server, and with it every connection through it."""
        self._undo.close()
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
                with _calls_to(self._port, "answer") as library:
                    library.Toxiproxy().proxies()
                return
            except ProxyError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


@contextmanager
def _calls_to(port: int, what: str) -> Iterator[Any]:
    """toxiproxy-python, whose calls go to the server on ``port`` inside the context. Raises ProxyError if the library
    is missing, or the server did not do ``what``.
    """
    try:
        from . import toxiproxy_library as library  # noqa: PLC0415 (the extra `chaos`, and slow to import)
    except ImportError as error:
        raise ProxyError(f"no toxiproxy-python: `{LIBRARY}`") from error
    try:
        with library.calls_to(port):
            yield library
    except library.Refused as error:
        raise ProxyError(f"toxiproxy did not {what}: {error}") from error


class Proxy:
    """One proxy. It always listens at ``address``, also after it was disabled and enabled again."""

    def __init__(self, port: int, made: Any) -> None:
        """``port``: where the server takes calls; ``made``: the library's proxy."""
        host, _, listens = made.listen.rpartition(":")
        self.name: str = made.name
        self.address: Address = (host, int(listens))
        self._port = port
        self._made = made

    def disable(self) -> None:
        """Break every connection through it and refuse new ones."""
        with _calls_to(self._port, f"disable {self.name}"):
            self._made.disable()

    def enable(self) -> None:
        """Listen again."""
        with _calls_to(self._port, f"enable {self.name}"):
            self._made.enable()

    def add_toxic(self, name: str, kind: str, stream: str, attributes: Mapping[str, Any]) -> None:
        """Add a toxic (toxiproxy's README names the kinds) to ``stream``: upstream or downstream."""
        with _calls_to(self._port, f"add {name} to {self.name}"):
            self._made.add_toxic(name=name, type=kind, stream=stream, attributes=dict(attributes))

    def remove_toxic(self, name: str) -> None:
        """Remove a toxic."""
        with _calls_to(self._port, f"remove {name} from {self.name}"):
            self._made.destroy_toxic(name)


class Mesh:
    """A proxy for each ordered pair of nodes, so that each link can be broken and healed alone."""

    def __init__(self, server: ProxyServer, nodes: Mapping[str, Address]) -> None:
        """``nodes``: where each node really listens."""
        self._proxies = {
            (dialer, target): server.create(f"{dialer}-to-{target}", nodes[target])
            for dialer, target in permutations(sorted(nodes), 2)
        }

    def address(self, dialer: str, target: str) -> Address:
        """Where ``dialer`` reaches ``target``."""
        return self._proxies[dialer, target].address

    def link(self, dialer: str, target: str) -> Proxy:
        """The proxy through which ``dialer`` reaches ``target``."""
        return self._proxies[dialer, target]


class Proxies:
    """All proxies of a cluster: ``mesh`` between its nodes, and one for each node, ``client_proxies``, between it and
    all clients.
    """

    def __init__(self, server: ProxyServer, raft: Mapping[str, Address], http: Mapping[str, Address]) -> None:
        """``raft`` and ``http``: where each node really listens."""
        self.mesh: Mesh = Mesh(server, raft)
        self.client_proxies: dict[str, Proxy] = {
            node: server.create(f"clients-to-{node}", http[node]) for node in sorted(http)
        }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
