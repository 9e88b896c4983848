"""Undoes what was broken on this machine, also when the process that broke it is killed.

A shell reads commands that undo things from a pipe, one on each line. When the pipe closes, also because this process
was killed, it runs all of them, the latest first. So a dead harness leaves nothing behind: no namespace, mount, packet
rule, or stopped process. Every command must be harmless if there is nothing to undo.
"""

import os
import shlex
import subprocess
from pathlib import Path

_SHELL = 'undo=; while IFS= read -r line; do undo="$line\n$undo"; done; eval "$undo"'
CLOSE_TIMEOUT_S = 30.0


class UndoShell:
    """A shell that undoes one fault when it is closed, or when this process ends."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C and a terminal that closes must not take it along.
        self._shell = subprocess.Popen(  # a shell it is; words are quoted  # noqa: S603  # nosec B603
            ["/bin/sh", "-c", _SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def register(self, *command: str) -> None:
        """Have the shell run this command at the end. The command is in the pipe to the shell when this returns."""
        self.register_line(shlex.join(command))

    def register_line(self, line: str) -> None:
        """As ``register``, for a line of shell code."""
        assert "\n" not in line and self._shell.stdin is not None
        self._shell.stdin.write(line.encode() + b"\n")
        self._shell.stdin.flush()

    def close(self) -> None:
        """Undo everything; return when that is done. Safe to call again."""
        if self._shell.stdin is not None and not self._shell.stdin.closed:
            self._shell.stdin.close()
            self._shell.wait(CLOSE_TIMEOUT_S)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    try:
        return _state(pid) in "Tt"
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or only a zombie entry for its parent."""
    try:
        return _state(pid) in "ZX"
    except OSError:
        return True


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]


def is_root() -> bool:
    """Whether this process runs as root."""
    return os.geteuid() == 0
