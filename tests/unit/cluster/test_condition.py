import asyncio

from stockade.cluster.condition import Condition


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
