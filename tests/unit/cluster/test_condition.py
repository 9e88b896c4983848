import asyncio
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stockade.cluster.condition import Condition, aligned_s

PERIODS = st.sampled_from([0.002, 0.2, 0.25, 1.0, 2.0, 8.0])
CLOCKS = st.integers(0, 10**10).map(lambda ms: ms / 1000)  # a loop's clock counts milliseconds, up to 100 days of them


def test_a_waiter_sees_a_change_that_comes_while_it_waits() -> None:
    async def scenario() -> int | None:
        signal, values = Condition(), [0]
        waiting = asyncio.create_task(signal.until(lambda: values[0] or None, 5.0))
        await asyncio.sleep(0)
        signal.notify()
        values[0] = 7
        signal.notify()
        return await waiting

    assert asyncio.run(scenario()) == 7


def test_a_condition_that_holds_already_is_not_waited_for() -> None:
    assert asyncio.run(Condition().until(lambda: "now", 0.0)) == "now"


def test_a_condition_that_never_holds_ends_at_the_deadline_and_leaves_no_waiter() -> None:
    signal = Condition()
    assert asyncio.run(signal.until(lambda: None, 0.01)) is None
    assert not signal._waiters


def test_a_cancelled_waiter_is_forgotten() -> None:
    async def scenario() -> None:
        signal = Condition()
        waiting = asyncio.create_task(signal.until(lambda: None, 5.0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not signal._waiters

    asyncio.run(scenario())


def aligned_at(now: float, period_s: float) -> float:
    with patch.object(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now)):
        return aligned_s(period_s)


@given(CLOCKS, PERIODS)
@example(7.0, 1.0)
@example(6.999, 1.0)
def test_a_look_comes_at_a_multiple_of_its_period_half_a_period_to_one_and_a_half_away(
    now: float, period_s: float
) -> None:
    away_s = aligned_at(now, period_s)
    assert period_s / 2 - 1e-6 <= away_s <= 1.5 * period_s + 1e-6
    due = (now + away_s) / period_s
    assert due == pytest.approx(round(due), abs=1e-3)


@given(CLOCKS, PERIODS, st.integers(-1, 1))
def test_a_timer_that_fires_a_millisecond_early_or_late_is_due_a_period_later(
    now: float, period_s: float, late_ms: int
) -> None:
    if period_s > 0.1:
        fired = now + aligned_at(now, period_s)
        next_s = aligned_at(fired + late_ms / 1000, period_s)
        assert next_s == pytest.approx(period_s, abs=0.0015)


def test_a_period_of_less_than_two_milliseconds_is_slept_as_it_is() -> None:
    assert [aligned_at(5.5, period_s) for period_s in (0, 0.001)] == [0, 0.001]
