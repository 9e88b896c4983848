"""Keeps the node processes of one machine running: restarts one that ended, says why it ended, stops all together.

`stockade serve` with `processes` and `stockade cluster` both use it.
"""

import http.client
import logging
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
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...cluster.config import parse_address

RESTART_AFTER_S = 2.0
"""Seconds from the end of a process to its restart. The delay doubles with each further end, up to RESTART_AFTER_MAX_S,
until the process has been ready again.
"""
RESTART_AFTER_MAX_S = 30.0
READY_TIMEOUT_S = 0.5
"""How long the supervisor waits for a node to answer whether it is ready; meanwhile it looks at no other node."""
ANSWER_BYTES_MAX = 65536
"""Bytes of a node's answer that are shown at most."""
LOOK_S = 0.1
"""Seconds between two looks at the processes."""
LOOK_READY_MAX_S = 1.0
"""Longest pause between two questions whether a node is ready; less at first: a tenth of the time since its start."""
PARENT = "_STOCKADE_PARENT"
"""The environment variable with the process id of the process that started a node `--with-parent`: the node cannot find
out by itself if that is gone already.
"""
STOP_TIMEOUT_S = 25.0
"""A node that has not ended this long after SIGTERM is killed."""


_log = logging.getLogger("stockade")


@dataclass
class NodeProcess:
    """One node of this machine, the address (host:port) of its HTTP interface, and its process.

    ``tls``: the TLS context (``probing``) with which the supervisor asks whether the node is ready; None: plain HTTP.
    """

    name: str
    http: str
    tls: ssl.SSLContext | None = field(default=None, kw_only=True)
    process: "subprocess.Popen[bytes] | None" = field(default=None, kw_only=True)
    died_at: float | None = field(default=None, kw_only=True)
    restarts: int = field(default=0, kw_only=True)
    ends: int = field(default=0, kw_only=True)
    """How often the process has ended since it was last ready."""
    awaited_since: float | None = field(default=None, kw_only=True)
    """When the process was started; None once it is ready."""
    asked_at: float = field(default=0.0, kw_only=True)
    """When the supervisor last asked the node whether it is ready."""
    was_ready: bool = field(default=False, kw_only=True)
    """Whether the node has ever been ready under this supervisor."""

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self.http}"

    @property
    def pid(self) -> int | None:
        """Process id; None while the node does not run."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None


_Node = TypeVar("_Node", bound=NodeProcess)


def with_parent(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a node that ends when this process is gone."""
    return {**environ, PARENT: str(os.getpid())}


def parent_of(environ: MutableMapping[str, str]) -> int:
    """The process id of the process that started this one, also if that is gone. Removes it from ``environ``."""
    return int(environ.pop(PARENT, os.getppid()))


def ending(returncode: int) -> str:
    """Describe the end of a process for the log: its exit code, or the signal that killed it."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


def restart_delay_s(ends: int) -> float:
    """Seconds from the end of a process to its restart, when it has ended ``ends`` times since it was last ready."""
    doublings = min(max(ends - 1, 0), 64)  # more doublings change nothing, and would overflow a float
    return min(RESTART_AFTER_S * 2.0**doublings, RESTART_AFTER_MAX_S)


_DIRECT = urllib.request.ProxyHandler({})
"""Uses no proxy: one that the environment names is for other machines."""


def probing(certificate: str, key: str) -> ssl.SSLContext:
    """The TLS context with which this machine asks its own node whether it is ready. It shows the node's certificate,
    in case the node requires one. It verifies nothing: the request has no secret, and goes to this machine.
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
    """What a node of this machine answers at ``path`` (a health path) if its status is not 200; the reason, if it does
    not answer; None if the status is 200.
    """
    try:
        return _answered(node, timeout_s, path)
    except (OSError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        why = (isinstance(cause, OSError) and cause.strerror) or cause
        return f"{node.url}{path} does not answer ({why}): does the node run?"


def _answered(node: NodeProcess, timeout_s: float, path: str) -> str | None:
    """What the node answers, as in ``why_not_ready``. Raises OSError or HTTPException where its answer does not come,
    or breaks off.
    """
    opener = urllib.request.build_opener(_DIRECT, urllib.request.HTTPSHandler(context=node.tls))
    try:
        with opener.open(f"{node.url}{path}", timeout=timeout_s) as answer:
            return None if answer.status == 200 else f"{answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code}: {error.read(ANSWER_BYTES_MAX).decode(errors='replace')}"


def cannot_listen(address: str) -> str | None:
    """Why a node cannot listen at this address (host:port) now; None if it can."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno is not None and error.errno > 0:
            return os.strerror(error.errno)
        return str(error.strerror or error).partition(" (")[0]  # the resolver's errors have numbers of their own
    return None


class Stopping:
    """The order to stop this process, which a signal handler may give at any moment. It is no `threading.Event`, which
    has a lock: if the thread that the handler interrupts holds that lock, the handler would wait for ever.

    ``wait`` has a timeout, because Python runs no handler during it for a signal that came just before, or that another
    thread received.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[None] = queue.SimpleQueue()

    def order(self) -> None:
        """Order the process to stop."""
        self._orders.put(None)

    def wait(self, timeout_s: float = 1.0) -> bool:
        """Take an order, or wait for one. Returns False if none has come in ``timeout_s``."""
        try:
            self._orders.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True


class Supervisor(Generic[_Node]):
    """Watches the processes of ``nodes``, a list that may grow.

    ``spawn`` starts the process of a node that does not run; ``tell`` takes a line for the operator; ``last_words``
    gives the end of the log of a node that ended with a positive exit code, for that line; ``changed`` is called after
    each start and each end of a process.
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
        """``restart`` False: a process that ended stays down. ``give_up`` is called with the reason when a node ends
        with a positive exit code before it was ever ready, that is, it cannot start; from then on the supervisor starts
        no process. Without ``give_up`` that node is started again like any other.
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
        with suppress(OSError):
            self._changed()

    def watch(self) -> None:
        """Watch the processes in a thread, until ``stop``."""
        self._thread.start()

    def stop(self) -> list[str]:
        """Stop all processes with SIGTERM; SIGKILL those that do not end in STOP_TIMEOUT_S.

        Returns a line for each process that ran until now and did not stop cleanly. An end by SIGTERM itself is clean:
        the process had not installed its signal handlers yet.
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

    def _say(self, line: str) -> None:
        with suppress(OSError):
            self._tell(line)

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for node in self._nodes:
                try:
                    self._look_at(node)
                except Exception:  # the other nodes, and this one, are still to be started again
                    _log.exception("a look at %s failed; the supervisor goes on", node.name)

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
        except OSError as error:  # the system has no memory or no process left
            node.died_at = time.monotonic()
            node.ends += 1
            self._say(
                f"{node.name} cannot be started: {error}; the next attempt is in {restart_delay_s(node.ends):g} s"
            )
        else:
            node.restarts += 1
            self._say(f"{node.name} starts again (restart {node.restarts}), pid {node.pid}")

    def _ask_whether_ready(self, node: _Node) -> None:
        now = time.monotonic()
        if node.awaited_since is None or now - node.asked_at < min((now - node.awaited_since) / 10, LOOK_READY_MAX_S):
            return
        node.asked_at = now
        if is_ready(node, READY_TIMEOUT_S):
            if node.restarts:
                self._say(f"{node.name} is ready again, {time.monotonic() - node.awaited_since:.1f} s after its start")
            node.awaited_since, node.ends, node.was_ready = None, 0, True

    def _bury(self, node: _Node, returncode: int) -> None:
        node.died_at = time.monotonic()
        node.ends += 1
        end = ""
        with suppress(OSError):
            self._changed()
        with suppress(OSError):
            end = self._last_words(node) if returncode > 0 else ""
        end = f"; its log ends: {end}" if end else ""
        if returncode > 0 and not node.was_ready and self._give_up is not None:
            self._stopping.set()
            self._give_up(f"{node.name} {ending(returncode)} before it was ready{end}")
            return
        plan = f"it starts again in {restart_delay_s(node.ends):g} s" if self._restart else "it stays down"
        self._say(f"{node.name} {ending(returncode)}; {plan}{end}")
