import asyncio

from stockade.chaos.streams.progress import Progress
from stockade.chaos.streams.stream import plan_streams

STREAMS = plan_streams([("a", [b"1"]), ("b", [b"2"])], 20)


async def is_waiting(task: asyncio.Future[bool] | asyncio.Future[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


def test_a_part_is_reached_by_what_all_streams_have_together() -> None:
    async def scenario() -> None:
        progress = Progress(STREAMS, [])
        waiter = asyncio.create_task(progress.reached(0.5))
        progress.add(0, 9)
        assert await is_waiting(waiter)
        progress.add(1, 1)
        await waiter
        assert progress.records == 10

    asyncio.run(scenario())


def test_no_writer_passes_a_closed_gate_and_every_writer_reaches_it() -> None:
    async def scenario() -> None:
        progress = Progress(STREAMS, [0.5, 0.8])
        await progress.may_send(STREAMS[0], 4)
        waiter = asyncio.create_task(progress.may_send(STREAMS[0], 5))
        assert await is_waiting(waiter)
        progress.open(0.5)
        await waiter
        late = asyncio.create_task(progress.may_send(STREAMS[1], 8))
        assert await is_waiting(late)
        progress.open(0.8)
        await late

    asyncio.run(scenario())


def test_growth_of_one_partition_is_told_apart() -> None:
    async def scenario() -> None:
        progress = Progress(STREAMS, [])
        waiter = asyncio.create_task(progress.grown(1, 2))
        progress.add(0, 5)
        progress.add(1, 2)
        assert await is_waiting(waiter)
        progress.add(1, 1)
        await waiter

    asyncio.run(scenario())


def test_streams_are_level_when_the_last_one_is_there() -> None:
    async def scenario() -> None:
        progress = Progress(STREAMS, [])
        waiter = asyncio.create_task(progress.level(0.5))
        progress.add(0, 10)
        assert await is_waiting(waiter)
        progress.add(1, 5)
        await waiter

    asyncio.run(scenario())


def test_a_part_that_was_passed_already_is_reached_with_the_next_records() -> None:
    async def scenario() -> None:
        progress = Progress(plan_streams([("a", [b"1"])], 1_000), [])
        progress.add(0, 900)
        waiter = asyncio.create_task(progress.reached(0.5))
        assert await is_waiting(waiter)
        progress.add(0, 10)
        await waiter

    asyncio.run(scenario())


def test_a_log_that_is_longer_than_was_heard_of_counts_whole() -> None:
    progress = Progress(STREAMS, [])
    progress.add(1, 3)
    progress.found(1, 7)
    assert progress.records == 7
