"""The process between `stockade hold` or `own` and COMMAND: no process that COMMAND started outlives it.

The file is run by its path and imports the standard library alone, so that it starts fast. On Linux this process is the
subreaper of all processes that COMMAND starts: one that leaves COMMAND's session or process group, or loses its parent,
stays a descendant of this process, which finds and ends it with the others. Other systems have no subreapers: there
this process ends COMMAND's process group.

It takes orders from a socket, one byte each: a signal number, which it sends to COMMAND's process group, or 0, at which
it ends all processes. At end of file (its parent died, perhaps by SIGKILL) it ends them at once. Its exit code is
COMMAND's, or 128 + the number of the signal that ended COMMAND. It must never start any other program than COMMAND.

A signal to end does not end it: a service manager sends SIGTERM to each process of a service, and the parent passes it
on to COMMAND.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

END = 0
NOT_RUN = 127
KILLED_WAIT_S = 10.0
"""How long to wait after SIGKILL. A process that is left then is stuck in the kernel (a dead disk); a message names it.
"""

_SIGNALS_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KILL_AGAIN_S = 0.05


class ProcessTree:
    """COMMAND and all its descendants. ``code``: COMMAND's exit code; None while COMMAND runs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._woken = _wakes_at_a_death()
        for number in _SIGNALS_TO_END:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)  # COMMAND would inherit SIG_IGN
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._command = subprocess.Popen(  # a list of words, no shell  # noqa: S603  # nosec B603
            command,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no threads here
        )
        self.code: int | None = None
        self.is_gone: bool = False
        """Whether no descendant of this process is left; orphans count as descendants."""

    def wait(self, seconds: float | None, control: int | None = None) -> bytes | None:
        """Wait for an order from ``control``, the end of a child, or ``seconds`` (None: no timeout). Returns the order;
        b"" at end of file; None if there is none.
        """
        watched = [self._woken.fileno()] + ([] if control is None else [control])
        ready, _, _ = select.select(watched, [], [], seconds)
        order = None if control is None or control not in ready else os.read(control, 1)
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        self._reap()
        return order

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._command.pid:
                    code = os.waitstatus_to_exitcode(status)
                    self.code = code if code >= 0 else 128 - code
        self.is_gone = True

    def signal_group(self, number: int) -> None:
        """Signal COMMAND's process group: COMMAND and the processes that did not leave the group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._command.pid, number)

    def end(self, grace_s: float) -> list[int]:
        """End all processes: SIGTERM, ``grace_s`` seconds later SIGKILL. Returns the pids that are left."""
        deadline = time.monotonic() + grace_s
        if not self.is_gone and grace_s > 0:
            self._signal_all(signal.SIGTERM)
        while not self.is_gone and (left := deadline - time.monotonic()) > 0:
            self.wait(left)
        deadline = time.monotonic() + KILLED_WAIT_S
        self.signal_group(signal.SIGKILL)  # without a subreaper no other process can be found
        while not self.is_gone and time.monotonic() < deadline:
            self._signal_all(signal.SIGKILL)  # repeated: a process that is being started may not be listed yet
            self.wait(_KILL_AGAIN_S)
        return [] if self.is_gone else list(descendants(os.getpid()))

    def _signal_all(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def descendants(ancestor: int) -> Iterator[int]:
    """The pids of all present descendants of a process; none without /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_bytes().rpartition(b")")[2].split()[1])  # the name before it may have any character
            children.setdefault(parent, []).append(int(stat.parent.name))
    line = [ancestor]
    for pid in line:
        yield from children.get(pid, ())
        line += children.get(pid, ())


def _wakes_at_a_death() -> socket.socket:
    """A socket that becomes readable after each SIGCHLD."""
    woken, waking = socket.socketpair()
    woken.setblocking(False)
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.detach(), warn_on_full_buffer=False)
    return woken


def _die_with_parent() -> None:
    """Have the kernel kill COMMAND when this process ends, even by SIGKILL. Runs in the child, before COMMAND."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def _obey(tree: ProcessTree, control: int, grace_s: float) -> float:
    """Carry out orders until COMMAND has ended or must end. Returns the seconds that the remaining processes get."""
    while tree.code is None:
        order = tree.wait(None, control)
        if order == b"":
            return 0.0
        if order == bytes([END]):
            return grace_s
        if order is not None:
            tree.signal_group(order[0])
    return grace_s


def main(control: int, grace_s: float, command: Sequence[str]) -> int:
    """Run COMMAND under orders from the descriptor ``control``, and end all that it started; return the exit code."""
    try:
        tree = ProcessTree(command)
    except OSError as error:
        print(f"Error: {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return NOT_RUN
    left = tree.end(_obey(tree, control, grace_s))
    if left:
        print(f"Error: not even SIGKILL ended {', '.join(map(str, left))}", file=sys.stderr)  # noqa: T201
    return tree.code if tree.code is not None else 128 + signal.SIGKILL


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
