"""Small disks for tests that fill them; only root may mount them."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes, on a block device in a file: as a disk has it, blocks are freed by a commit."""
    image = place.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)), check=True, capture_output=True)
    place.mkdir()
    subprocess.run(("mount", "-o", "loop", str(image), str(place)), check=True)
    try:
        yield place
    finally:
        subprocess.run(("umount", "-l", str(place)), check=True)


@contextmanager
def cluster_on_disks(data: Path, sizes: Sequence[int], settings: str) -> Iterator[LocalCluster]:
    """A node for each of these sizes, with a disk of so many bytes. A node that ends is not started again."""
    data.mkdir()
    with ExitStack() as disks:
        for number, size in enumerate(sizes, 1):
            disks.enter_context(small_disk(data / f"n{number}", size))
        with LocalCluster(data, len(sizes), port_base=0, restart=False, settings=settings) as running:
            yield running


def fill(disk: Path) -> Path:
    """Take all the room that is left, by a file that is returned."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        for piece in (MIB, 4096):
            try:
                while file.write(bytes(piece)) == piece:
                    pass
            except OSError:
                if piece == 4096:
                    raise
    return ballast
