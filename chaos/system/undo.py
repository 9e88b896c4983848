"""Undoes what was broken on this machine, also when the process that broke it is killed.

A shell holds the other end of a pipe. It is told, line by line, how each thing is undone; when the pipe closes,
however that comes, it does all of it, the latest first. So nothing is left of a harness that died: no namespace, no
mount, no rule, no process that stands still. Every command must do no harm when the thing is gone already.
"""

import os
import shlex
import subprocess
from pathlib import Path

_SHELL = 'undo=; while IFS= read -r line; do undo="$line\n$undo"; done; eval "$undo"'
CLOSE_TIMEOUT_S = 30.0


class Warden:
    """One shell that undoes one fault: when it is closed, or when this process has ended."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C and a terminal that closes must not take it along.
        self._shell = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def promise(self, *command: str) -> None:
        """Run this command at the end. It is known to the shell when this returns."""
        self.promise_line(shlex.join(command))

    def promise_line(self, line: str) -> None:
        """As ``promise``, of one line of shell."""
        assert "\n" not in line and self._shell.stdin is not None
        self._shell.stdin.write(line.encode() + b"\n")
        self._shell.stdin.flush()

    def close(self) -> None:
        """Undo everything now; returns when that is done. More than once does no harm."""
        if self._shell.stdin is not None and not self._shell.stdin.closed:
            self._shell.stdin.close()
            self._shell.wait(CLOSE_TIMEOUT_S)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal: it is there and does nothing."""
    try:
        return _state(pid) in "Tt"
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or only what is left of it for its parent."""
    try:
        return _state(pid) in "ZX"
    except OSError:
        return True


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]


def is_root() -> bool:
    """Whether this process may do what only root may."""
    return os.geteuid() == 0
