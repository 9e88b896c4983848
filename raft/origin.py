"""What a log builds upon: a checkpoint's place in it, or the founding of the group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .configuration import FOUNDING, Configuration
from .machine import FileExtent, Image

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
