import asyncio

from stockade.chaos.progress import Progress
from stockade.chaos.streams import plan_streams

STREAMS = plan_streams([("a", [b"1"]), ("b", [b"2"])], 20)


async def is_waiting(task: "asyncio.Task[None]") -> bool:
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
