"""The errors with which a node refuses its disk, or its log fails; their texts say what an operator can do."""

from pathlib import Path

HOW_TO_REBUILD = (
    "Starting would silently lose what this node promised to keep. While the other nodes run, move its data folder"
    " aside with `stockade rebuild --data DIR` (it deletes nothing) and start the node: it joins again with an empty"
    " disk and copies everything from them."
)


INSTALL_NEWER = (
    "Nothing is damaged: start the software again that wrote it, or a newer one. If this node shall run the older"
    " software for good, and the cluster's feature level allows it, move its data folder aside with"
    " `stockade rebuild --data DIR` (it deletes nothing): it joins again with an empty disk."
)


class DiskRefused(Exception):
    """This disk cannot be used: ``path`` is the file, ``fault`` what is wrong with it, ``advice`` what to do."""

    def __init__(self, path: Path, fault: str, advice: str = HOW_TO_REBUILD) -> None:
        super().__init__(f"{path}: {fault}. {advice}")
        self.path = path
        self.fault = fault


class NewerDisk(DiskRefused):
    """Newer software wrote the file: its format's version, or its feature level, is one that this software lacks."""

    def __init__(self, path: Path, version: int, known: int, what: str = "version") -> None:
        super().__init__(
            path, f"newer software wrote it ({what} {version}; this software knows {known})", INSTALL_NEWER
        )


class WalCorrupt(DiskRefused):
    """Records of the log that were on disk are damaged or missing; to go on would lose them silently."""

    def __init__(self, path: Path, position: int, explanation: str) -> None:
        super().__init__(path, f"position {position}: {explanation}")
        self.position = position


class AnotherHistory(DiskRefused):
    """The log of a group here is not the beginning of its leader's, whose entries were about to follow.

    Raft takes entries of the same index and term for the same, which they are within one cluster. A disk of another
    cluster that has the same ids would pass for a copy; but the members in its log are others.
    """

    def __init__(self, group_id: int) -> None:
        fault = "its log is not the beginning of the leader's: it is of a cluster that was founded before, or elsewhere"
        super().__init__(Path("groups") / f"{group_id:016x}", fault)


class WalLocked(Exception):
    """Another process uses this data folder."""


class WalFailed(Exception):
    """The log takes no more records: an earlier write or fdatasync failed, or the log was closed."""


class WalStalled(WalFailed):
    """The disk does not end a write, and reports no error. The thread that writes still waits for it."""

    def __init__(self, path: Path, stall_s: float) -> None:
        super().__init__(
            f"{path}: the disk has not ended a write for {stall_s:.0f} s. Look at the disk and the kernel's log before"
            " you start the node again; another node leads meanwhile."
        )
