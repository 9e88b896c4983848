"""The workload of the demo as numbers: which file feeds which partition, which record has which bytes, and
who may go how far.

Pure, but for ``load_folder``, which reads the files once.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

FILES_MAX = 256
"""Files of a folder that become partitions; more are refused."""
FILE_BYTES_MAX = 256 * 1024 * 1024
"""Largest file taken: all of them are held in memory to compare with."""
LINE_BYTES_MAX = 64 * 1024
"""Longest line, so that a batch of 100 fits below the topic's ``max_batch_bytes`` of 16 MiB."""

_PAPERS = {"LICENSE", "LICENCE", "COPYING", "NOTICE", "README", "CITATION"}


class DataError(ValueError):
    """The folder cannot feed the demo; the message says why in one line."""


class Stream(msgspec.Struct, frozen=True):
    """One file and its partition. The expected log is its lines, round after round, ``records`` in all."""

    name: str
    partition: int
    lines: Sequence[bytes]
    records: int

    def line(self, index: int) -> bytes:
        """Bytes of record ``index`` of the expected log."""
        return self.lines[index % len(self.lines)]

    @property
    def successor(self) -> str:
        """Name of the writer that takes over from the one that is called as the stream."""
        return f"{self.name}~2"

    @property
    def zombie(self) -> str:
        """Name under which the replaced writer insists."""
        return f"{self.name}!zombie"

    @property
    def rounds(self) -> float:
        """How often the file is gone over."""
        return self.records / len(self.lines)

    def share(self, part: float) -> int:
        """How many records are ``part`` (0 to 1) of this stream."""
        return int(self.records * part)


def split_lines(content: bytes) -> list[bytes]:
    """Lines exactly as they are in the file, without the LF. What follows the last LF is a line unless it is
    empty.
    """
    lines = content.split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def is_text(content: bytes) -> bool:
    """Not empty, and no NUL in it."""
    return bool(content) and b"\0" not in content


def plan_streams(files: Sequence[tuple[str, Sequence[bytes]]], records: int) -> list[Stream]:
    """Partition k for file k; the records in equal shares, the first files one more where it does not come
    out even.
    """
    if not files:
        raise DataError("there is no text file in the folder")
    if records < len(files):
        raise DataError(f"{records} records are too few for {len(files)} files")
    share, rest = divmod(records, len(files))
    return [Stream(name, partition, lines, share + (partition < rest)) for partition, (name, lines) in enumerate(files)]


def load_folder(folder: Path) -> list[tuple[str, list[bytes]]]:
    """Every text file of ``folder`` itself, sorted by name, as lines. Hidden files, licences and READMEs are
    no data.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder")
    files = [(path.name, _read(path)) for path in sorted(folder.iterdir()) if _is_data(path)]
    found = [(name, split_lines(content)) for name, content in files if is_text(content)]
    if len(found) > FILES_MAX:
        raise DataError(f"{folder} has {len(found)} text files; {FILES_MAX} are the most")
    for name, lines in found:
        longest = max(map(len, lines))
        if longest > LINE_BYTES_MAX:
            raise DataError(f"{name} has a line of {longest} bytes; {LINE_BYTES_MAX} are the most")
    return found


def _is_data(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.stem.upper() not in _PAPERS


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > FILE_BYTES_MAX:
        raise DataError(f"{path.name} has {size} bytes; {FILE_BYTES_MAX} are the most")
    return path.read_bytes()
