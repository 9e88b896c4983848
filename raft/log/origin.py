"""The origin of a group's log: a checkpoint, or the founding of the group; and the tombstone of an erased log."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ..machine import FileExtent, Image
from ..wal.records import LogEntry
from .configuration import NO_MEMBERS, Configuration

FIRST_INDEX = 1
"""The index of pysyncobj's first no-op, which every node has and which is committed from the start."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a log begins: entries up to ``index`` are committed and applied; term and configuration are those there."""

    index: int = FIRST_INDEX
    term: int = 0
    configuration: Configuration = NO_MEMBERS


ORIGIN_OF_JOINER = Origin()
"""The origin of the log of a node that joins the group."""


def continuation(entries: Sequence[LogEntry], origin: Origin) -> tuple[int, int, Sequence[LogEntry]] | None:
    """(base index, base term, entries after the base) of a recovered log that continues its origin; else None.

    It does if its entries include the origin's own or begin right after it; otherwise an installed checkpoint has
    overtaken them. Entries before the origin stay, for followers that lack them; the first of these becomes the base
    and gives only its term, unless it is the group's first. Raises ValueError if entries are missing after the origin.
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


class GroupTombstone(msgspec.Struct, frozen=True):
    """The acks and votes of an erased replica, in short: its term, and the end (last_term, last_index) of its log.

    A node that rejoins the group with the same disk must neither vote in an older term nor for a shorter log: the old
    configurations in the log that it copies name it as a voter.
    """

    term: int
    last_term: int
    last_index: int


NO_TOMBSTONE = GroupTombstone(0, 0, 0)
"""No replica of the group was ever erased here."""


@dataclass(frozen=True, slots=True)
class CapturedState:
    """A machine's image at ``index``, and the log's term and configuration there."""

    index: int
    term: int
    configuration: Configuration
    image: Image


class InstallableCheckpoint(Protocol):
    """A checkpoint whose files are all on this node's disk."""

    @property
    def index(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def configuration(self) -> Configuration: ...
    @property
    def state(self) -> bytes: ...
    @property
    def files(self) -> Sequence[FileExtent]: ...
