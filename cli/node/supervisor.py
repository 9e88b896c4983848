"""Keeps the node processes of one machine running: starts again what ended, says why it ended, stops all together.

`stockade serve` with `processes` and `stockade cluster` both use it.
"""

import http.client
import os
import queue
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...cluster.config import parse_address

RESTART_AFTER_S = 2.0
"""A process that ended is started again so long after; twice as long after each further end in which it was not ready
in between, up to RESTART_AFTER_MAX_S.
"""
RESTART_AFTER_MAX_S = 30.0
READY_TIMEOUT_S = 0.5
"""How long the supervisor waits for a node's answer whether it is ready: meanwhile it sees no other node."""
ANSWER_BYTES_MAX = 65536
"""Of an answer that is shown."""
LOOK_S = 0.1
"""Between two looks at the processes."""
LOOK_READY_MAX_S = 1.0
"""At most so long between two questions whether a node is ready; a tenth of the time that it has taken, if less."""
STOP_TIMEOUT_S = 25.0
"""A node that has not ended this long after SIGTERM is killed."""


@dataclass
class NodeProcess:
    """One node of this machine, the address (host:port) of its HTTP interface, and its process.

    ``tls``: what asks the node by HTTPS whether it is ready, see ``probing``; None: it is asked by HTTP.
    """

    name: str
    http: str
    tls: ssl.SSLContext | None = field(default=None, kw_only=True)
    process: "subprocess.Popen[bytes] | None" = field(default=None, kw_only=True)
    died_at: float | None = field(default=None, kw_only=True)
    restarts: int = field(default=0, kw_only=True)
    ends: int = field(default=0, kw_only=True)
    """How often it ended since it was ready last."""
    awaited_since: float | None = field(default=None, kw_only=True)
    """When it was started, until it is ready."""
    asked_at: float = field(default=0.0, kw_only=True)
    """When it was asked last whether it is ready."""
    was_ready: bool = field(default=False, kw_only=True)
    """Whether it has ever been ready under this supervisor."""

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self.http}"

    @property
    def pid(self) -> int | None:
        """Process id; None while the node does not run."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None


_Node = TypeVar("_Node", bound=NodeProcess)


def ending(returncode: int) -> str:
    """For people: how a process ended."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


def restart_delay_s(ends: int) -> float:
    """How long to wait before a process is started again that ended so often, and was not ready in between."""
    doublings = min(max(ends - 1, 0), 64)  # more of them change nothing, and a float has a bound
    return min(RESTART_AFTER_S * 2.0**doublings, RESTART_AFTER_MAX_S)


_DIRECT = urllib.request.ProxyHandler({})
"""A proxy of the environment is for the world outside."""


def probing(certificate: str, key: str) -> ssl.SSLContext:
    """What asks a node of this machine whether it is ready: with its own certificate, should it want one. No secret
    goes with the question, and the answer only decides what is printed: nothing is verified.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate, key, password="")  # never ask on a terminal  # nosec B106
    return context


def is_ready(node: NodeProcess, timeout_s: float = 2.0, *, path: str = "/readyz") -> bool:
    """Whether a node of this machine says that it is ready."""
    return why_not_ready(node, timeout_s, path) is None


def why_not_ready(node: NodeProcess, timeout_s: float, path: str) -> str | None:
    """What a node of this machine answers when asked at one of the paths about its health, if that is not 200; None: it
    is 200.
    """
    opener = urllib.request.build_opener(_DIRECT, urllib.request.HTTPSHandler(context=node.tls))
    try:
        with opener.open(f"{node.url}{path}", timeout=timeout_s) as answer:
            return None if answer.status == 200 else f"{answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code}: {error.read(ANSWER_BYTES_MAX).decode(errors='replace')}"
    except (OSError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        why = (isinstance(cause, OSError) and cause.strerror) or cause
        return f"{node.url}{path} does not answer ({why}): does the node run?"


def cannot_listen(address: str) -> str | None:
    """Why a node cannot listen at this address now; None: it can."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return None


class Stopping:
    """Whether a process is to stop. A handler of signals may say so at any moment; an event of `threading` has a lock
    that the thread below the handler may hold, and then both wait for ever.

    A wait has an end: Python runs no handler in it for a signal that came just before, or to another thread.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[None] = queue.SimpleQueue()

    def order(self) -> None:
        """It is to stop."""
        self._orders.put(None)

    def wait(self, timeout_s: float = 1.0) -> bool:
        """Take an order, or wait for one; False: none came in that time."""
        try:
            self._orders.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True


class Supervisor(Generic[_Node]):
    """Watches the processes of ``nodes``, which may grow.

    ``spawn`` starts the process of a node that does not run; ``tell`` takes a line for people; ``last_words`` of a node
    that ended with an exit code are added to its line; ``changed`` is called when a process was started or has ended.
    """

    def __init__(
        self,
        nodes: Sequence[_Node],
        spawn: Callable[[_Node], "subprocess.Popen[bytes]"],
        tell: Callable[[str], None],
        *,
        restart: bool = True,
        last_words: Callable[[_Node], str] = lambda _: "",
        changed: Callable[[], None] = lambda: None,
        give_up: Callable[[str], None] | None = None,
    ) -> None:
        """``restart`` False: what ended stays down. ``give_up`` is called with the reason when a node ended with an
        exit code before it was ever ready: it cannot start, and the supervisor starts nothing any more. Without
        ``give_up`` that node is started again like any other.
        """
        self._nodes = nodes
        self._spawn = spawn
        self._tell = tell
        self._restart = restart
        self._last_words = last_words
        self._changed = changed
        self._give_up = give_up
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self, node: _Node) -> None:
        """Start the process of a node that does not run. Raises OSError."""
        node.process = self._spawn(node)
        node.died_at = None
        node.awaited_since = time.monotonic()
        self._changed()

    def watch(self) -> None:
        """Begin to watch: until ``stop``."""
        self._thread.start()

    def stop(self) -> list[str]:
        """Stop all processes with SIGTERM; SIGKILL those that do not end in STOP_TIMEOUT_S.

        Answers how those ended that ran until now and did not stop cleanly; one that SIGTERM killed had not begun to
        listen to signals.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        running = [(node, node.process) for node in self._nodes if node.process is not None and node.died_at is None]
        for _, process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for _, process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        clean = (0, -signal.SIGTERM)
        return [f"{n.name} {ending(process.returncode)}" for n, process in running if process.returncode not in clean]

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for node in self._nodes:
                self._look_at(node)

    def _look_at(self, node: _Node) -> None:
        if node.process is None:
            return
        returncode = node.process.poll()
        if returncode is None:
            self._ask_whether_ready(node)
        elif node.died_at is None:
            self._bury(node, returncode)
        elif self._restart and time.monotonic() - node.died_at >= restart_delay_s(node.ends):
            self._start_again(node)

    def _start_again(self, node: _Node) -> None:
        try:
            self.start(node)
        except OSError as error:  # no memory, or no process, to be had
            node.died_at = time.monotonic()
            node.ends += 1
            self._tell(
                f"{node.name} cannot be started: {error}; the next attempt is in {restart_delay_s(node.ends):g} s"
            )
        else:
            node.restarts += 1
            self._tell(f"{node.name} starts again (restart {node.restarts}), pid {node.pid}")

    def _ask_whether_ready(self, node: _Node) -> None:
        now = time.monotonic()
        if node.awaited_since is None or now - node.asked_at < min((now - node.awaited_since) / 10, LOOK_READY_MAX_S):
            return
        node.asked_at = now
        if is_ready(node, READY_TIMEOUT_S):
            if node.restarts:
                self._tell(f"{node.name} is ready again, {time.monotonic() - node.awaited_since:.1f} s after its start")
            node.awaited_since, node.ends, node.was_ready = None, 0, True

    def _bury(self, node: _Node, returncode: int) -> None:
        node.died_at = time.monotonic()
        node.ends += 1
        self._changed()
        end = self._last_words(node) if returncode > 0 else ""
        end = f"; its log ends: {end}" if end else ""
        if returncode > 0 and not node.was_ready and self._give_up is not None:
            self._stopping.set()
            self._give_up(f"{node.name} {ending(returncode)} before it was ready{end}")
            return
        plan = f"it starts again in {restart_delay_s(node.ends):g} s" if self._restart else "it stays down"
        self._tell(f"{node.name} {ending(returncode)}; {plan}{end}")
