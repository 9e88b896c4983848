from types import SimpleNamespace
from typing import cast

from stockade.cluster.features import Features
from stockade.cluster.groups import ServedGroup
from stockade.raft.core.group import Group


class Clock(ServedGroup):
    """The lease clock alone; ``time`` is this node's own, in seconds."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.replicated = 0
        super().__init__(cast(Group, SimpleNamespace(term=0)), Features(), {}, 1.0, 100)
        self._monotonic = lambda: self.time

    @property
    def replicated_ms(self) -> int:
        return self.replicated

    def at(self, term: int, replicated_ms: int) -> int:
        self.group = cast(Group, SimpleNamespace(term=term))
        self.replicated = replicated_ms
        return self.now_ms()


def test_a_time_without_a_leader_costs_nothing() -> None:
    """SEMANTICS 8: the clock starts in each term where the replicated one stands."""
    clock = Clock(100.0)
    assert clock.at(term=1, replicated_ms=5_000) == 5_000
    clock.time += 2.5
    assert clock.at(term=1, replicated_ms=5_000) == 7_500
    clock.time = 900.0
    assert clock.at(term=2, replicated_ms=7_400) == 7_400


def test_the_clock_follows_its_own_time_within_a_term_though_commands_stamped_earlier_are_applied_late() -> None:
    clock = Clock(0.0)
    clock.at(term=3, replicated_ms=0)
    clock.time = 1.0
    assert clock.at(term=3, replicated_ms=900) == 1_000


def test_a_leader_that_learns_late_where_the_clock_stood_goes_on_from_there() -> None:
    clock = Clock(0.0)
    clock.at(term=3, replicated_ms=0)
    clock.time = 1.0
    assert clock.at(term=3, replicated_ms=90_000) == 90_000
    clock.time = 1.5
    assert clock.at(term=3, replicated_ms=90_000) == 90_500
