"""Whether a node is fit to be given leaders and replicas, by the reports that came from it."""

import msgspec

from .facts import Bar, Disk

SLOW_SYNC_US = 100_000
"""A disk is slow if a sync of the log takes this long, on the average of SYNCS_MIN syncs between two reports."""
SYNCS_MIN = 5
GIVEN_UP_AFTER = 15
"""Times of stability (``stable_ms``) after which the others no longer wait for a node that is away."""


class Vitals(msgspec.Struct, frozen=True):
    """Vital signs in one report: ``syncs`` of the log since the node's start ``up_ms`` ago, which took ``syncs_us``
    together.
    """

    up_ms: int
    syncs: int
    syncs_us: int
    disk: Disk


class Health:
    """Health of one node. ``vitals`` are those of its last report; None: it did not answer the last question."""

    def __init__(self) -> None:
        self.vitals: Vitals | None = None
        self._since_ms: int = 0
        """Since when the node has answered without a gap."""
        self._slow_at_ms: int | None = None
        """When it was found slow the last time, since then."""
        self._away_at_ms: int | None = None
        """When it did not answer for the first time since its last answer."""

    def heard(self, vitals: Vitals | None, now_ms: int) -> None:
        """A report came, or none; ``now_ms`` is the asker's own clock, which never goes back."""
        before, self.vitals = self.vitals, vitals
        if vitals is None:
            self._away_at_ms = now_ms if self._away_at_ms is None else self._away_at_ms
            return
        self._away_at_ms = None
        if before is None or vitals.up_ms < before.up_ms:  # it was away, or is another process
            self._since_ms, self._slow_at_ms = now_ms, None
            return
        syncs = vitals.syncs - before.syncs
        if syncs >= SYNCS_MIN and vitals.syncs_us - before.syncs_us >= SLOW_SYNC_US * syncs:
            self._slow_at_ms = now_ms

    def is_given_up(self, now_ms: int, stable_ms: int) -> bool:
        """Whether it has been away for so long that others do not wait for it."""
        return self._away_at_ms is not None and now_ms - self._away_at_ms >= GIVEN_UP_AFTER * stable_ms

    def bar(self, now_ms: int, stable_ms: int) -> Bar | None:
        """Why the node is given nothing; None: nothing is against it."""
        if self.vitals is None:
            return "away"
        if self._slow_at_ms is not None and now_ms - self._slow_at_ms < stable_ms:
            return "slow"
        return "unstable" if min(self.vitals.up_ms, now_ms - self._since_ms) < stable_ms else None
