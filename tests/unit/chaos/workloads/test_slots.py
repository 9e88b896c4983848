"""The lives of clients that contend for slots: how each ends, and what is recorded of its end."""

import asyncio
import io
import random
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.history.history import Event, History
from stockade.chaos.workloads import slots
from stockade.chaos.workloads.attempts import is_unknown
from stockade.client.errors import ClientClosed
from stockade.partition.errors import LeaderNotAvailable, NotOwner, RequestTimedOut, SessionExpired, StockadeError


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
def test_an_append_that_was_refused_for_certain_is_no_unknown_end(answer: StockadeError) -> None:
    assert not is_unknown(answer)
    assert is_unknown(RequestTimedOut())


class Closable:
    """A session that was lost before, or is not; that the cluster answers, or does not."""

    def __init__(self, lost: StockadeError | None, refusal: StockadeError | None) -> None:
        self.error = lost
        self._refusal = refusal

    async def close(self) -> None:
        was_lost, self.error = self.error is not None, self.error or ClientClosed("the session was closed")
        if self._refusal is not None and not was_lost:
            raise self._refusal


def left(session: Any) -> tuple[str | None, list[Event]]:
    """The code of the refusal, and what is recorded, when a holder of two slots closes its session."""
    history = History(io.BytesIO())
    context: Any = SimpleNamespace(topic="t", history=history)
    fence: Any = SimpleNamespace(
        grant=SimpleNamespace(partitions=[0, 2]), token=lambda number: SimpleNamespace(epoch=number + 5)
    )
    try:
        asyncio.run(slots._leave(context, session, "slots-1.1", fence, closes=True))
    except StockadeError as refusal:
        return refusal.code, history.events
    return None, history.events


def test_a_session_that_is_closed_gives_back_each_of_its_slots() -> None:
    refused, events = left(Closable(None, None))
    assert refused is None
    assert [(e.type, e.f, e.partition, e.epoch) for e in events[2:]] == [
        ("ok", "release", 0, 5),
        ("ok", "release", 2, 7),
    ]


@pytest.mark.parametrize(
    ("lost", "refusal", "code"),
    [(SessionExpired(), None, "SESSION_EXPIRED"), (None, RequestTimedOut(), "REQUEST_TIMED_OUT")],
)
def test_a_close_that_the_cluster_did_not_answer_gives_back_nothing(
    lost: StockadeError | None, refusal: StockadeError | None, code: str
) -> None:
    """Of a lost session the cluster is asked nothing: a checker would take its last appends for a zombie's."""
    refused, events = left(Closable(lost, refusal))
    assert refused == code
    assert len(events) == 4 and "ok" not in {each.type for each in events}
