"""The recorded producer's workload: what it makes the product's producer do."""

import asyncio
import io
from random import Random
from typing import Any, Self

import pytest

from stockade.chaos.history.history import History
from stockade.chaos.workloads import producing
from stockade.chaos.workloads.protocol import ActorContext
from stockade.client.config import ClientConfig
from stockade.partition.api.producers import ProducerPair

STEPS = 20


class Idle:
    """A producer and a recording one that do nothing but note partitions."""

    written: list[list[int]]
    identity = ProducerPair(1, 0, "writer")

    def __init__(self, *_: Any, **__: Any) -> None: ...

    async def start(self) -> Self:
        return self

    async def write(self, partition: int, _: int) -> None:
        self.written[-1].append(partition)

    async def finish(self) -> None: ...

    async def abort(self) -> None: ...


def test_a_writer_gives_several_partitions_a_batch_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the product's producer sends requests for many partitions under faults, too."""
    steps: list[list[int]] = [[]]
    context = ActorContext("a", ClientConfig(), "t", 3, History(io.BytesIO()), Random(1))

    async def pause(_: float, __: float) -> None:
        steps.append([])
        if len(steps) == STEPS:
            context.stopping.set()

    monkeypatch.setattr(Idle, "written", steps, raising=False)
    monkeypatch.setattr(producing, "Producer", Idle)
    monkeypatch.setattr(producing, "RecordingProducer", Idle)
    monkeypatch.setattr(context, "pause", pause)
    asyncio.run(producing.write_on(context, "writer", "a.1"))
    assert all(len(set(step)) == len(step) for step in steps)
    assert {len(step) for step in steps[:-1]} == {1, 2, 3}
