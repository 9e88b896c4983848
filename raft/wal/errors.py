"""Why a node does not start with the disk that it finds, and what its operator can do about it."""

from pathlib import Path

HOW_TO_REBUILD = (
    "Starting would silently lose what this node promised to keep. While the other nodes run, move its data folder"
    " aside with `stockade rebuild --data DIR` (it deletes nothing) and start the node: it joins again with an empty"
    " disk and copies everything from them."
)


class DiskRefused(Exception):
    """This disk cannot be used: ``path`` is the file, ``fault`` what is wrong with it."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path}: {fault}. {HOW_TO_REBUILD}")
        self.path = path
        self.fault = fault


class WalCorrupt(DiskRefused):
    """Records that were on disk are damaged or missing; going on would silently lose them."""

    def __init__(self, path: Path, position: int, explanation: str) -> None:
        super().__init__(path, f"position {position}: {explanation}")
        self.position = position


class WalLocked(Exception):
    """Another process uses this data folder."""


class WalFailed(Exception):
    """The log takes no more records: an earlier write or fdatasync failed, or the log was closed."""
