"""A stream: a file's lines, again and again, as the records of one partition; so it says what bytes a record must have.

Pure, but for ``load_folder``, which reads the files once.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

FILES_MAX = 256
"""Most files of a folder, each of which becomes a partition."""
FILE_BYTES_MAX = 256 * 1024 * 1024
"""Largest file: all files are held in memory to compare with."""
LINE_BYTES_MAX = 64 * 1024
"""Longest line, so that a batch of 100 fits below the topic's ``max_batch_bytes`` of 16 MiB."""

_PAPERS = {"LICENSE", "LICENCE", "COPYING", "NOTICE", "README", "CITATION"}


class DataError(ValueError):
    """The folder has no suitable files; the message says why in one line."""


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
        """Name of the writer that replaces the first one, which has the name of the stream."""
        return f"{self.name}~2"

    @property
    def zombie(self) -> str:
        """Name under which the replaced writer goes on writing."""
        return f"{self.name}!zombie"

    @property
    def rounds(self) -> float:
        """How often the stream repeats the file."""
        return self.records / len(self.lines)

    def share(self, part: float) -> int:
        """How many records are ``part`` (0 to 1) of this stream."""
        return int(self.records * part)


def split_lines(content: bytes) -> list[bytes]:
    """Lines exactly as they are in the file, without the LF. Bytes after the last LF are a line."""
    lines = content.split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def is_text(content: bytes) -> bool:
    """Whether the content of a file is text: it is not empty and has no NUL."""
    return bool(content) and b"\0" not in content


def plan_streams(files: Sequence[tuple[str, Sequence[bytes]]], records: int) -> list[Stream]:
    """A stream for each file, (name, lines): file k is partition k. All get equal shares of the records, and the first
    ones one more each, until there is no remainder. Raises DataError.
    """
    if not files:
        raise DataError("there is no text file in the folder")
    if records < len(files):
        raise DataError(f"{records} records are too few for {len(files)} files")
    share, rest = divmod(records, len(files))
    return [Stream(name, partition, lines, share + (partition < rest)) for partition, (name, lines) in enumerate(files)]


def payload_of(streams: Sequence[Stream]) -> Callable[[str, int], bytes | None]:
    """A function from (writer, index) to the bytes that the record must have: the stream's line, for its writer and for
    the writer's successor; None if there is no such record.
    """
    writers = {name: stream for stream in streams for name in (stream.name, stream.successor)}

    def payload(writer: str, index: int) -> bytes | None:
        stream = writers.get(writer)
        return stream.line(index) if stream is not None and 0 <= index < stream.records else None

    return payload


def load_folder(folder: Path) -> list[tuple[str, list[bytes]]]:
    """The lines of every text file in ``folder``, sorted by name; without hidden files, licences and READMEs."""
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
