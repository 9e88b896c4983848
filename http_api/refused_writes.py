"""The latest writes that this node's partitions refused: for people who ask why their writer stands still. Bounded."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from ..partition.commands import Stamp, Token

REFUSED_WRITES_MAX = 1000
"""Refused writes that a node remembers; the oldest is forgotten first."""


@dataclass(frozen=True)
class RefusedWrite:
    """One refusal. ``at_ms`` is wall clock, ``request`` the id of the request. The session is never shown."""

    at_ms: int
    request: str
    topic: str
    partition: int
    code: str
    reason: str
    token: Token | None
    stamp: Stamp | None

    def shown(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "at_ms": self.at_ms,
            "request": self.request,
            "topic": self.topic,
            "partition": self.partition,
            "code": self.code,
            "reason": self.reason or None,
            "grant": self.token.grant_id if self.token else None,
            "fence_epoch": self.token.epoch if self.token else None,
            "producer_id": self.stamp.pid if self.stamp else None,
            "producer_epoch": self.stamp.epoch if self.stamp else None,
            "sequence": self.stamp.first_seq if self.stamp else None,
        }


class RefusedWrites:
    """The latest of them."""

    def __init__(self) -> None:
        self._latest: deque[RefusedWrite] = deque(maxlen=REFUSED_WRITES_MAX)

    def add(self, refused: RefusedWrite) -> None:
        """Remember one more."""
        self._latest.append(refused)

    def latest(self, count: int) -> list[dict[str, Any]]:
        """As JSON has them, the latest first."""
        return [refused.shown() for refused, _ in zip(reversed(self._latest), range(count), strict=False)]
