"""When a node may ask for votes: the election deadline, the leader's lease, and the tallies of who said yes."""

from collections.abc import Callable

from .settings import RaftSettings


class Election:
    """The part of a group that waits for a leader to fall silent. It decides; voting.py and engine.py act."""

    def __init__(
        self, majority: Callable[[], int], settings: RaftSettings, clock: Callable[[], float], rng: Callable[[], float]
    ) -> None:
        """``majority`` answers how many voters decide.

        ``clock`` answers seconds on a monotonic clock, ``rng`` a number in [0, 1).
        """
        self._majority = majority
        self._timeout_s_min = settings.election_timeout_ms_min / 1000
        self._timeout_s_spread = (settings.election_timeout_ms_max - settings.election_timeout_ms_min) / 1000
        self._hurry_s_max = settings.heartbeat_ms / 1000
        self._clock = clock
        self._rng = rng
        self._lease_end = float("-inf")
        self._promises: set[str] | None = None
        self._votes: set[str] | None = None
        self.deadline: float = clock() + self.draw_timeout_s()

    def draw_timeout_s(self) -> float:
        """A new election timeout."""
        return self._timeout_s_min + self._timeout_s_spread * self._rng()

    @property
    def leased(self) -> bool:
        """Whether the leader, if there is one, spoke within the shortest timeout: then nobody else is supported."""
        return self._clock() < self._lease_end

    def postpone(self) -> None:
        """Wait a whole timeout from now."""
        self.deadline = self._clock() + self.draw_timeout_s()

    def hurry(self) -> None:
        """Ask soon: after a short time, drawn so that two nodes do not ask at once.

        A false alarm is harmless, since those who hear a leader refuse.
        """
        self.deadline = min(self.deadline, self._clock() + self._hurry_s_max * self._rng())

    def take_turn(self, spread_s: float, turn: int) -> None:
        """Elections of so many groups are due that they are spread over ``spread_s``: ask at a time in there, drawn.

        Whoever is not the first to ask waits for as long for each before it: with many elections at once they take long
        enough that two nodes would often ask at once, and both in vain. If its log is longer, it is told (``hurry``).
        """
        if spread_s <= self._hurry_s_max:
            self.hurry()
        else:
            self.deadline = self._clock() + spread_s * (turn + self._rng())

    def heard_leader(self, at: float) -> None:
        """The leader of the current term spoke then: its lease began anew."""
        self._lease_end = lease_end = at + self._timeout_s_min
        self._promises = self._votes = None
        self.deadline = lease_end + self._timeout_s_spread * self._rng()

    def void(self) -> None:
        """Whatever was asked before is void: late answers count for nothing."""
        self._promises = self._votes = None

    def begin_prevote(self) -> None:
        """Count promises from now on. Votes of this term still count, too.

        A question costs nothing, so it is repeated before a whole timeout has passed: those who were asked may have
        learned only a moment later that the leader is gone.
        """
        self._promises = set()
        self.deadline = self._clock() + self.draw_timeout_s() / 4

    def promised(self, node_id: str) -> bool:
        """A node, perhaps this one, would vote for us; answers whether an election may begin."""
        return self._counted(self._promises, node_id)

    def begin_vote(self) -> None:
        """Count votes from now on."""
        self._promises = None
        self._votes = set()
        self.postpone()

    def voted(self, node_id: str) -> bool:
        """A node, perhaps this one, has voted for us in this term; answers whether that makes us its leader."""
        return self._counted(self._votes, node_id)

    def _counted(self, tally: set[str] | None, node_id: str) -> bool:
        if tally is None:
            return False
        tally.add(node_id)
        return len(tally) >= self._majority()
