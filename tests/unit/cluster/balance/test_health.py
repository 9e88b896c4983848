"""When a node is given leaders and replicas again."""

from stockade.cluster.balance.facts import Disk
from stockade.cluster.balance.health import GIVEN_UP_AFTER, SLOW_SYNC_US, SYNCS_MIN, Health, Vitals

DISK = Disk(1, 2, 0)
STABLE_MS = 10_000


def vitals(up_ms: int, syncs: int = 0, syncs_us: int = 0) -> Vitals:
    return Vitals(up_ms, syncs, syncs_us, DISK)


def test_a_node_is_given_nothing_before_it_has_answered_and_run_for_long_enough() -> None:
    health = Health()
    assert health.bar(0, STABLE_MS) == "away"
    health.heard(vitals(1_000_000), 0)
    assert health.bar(0, STABLE_MS) == "unstable", "this asker has not seen it for long"
    health.heard(vitals(1_010_000), 10_000)
    assert health.bar(10_000, STABLE_MS) is None


def test_a_node_that_was_away_or_is_another_process_begins_anew() -> None:
    for again in (None, vitals(500)):
        health = Health()
        health.heard(vitals(1_000_000), 0)
        health.heard(again, 10_000)
        health.heard(vitals(1_020_000 if again is None else 2_500), 12_000)
        assert health.bar(12_000, STABLE_MS) == "unstable"
        assert health.bar(22_000, STABLE_MS) == (None if again is None else "unstable")


def test_a_node_is_waited_for_until_it_was_away_for_long_without_a_break() -> None:
    health, long_ms = Health(), GIVEN_UP_AFTER * STABLE_MS
    health.heard(vitals(1_000_000), 0)
    for now_ms in (1_000, 5_000, 999 + long_ms):
        assert not health.is_given_up(now_ms, STABLE_MS)
        health.heard(None, now_ms)
    assert health.is_given_up(1_000 + long_ms, STABLE_MS)
    health.heard(vitals(500), 2_000 + long_ms)
    health.heard(None, 3_000 + long_ms)
    assert not health.is_given_up(4_000 + long_ms, STABLE_MS), "it was here in between"


def test_a_restart_between_two_questions_is_noticed() -> None:
    health = Health()
    health.heard(vitals(11_000), 0)
    health.heard(vitals(10_500), 20_000)  # it runs for long enough, but not since the last answer
    assert health.bar(20_000, STABLE_MS) == "unstable"


def test_a_slow_disk_bars_a_node_until_it_was_fast_for_long_enough() -> None:
    health = Health()
    health.heard(vitals(1_000_000), 0)
    health.heard(vitals(1_020_000, SYNCS_MIN, SYNCS_MIN * SLOW_SYNC_US), 20_000)
    assert health.bar(20_000, STABLE_MS) == "slow"
    health.heard(vitals(1_022_000, 1_000, SYNCS_MIN * SLOW_SYNC_US + 1_000), 22_000)
    assert health.bar(22_000, STABLE_MS) == "slow"
    assert health.bar(30_000, STABLE_MS) is None


def test_few_slow_syncs_say_nothing() -> None:
    health = Health()
    health.heard(vitals(1_000_000), 0)
    health.heard(vitals(1_020_000, SYNCS_MIN - 1, SYNCS_MIN * SLOW_SYNC_US * 10), 20_000)
    assert health.bar(20_000, STABLE_MS) is None
