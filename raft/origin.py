"""What a log builds upon: a checkpoint's place in it, or the founding of the group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from .configuration import FOUNDING, Configuration
from .machine import FileExtent, Image
from .wal_records import Entry

FIRST_INDEX = 1
"""Index 1 is pysyncobj's first no-op. It is the same on every node and committed from the start."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Everything up to ``index`` is committed and in the machine; ``term`` and ``configuration`` are those there."""

    index: int = FIRST_INDEX
    term: int = 0
    configuration: Configuration = FOUNDING


FOUNDED_BY_NOBODY = Origin()
"""Where the log of a node that joins begins."""


def going_on(entries: Sequence[Entry], origin: Origin) -> tuple[int, int, Sequence[Entry]] | None:
    """Which of the entries that a log holds go on from its origin, and index and term of what is before them.

    None if none do. They go on if they include the origin's own entry or begin right after it; otherwise an installed
    checkpoint has overtaken them. Those before the origin stay, for followers that lack them; of the first one only the
    term does, unless it is the group's first. Raises ValueError if there is a gap.
    """
    if not entries:
        return None
    first = entries[0].index
    if first > origin.index + 1:
        raise ValueError(f"the log begins at {first}, its origin is {origin.index}")
    if first == origin.index + 1:
        return origin.index, origin.term, entries
    at_origin = origin.index - first
    if at_origin >= len(entries) or entries[at_origin].term != origin.term:
        return None
    if first == FIRST_INDEX + 1:
        return FIRST_INDEX, 0, entries
    return first, entries[0].term, entries[1:]


class Left(msgspec.Struct, frozen=True):
    """What an erased replica had promised: the term that it was in, and how far the log went that it had acknowledged.

    If its node is taken in again, with the same disk, it must not support less: its old configurations, which it meets
    again as it copies the log, name it as a voter.
    """

    term: int
    last_term: int
    last_index: int


NEVER_LEFT = Left(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Captured:
    """A machine's image at ``index``, and what the log says there."""

    index: int
    term: int
    configuration: Configuration
    image: Image


class Installable(Protocol):
    """A checkpoint whose files are all on this node's disk."""

    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def term(self) -> int: ...  # noqa: D102
    @property
    def configuration(self) -> Configuration: ...  # noqa: D102
    @property
    def state(self) -> bytes: ...  # noqa: D102
    @property
    def files(self) -> Sequence[FileExtent]: ...  # noqa: D102
