"""Who held a partition's slot, and why that ended: for people who ask what became of their write. Bounded.

Replicated state like all the rest: a refusal is computed on every replica, so they count alike.
"""

import msgspec

TENURES_MAX = 100
"""Ended tenures remembered by a partition; the oldest is forgotten first."""


class Tenure(msgspec.Struct, frozen=True, array_like=True):
    """Who held the slot, or a seat in it. ``refused`` counts the writes under its token that came too late.

    ``until_ms`` and ``end`` are None while it holds.
    """

    grant_id: str
    mode: str
    epoch: int
    producer_name: str
    client_id: str | None
    operation: str
    since_ms: int
    until_ms: int | None = None
    end: str | None = None
    refused: int = 0


class Tenures:
    """The ended ones by grant, the oldest first."""

    def __init__(self) -> None:
        self.ended: dict[str, Tenure] = {}

    def end(self, tenure: Tenure, until_ms: int, end: str) -> None:
        """A tenure is over."""
        self.ended.pop(tenure.grant_id, None)
        self.ended[tenure.grant_id] = msgspec.structs.replace(tenure, until_ms=until_ms, end=end)
        if len(self.ended) > TENURES_MAX:
            del self.ended[next(iter(self.ended))]

    def refused(self, grant_id: str) -> None:
        """A write under this token was refused; counted if the grant is known to be over."""
        tenure = self.ended.get(grant_id)
        if tenure is not None:
            self.ended[grant_id] = msgspec.structs.replace(tenure, refused=tenure.refused + 1)
