"""When a node may ask for votes: the election deadline, the leader's lease, and the tallies of who said yes."""

from collections.abc import Callable

from .settings import RaftSettings


class Election:
    """The part of a group that waits for a leader to fall silent. It decides; voting.py and engine.py act."""

    def __init__(
        self, majority: int, settings: RaftSettings, clock: Callable[[], float], rng: Callable[[], float]
    ) -> None:
        """``clock`` answers seconds on a monotonic clock, ``rng`` a number in [0, 1)."""
        self._majority = majority
        self._timeout_s_min = settings.election_timeout_ms_min / 1000
        self._timeout_s_spread = (settings.election_timeout_ms_max - settings.election_timeout_ms_min) / 1000
        self._hurry_s_max = settings.heartbeat_ms / 1000
        self._clock = clock
        self._rng = rng
        self._lease_end = float("-inf")
        self._promises: set[str] = set()
        self._votes: set[str] = set()
        self.deadline = clock() + self.draw_timeout_s()

    def draw_timeout_s(self) -> float:
        """A new election timeout."""
        return self._timeout_s_min + self._timeout_s_spread * self._rng()

    @property
    def leased(self) -> bool:
        """Whether a leader was heard within the shortest election timeout: then nobody else is supported."""
        return self._clock() < self._lease_end

    def postpone(self) -> None:
        """Wait a whole timeout from now."""
        self.deadline = self._clock() + self.draw_timeout_s()

    def hurry(self) -> None:
        """Ask soon: after a short time, drawn so that two nodes do not ask at once."""
        self.deadline = min(self.deadline, self._clock() + self._hurry_s_max * self._rng())

    def heard_leader(self) -> None:
        """The leader of the current term spoke: its lease begins anew."""
        self._lease_end = self._clock() + self._timeout_s_min
        self.void()
        self.postpone()

    def lost_leader(self) -> None:
        """The connection to the leader broke: find out soon whether others lost it as well.

        A false alarm is harmless, since those who still hear the leader refuse.
        """
        self._lease_end = float("-inf")
        self.hurry()

    def void(self) -> None:
        """Whatever was asked before is void: late answers count for nothing."""
        self._promises = set()
        self._votes = set()

    def begin_prevote(self, own_id: str) -> bool:
        """Count promises, our own first; answers whether that is a majority. Votes of this term still count."""
        self._lease_end = float("-inf")
        self._promises = {own_id}
        self.postpone()
        return len(self._promises) >= self._majority

    def promised(self, node_id: str) -> bool:
        """A node would vote for us; answers whether an election may begin."""
        return self._counted(self._promises, node_id)

    def begin_vote(self, own_id: str) -> bool:
        """Count votes, our own first; answers whether that is a majority."""
        self._promises = set()
        self._votes = {own_id}
        self.postpone()
        return len(self._votes) >= self._majority

    def voted(self, node_id: str) -> bool:
        """A node voted for us in the current term; answers whether that makes us its leader."""
        return self._counted(self._votes, node_id)

    def _counted(self, tally: set[str], node_id: str) -> bool:
        if not tally:  # nothing was asked, or it is void
            return False
        tally.add(node_id)
        return len(tally) >= self._majority
