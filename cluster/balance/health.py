"""Whether a node is fit to get leaders and replicas, judged by its reports."""

import msgspec

from .facts import Bar, Disk

SLOW_SYNC_US = 100_000
"""A disk is slow if a sync of the log takes this long on average, over at least SYNCS_MIN syncs between two reports."""
SYNCS_MIN = 5
GIVEN_UP_AFTER = 15
"""A node that is away for this many times ``stable_ms`` is given up: the others no longer wait for it."""


class Vitals(msgspec.Struct, frozen=True):
    """The figures of one report: the node runs for ``up_ms``, and since its start made ``syncs`` of the log, which took
    ``syncs_us`` together.
    """

    up_ms: int
    syncs: int
    syncs_us: int
    disk: Disk


class Health:
    """The health of one node. ``vitals``: its last report; None: it did not answer the last question."""

    def __init__(self) -> None:
        self.vitals: Vitals | None = None
        self._since_ms: int = 0
        """The time since which the node has answered without a gap."""
        self._slow_at_ms: int | None = None
        """The last time at which its disk was found slow, since ``_since_ms``; None: never."""
        self._away_at_ms: int | None = None
        """The time of the first question that it left unanswered since its last answer; None: it answered the last."""

    def heard(self, vitals: Vitals | None, now_ms: int) -> None:
        """Take a report (None: the node did not answer); ``now_ms`` is the asker's own clock, which never goes back."""
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
        """Whether the node has been away for so long that the others do not wait for it."""
        return self._away_at_ms is not None and now_ms - self._away_at_ms >= GIVEN_UP_AFTER * stable_ms

    def bar(self, now_ms: int, stable_ms: int) -> Bar | None:
        """Why the node gets no leaders and replicas; None: it may get them."""
        if self.vitals is None:
            return "away"
        if self._slow_at_ms is not None and now_ms - self._slow_at_ms < stable_ms:
            return "slow"
        return "unstable" if min(self.vitals.up_ms, now_ms - self._since_ms) < stable_ms else None
