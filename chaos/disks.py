"""Disks whose power can be cut: ext4 in a file, mounted through a loop device. Needs root.

A shutdown of the file system (EXT4_IOC_SHUTDOWN, no flush of its journal) loses exactly what a power cut may lose:
everything that no fsync has confirmed. Killing a process loses nothing, since the kernel still writes its pages.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_TOOLS = ("mkfs.ext4", "mount", "umount")


class DiskFailed(Exception):
    """A disk could not be made, mounted or cut; the message says what the tool said."""


def why_not() -> str | None:
    """Why disks cannot be cut here; None if they can."""
    if os.geteuid() != 0:
        return "cutting the power of a disk needs root, to mount file systems"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"missing: {', '.join(missing)} (Debian: apt install e2fsprogs mount)" if missing else None


class LoopDisk:
    """One disk of ``size_bytes``, kept in the file ``image`` and mounted at ``mountpoint``."""

    def __init__(self, image: Path, mountpoint: Path, size_bytes: int) -> None:
        self._image = image
        self._mountpoint = mountpoint
        self._size_bytes = size_bytes
        self._is_mounted = False

    def make(self) -> None:
        """Format and mount. Raises DiskFailed."""
        with self._image.open("xb") as file:
            file.truncate(self._size_bytes)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mountpoint.mkdir(parents=True, exist_ok=True)
        self.mount()

    def mount(self) -> None:
        """The power is back: what was synced is there. Raises DiskFailed."""
        _run("mount", "-o", "loop", str(self._image), str(self._mountpoint))
        self._is_mounted = True

    def cut(self) -> None:
        """From this moment on nothing reaches the disk; every later write of a process fails."""
        fd = os.open(self._mountpoint, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        except OSError as error:
            raise DiskFailed(f"the power of {self._mountpoint} could not be cut: {error}") from error
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Let go, when no process has a file open there. Raises DiskFailed."""
        if self._is_mounted:
            _run("umount", str(self._mountpoint))
            self._is_mounted = False


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise DiskFailed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
