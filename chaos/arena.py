"""What a running cluster under test adds to the arena that faults see: what a round needs to work with it."""

from collections.abc import Sequence
from typing import Protocol

from .fault import Arena


class RunningArena(Arena, Protocol):
    """An arena with clients and topics that change from round to round."""

    topics: Sequence[str]
    clients: Sequence[int]

    @property
    def bootstrap(self) -> Sequence[str]:
        """Base URLs under which clients reach the nodes, through whatever stands between."""
        ...
