"""Disks whose power can be cut: ext4 in a file, mounted through a loop device. Needs root.

A shutdown of the file system (EXT4_IOC_SHUTDOWN, no flush of its journal) loses exactly what a power cut may lose:
everything that no fsync has confirmed. Killing a process loses nothing, since the kernel still writes its pages.

A disk can also be full, or refuse writes because its file system has met an error; ``repair`` mends all three. When
this process dies, the undo lets go of its disks.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EIO
from pathlib import Path
from threading import Lock

from .undo import UndoShell, is_root

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
COMMIT_S = 300
"""Seconds after which the journal is committed unasked; ext4's default is 5. A cut that came just after such a commit
lost nothing, and so did not find nodes that had not waited for it.
"""
_TOOLS = ("mkfs.ext4", "e2fsck", "mount", "umount")
_BALLAST, _PROBE = "ballast", "probe"
_BLOCK_BYTES = 4096
_MENDED = 1
"""e2fsck's code when it found errors and corrected all of them."""


class DiskFailed(Exception):
    """A disk could not be made, mounted or cut; the message has the output of the tool."""


class NotMounted(DiskFailed):
    """The disk is not mounted now, perhaps because it is being repaired: its mountpoint is a folder of the machine."""


def why_not() -> str | None:
    """Why disks cannot be cut here; None if they can."""
    if not is_root():
        return "cutting the power of a disk needs root, to mount file systems"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"missing: {', '.join(missing)} (Debian: apt install e2fsprogs mount)" if missing else None


class LoopDisk:
    """One disk of ``size_bytes``, kept in the file ``image`` and mounted at ``mountpoint``.

    While it is not mounted, its mountpoint is a folder of the machine's own disk, which comes to no harm.
    """

    def __init__(self, image: Path, mountpoint: Path, size_bytes: int) -> None:
        self.mountpoint = mountpoint
        self._image = image
        self._size_bytes = size_bytes
        self._is_mounted = False
        self._undo: UndoShell | None = None
        self._repairing = Lock()

    def make(self) -> None:
        """Format and mount. Raises DiskFailed."""
        with self._image.open("xb") as file:
            file.truncate(self._size_bytes)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        self.mount()

    def mount(self) -> None:
        """Mount the disk, as when power returns: it has the data that were synced. Raises DiskFailed."""
        self._undo = UndoShell()
        self._undo.register("umount", "--lazy", str(self.mountpoint.absolute()))
        _run("mount", "-o", f"loop,errors=remount-ro,commit={COMMIT_S}", str(self._image), str(self.mountpoint))
        self._is_mounted = True
        if getattr(self._refusal(), "errno", None) == EIO:  # umount took it from this process, and the kernel went on
            raise DiskFailed(f"{self.mountpoint} is dead: another mount namespace (lsns -t mnt) has it mounted, too")

    def cut(self) -> None:
        """Cut the power: no write reaches the disk from now on, and every later write of a process fails. Raises
        DiskFailed.
        """
        with self._root() as fd:
            try:
                fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
            except OSError as error:
                raise DiskFailed(f"the power of {self.mountpoint} could not be cut: {error}") from error

    def fill(self) -> None:
        """Fill the disk, except for space that is already reserved by files. Raises NotMounted."""
        chunk = self._size_bytes
        with self._root() as root, open(_BALLAST, "wb", opener=_within(root)) as file:
            while chunk >= _BLOCK_BYTES:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), chunk)
                except OSError:
                    chunk //= 2

    def make_room(self) -> None:
        """Remove what ``fill`` wrote."""
        with suppress(OSError):
            (self.mountpoint / _BALLAST).unlink(missing_ok=True)

    def refuse_writes(self) -> None:
        """Report an error to the file system, which becomes read-only while processes write. Raises DiskFailed."""
        device = self.device
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        try:
            Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("1")
        except OSError as error:
            raise DiskFailed(f"{self.mountpoint} cannot be made read-only: {error}") from error

    @property
    def device(self) -> int:
        """The ``st_dev`` of the files on it. Raises DiskFailed."""
        with self._root() as root:
            return os.fstat(root).st_dev

    @property
    def is_well(self) -> bool:
        """Whether it accepts writes: it is mounted, and has power and no error."""
        return self._refusal() is None

    def _refusal(self) -> Exception | None:
        """Why it does not accept a write; None if it does."""
        try:
            with self._root() as root, open(_PROBE, "wb", opener=_within(root)):
                os.unlink(_PROBE, dir_fd=root)
        except (DiskFailed, OSError) as error:
            return error
        return None

    def repair(self) -> None:
        """Restore power and room, and clear the error. No process may have an open file on it. Raises DiskFailed."""
        with self._repairing:
            if not self.is_well:
                self.unmount()
                _run("e2fsck", "-p", "-f", str(self._image), worst=_MENDED)
                self.mount()
            self.make_room()

    @contextmanager
    def _root(self) -> Iterator[int]:
        """A descriptor of its own root folder, which keeps it mounted. Raises NotMounted, and DiskFailed."""
        try:
            fd = os.open(self.mountpoint, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise DiskFailed(f"{self.mountpoint} cannot be opened: {error}") from error
        try:
            if os.fstat(fd).st_dev == self.mountpoint.parent.stat().st_dev:
                raise NotMounted(f"no disk is mounted at {self.mountpoint}")
            yield fd
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Unmount, once no process has an open file on it. Raises DiskFailed."""
        if self._is_mounted:
            _run("umount", str(self.mountpoint))
            self._is_mounted = False
        if self._undo is not None:
            self._undo.close()


def _within(folder: int) -> Callable[[str, int], int]:
    """An opener of files in the folder of this descriptor."""
    return lambda name, flags: os.open(name, flags, dir_fd=folder)


def _run(*command: str, worst: int = 0) -> None:
    """Run a tool. ``worst``: the highest exit code that is accepted."""
    # A list of words, no shell.
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # nosec B603
    if done.returncode > worst:
        raise DiskFailed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
