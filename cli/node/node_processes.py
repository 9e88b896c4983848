"""Runs the nodes of a machine: one process each, supervised."""

import errno
import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...cluster.config import ConfigError, NodeConfig
from ...cluster.machines import node_name
from ...partition.log.fsutil import has_no_inode, why_refused
from ..service.notify import ServiceManager
from .supervisor import (
    READY_TIMEOUT_S,
    NodeProcess,
    Stopping,
    Supervisor,
    cannot_listen,
    is_ready,
    probing,
    with_parent,
)

WAL = "wal"
"""A folder that the data folder of each node has once the node has run."""
FROM_ONE_TO_MANY = (
    "give the machine another node_id, data_dir and ports, let it join the cluster, and then remove that node"
)
PASSED_ON = (signal.SIGHUP, signal.SIGUSR1)
"""Signals that a machine sends to its nodes. A node's process starts with them blocked, and unblocks them when it has
its handlers; until then one that comes waits, where it would end the process.
"""
PARENT_S = 1.0
"""Longest pause, in seconds, between two checks that the parent process is still there."""

_log = logging.getLogger("stockade")


def check_data(config: NodeConfig) -> None:
    """Raises ConfigError when the data folder belongs to a single node and the configuration describes a machine of
    several, or the reverse: the node would not find its data, and would begin anew in an empty folder beside them. Also
    when the folder cannot be looked into.
    """
    data, first = Path(config.data_dir), node_name(config.node_id, 1)
    try:
        if config.processes is not None and (data / WAL).exists():
            raise ConfigError([f"data_dir: {data} has the data of a single node; {FROM_ONE_TO_MANY}"])
        if config.processes is None and (data / first / WAL).exists():
            raise ConfigError([f"data_dir: {data} has the data of a machine of several nodes ({first}): say processes"])
    except OSError as error:
        raise ConfigError([f"data_dir: {data}: {error.strerror}"]) from error


def left_over(config: NodeConfig) -> list[str]:
    """Ids of the nodes of this machine that have data here, and that the configuration no longer starts; ascending."""
    if config.processes is None:
        return []
    started = {node.node_id for node in config.nodes()}
    found = {path.parent.name for path in Path(config.data_dir).glob(f"{config.node_id}.*/{WAL}")}
    return sorted(found - started)


class NodeProcesses:
    """The node processes of one machine. ``command``, followed by the number of a node, runs that node."""

    def __init__(self, config: NodeConfig, command: Sequence[str], manager: ServiceManager) -> None:
        self._config = config
        self._command = command
        self._manager = manager
        self._stopping = Stopping()
        self._faults: list[str] = []
        self._starting: list[NodeProcess] = []
        """The nodes that have not answered yet, while the machine starts."""

    def run(self, parent: int | None) -> list[str]:
        """Run the nodes until a signal, or until one of them cannot start. Returns why the machine failed; empty if it
        did not.

        ``parent``: the process that started the machine, which stops when that is gone; None: it does not.
        """
        nodes = self._config.nodes()
        if faults := in_use(nodes):
            return faults
        if names := left_over(self._config):
            _log.warning("not started any more, though they may hold replicas: %s", ", ".join(names))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._stopping.order())
        section = self._config.http_tls
        tls = None if section is None else probing(section.certificate, section.key)
        processes = [NodeProcess(node.node_id, node.http, tls=tls) for node in nodes]
        self._starting = list(processes)
        signal.signal(signal.SIGUSR1, lambda *_: _pass_on(signal.SIGUSR1, processes))
        signal.signal(signal.SIGHUP, lambda *_: self._reload(processes))
        supervisor = Supervisor(processes, self._spawn, _log.warning, give_up=self._give_up)
        try:
            for process in processes:
                supervisor.start(process)
        except OSError as error:
            return [f"a process cannot be started: {error}", *supervisor.stop()]
        running = ", ".join(f"{process.name} (pid {process.pid})" for process in processes)
        _log.info("machine %s runs %s", self._config.node_id, running)
        supervisor.watch()
        self._wait(parent)
        _log.info("stopping the nodes of machine %s", self._config.node_id)
        self._manager.stopping()
        ended = supervisor.stop()
        return self._faults + ended

    def _spawn(self, process: NodeProcess) -> "subprocess.Popen[bytes]":
        words = [*self._command, process.name.rpartition(".")[2]]
        # A session of its own: Ctrl-C in the terminal reaches only this process, which then stops the nodes.
        # A list of words, no shell.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            return subprocess.Popen(  # noqa: S603  # nosec B603
                words, env=with_parent(os.environ), stdin=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _give_up(self, reason: str) -> None:
        self._faults.append(reason)
        self._stopping.order()

    def _reload(self, processes: Sequence[NodeProcess]) -> None:
        _pass_on(signal.SIGHUP, processes)
        if not self._starting:  # the machine is still to say that it is ready
            self._manager.reloading()
            self._manager.ready(self._status)

    def _wait(self, parent: int | None) -> None:
        """Wait for the order to stop, or for the end of the ``parent``. Meanwhile send the service manager its watchdog
        messages, and tell it once when all nodes answer.
        """
        starting, has_answered = self._starting, False
        every_s = min(PARENT_S, self._manager.alive_every_s or PARENT_S)
        while not self._stopping.wait(0.0 if has_answered else every_s):
            self._manager.alive()
            if parent is not None and os.getppid() != parent:
                _log.warning("the process that started this machine is gone: stopping")
                return
            # One node at a time: several that hang would keep the watchdog, and the order to stop, waiting.
            has_answered = bool(starting) and is_ready(starting[0], READY_TIMEOUT_S, path="/healthz")
            if has_answered:
                del starting[0]
                if not starting:
                    self._manager.ready(self._status)

    @property
    def _status(self) -> str:
        return f"machine {self._config.node_id} runs {self._config.processes} nodes"


def _pass_on(number: signal.Signals, processes: Sequence[NodeProcess]) -> None:
    for node in processes:
        if node.process is not None and node.pid is not None:
            node.process.send_signal(number)


def in_use(nodes: Sequence[NodeConfig]) -> list[str]:
    """For each address at which one of these nodes cannot listen: the setting, the address and the reason."""
    addresses = [(f"http of {node.node_id}", node.http) for node in nodes]
    addresses += [
        (f"http_tls.plain_listen of {node.node_id}", node.http_tls.plain_listen)
        for node in nodes
        if node.http_tls is not None and node.http_tls.plain_listen is not None
    ]
    addresses += [(f"raft_listen of {node.node_id}", node.raft_listen) for node in nodes]
    return [f"{what}: {address}: {why}" for what, address in addresses if (why := cannot_listen(address)) is not None]


def cannot_write(folder: Path) -> str | None:
    """Why a process of this user cannot create files in ``folder``, which need not exist yet; None if it can."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return f"{there} is not a directory"
    if not os.access(there, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(there).f_flag & os.ST_RDONLY
        return f"{there}: {os.strerror(errno.EROFS if is_read_only else errno.EACCES)}"
    try:  # a file without a name: os.access knows neither of errors that made the disk read-only nor of free inodes
        os.close(os.open(there, os.O_TMPFILE | os.O_WRONLY))
    except OSError as error:
        # For other reasons: on a full disk a node starts with its reserve, and not every system has such files.
        if error.errno in {errno.EROFS, errno.EIO} or has_no_inode(there):
            return why_refused(error)
    return None
