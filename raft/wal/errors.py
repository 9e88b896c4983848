"""Why a node does not start with the disk that it finds, and what its owner can do about it."""

from pathlib import Path

HOW_TO_REBUILD = (
    "Starting would silently lose what this node promised to keep. While the other nodes run, move its data folder"
    " aside with `stockade rebuild --data DIR` (it deletes nothing) and start the node: it joins again with an empty"
    " disk and copies everything from them."
)


class DiskRefused(Exception):
    """What is on this disk cannot be used: ``path`` is the file, ``fault`` what is wrong with it."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path}: {fault}. {HOW_TO_REBUILD}")
        self.path = path
        self.fault = fault
