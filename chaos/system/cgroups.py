"""Control groups: bounds on memory, processor and disk for chosen processes. Version 1 or 2, as the kernel has.

Needs root. A group is removed, and its processes go back to where they came from, on closing and by the undo.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from .undo import UndoShell, is_root

ROOT = Path("/sys/fs/cgroup")
_numbers = count(1)
CPU_PERIOD_US = 100_000


class CgroupFailed(OSError):
    """The kernel refused a bound; the message says which."""


def why_not(controller: str) -> str | None:
    """Why processes cannot be bounded by ``controller`` (memory, cpu, blkio) here; None if they can."""
    if not is_root():
        return f"bounding {controller} needs root"
    if _folder(controller) is None:
        return f"this kernel has no cgroup controller for {controller}, or it is not mounted in {ROOT}"
    return None


def is_version_1(controller: str) -> bool:
    """Whether the controller has a hierarchy of its own, as in version 1."""
    return (ROOT / controller / "cgroup.procs").exists()


def _folder(controller: str) -> Path | None:
    """Where groups of the controller are made."""
    if is_version_1(controller):
        return ROOT / controller
    names = ROOT / "cgroup.controllers"
    wanted = "io" if controller == "blkio" else controller
    return ROOT if names.exists() and wanted in names.read_text().split() else None


class Cgroup:
    """A control group with limits; closing it removes it."""

    def __init__(self, controller: str, version_1: Mapping[str, str], version_2: Mapping[str, str]) -> None:
        """``version_1``, ``version_2``: the values to write into the group's files, by name. Raises CgroupFailed."""
        parent = _folder(controller)
        if parent is None:
            raise CgroupFailed(str(why_not(controller)))
        self._controller = controller
        self._is_version_1 = is_version_1(controller)
        self.path: Path = parent / f"stockade-{os.getpid()}-{next(_numbers)}"
        self._undo = UndoShell()
        self._undo.register("rmdir", str(self.path))
        try:
            self._enable(parent)
            self.path.mkdir()
            for name, value in (version_1 if self._is_version_1 else version_2).items():
                (self.path / name).write_text(value)
        except OSError as error:
            self.close()
            raise CgroupFailed(f"{self.path}: {error}") from error

    def add(self, pids: Sequence[int]) -> None:
        """Bound these processes from now on. Raises CgroupFailed."""
        for pid in pids:
            before = str(self._group_of(pid) / "cgroup.procs")  # systemd's names have backslashes: app-foo\x2dbar.scope
            self._undo.register_line(f"echo {pid} > {shlex.quote(before)}")
            try:
                (self.path / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                raise CgroupFailed(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Move the processes back to their former groups, and remove this one. Raises CgroupFailed if some remain."""
        self._undo.close()
        left = self.path / "cgroup.procs"
        if left.exists() and (pids := left.read_text().split()):
            raise CgroupFailed(f"{self.path}: not moved back to where it came from: process {', '.join(pids)}")

    def _enable(self, parent: Path) -> None:
        if not self._is_version_1:
            wanted = "io" if self._controller == "blkio" else self._controller
            (parent / "cgroup.subtree_control").write_text(f"+{wanted}")

    def _group_of(self, pid: int) -> Path:
        """The present group of the process."""
        base = ROOT / self._controller if self._is_version_1 else ROOT
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if self._controller in controllers.split(",") or (not self._is_version_1 and not controllers):
                return base / path.lstrip("/")
        return base


def memory(bytes_max: int) -> Cgroup:
    """A group whose processes may use ``bytes_max`` of memory together; the kernel kills one that asks for more."""
    return Cgroup("memory", {"memory.limit_in_bytes": str(bytes_max)}, {"memory.max": str(bytes_max)})


def cpu(share: float) -> Cgroup:
    """A group whose processes get at most ``share`` (0 to 1) of one processor together."""
    quota = str(int(CPU_PERIOD_US * share))
    version_1 = {"cpu.cfs_period_us": str(CPU_PERIOD_US), "cpu.cfs_quota_us": quota}
    return Cgroup("cpu", version_1, {"cpu.max": f"{quota} {CPU_PERIOD_US}"})


class SlowDevice:
    """Limits the bytes a second that some processes can write to a block device.

    In version 1 the kernel itself writes pages back, and only the bounds of the root group apply to it: so there the
    device as a whole is slow, for every writer.
    """

    def __init__(self, device: int, bytes_per_s: int, pids: Sequence[int]) -> None:
        """``device``: the ``st_dev`` of the files on it. Raises CgroupFailed."""
        number = f"{os.major(device)}:{os.minor(device)}"
        self._undo: UndoShell | Cgroup
        if is_version_1("blkio"):
            file = ROOT / "blkio" / "blkio.throttle.write_bps_device"
            self._undo = UndoShell()
            self._undo.register_line(f"echo {number} 0 > {file}")
            try:
                file.write_text(f"{number} {bytes_per_s}")
            except OSError as error:
                raise CgroupFailed(f"{file}: {error}") from error
        else:
            self._undo = Cgroup("blkio", {}, {"io.max": f"{number} wbps={bytes_per_s}"})
            self._undo.add(pids)

    def close(self) -> None:
        """Remove the limit."""
        self._undo.close()
