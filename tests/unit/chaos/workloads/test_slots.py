"""A life ends with an unknown outcome: what it wrote last may be stored behind what it would write next."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.workloads import slots
from stockade.chaos.workloads.attempts import is_unknown
from stockade.partition.errors import LeaderNotAvailable, NotOwner, RequestTimedOut, StockadeError


class Recorder:
    """Answers each append with the next of ``answers``, and the last one for ever."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.count = 0

    async def append(self, *_: Any, **__: Any) -> Any:
        self.count += 1
        return self.answers[min(self.count, len(self.answers)) - 1]


def used(seed: int, answers: list[Any]) -> int:
    """How many appends a holder of the slot of partition 0 made."""

    async def pause(*_: float) -> None:
        return

    recorder: Any = Recorder(answers)
    context: Any = SimpleNamespace(chance=random.Random(seed), stopping=asyncio.Event(), pause=pause)
    fence: Any = SimpleNamespace(grant=SimpleNamespace(partitions=[0]), token=lambda _: None)
    asyncio.run(slots._use(context, recorder, "slots-1.1", fence))
    return int(recorder.count)


def test_a_holder_writes_nothing_behind_a_batch_of_unknown_outcome() -> None:
    """Chaos, seed 508 over namespaces and clocks: a request that a cut link held back was stored behind later ones."""
    assert max(used(seed, ["stored"]) for seed in range(20)) > 5
    assert all(used(seed, ["stored", RequestTimedOut()]) <= 2 for seed in range(20))


@pytest.mark.parametrize("answer", [NotOwner(fence_epoch=1, group="g"), LeaderNotAvailable()])
def test_what_was_refused_for_certain_is_no_end(answer: StockadeError) -> None:
    assert not is_unknown(answer)
    assert is_unknown(RequestTimedOut())
