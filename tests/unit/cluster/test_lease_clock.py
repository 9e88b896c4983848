from stockade.cluster.lease_clock import LeaseClock


def test_a_time_without_a_leader_costs_nothing() -> None:
    """SEMANTICS 8: the clock starts in each term where the replicated one stands."""
    replicated, monotonic = [5_000], [100.0]
    clock = LeaseClock(lambda: replicated[0], lambda: monotonic[0])
    assert clock.now_ms(term=1) == 5_000
    monotonic[0] += 2.5
    assert clock.now_ms(term=1) == 7_500
    replicated[0], monotonic[0] = 7_400, 900.0
    assert clock.now_ms(term=2) == 7_400


def test_the_clock_follows_its_own_time_within_a_term_whatever_is_applied_meanwhile() -> None:
    replicated, monotonic = [0], [0.0]
    clock = LeaseClock(lambda: replicated[0], lambda: monotonic[0])
    clock.now_ms(term=3)
    replicated[0], monotonic[0] = 90_000, 1.0
    assert clock.now_ms(term=3) == 1_000
