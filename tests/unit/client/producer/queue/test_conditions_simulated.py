"""A queue against a real partition machine, with lost, repeated and late requests: seeds decide about everything.

What must hold for plain, conditional and named batches alike: a receipt names the place of the batch, "absent" stays
true whatever arrives late, no batch is stored twice, a name is stored once, and what is stored is in order.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from stockade.client.api.conditions import Conditions
from stockade.client.config import ClientConfig
from stockade.client.producer.queue.batch import Batch, Receipt
from stockade.client.producer.queue.partition_queue import (
    PartitionQueue,
    Send,
    Settle,
    Settled,
    Wait,
    committed_offset,
    is_forgotten,
)
from stockade.partition.api.producers import ProducerPair
from stockade.partition.commands import Stamp
from stockade.partition.errors import LeaderNotAvailable, OffsetMismatch, RequestTimedOut, StockadeError
from stockade.partition.records.batch import STREAM_END, STREAM_START, message_from_columns

from ...fake_state import FakeState

NAMES = ("m", "n")
STEPS = 120


@dataclass
class Attempt:
    batch: Batch
    body: bytes
    stamp: Stamp
    conditions: Conditions


@dataclass
class World:
    chance: random.Random
    on_error: Literal["halt_partition", "continue"]
    is_forgetful: bool = False
    """Whether the cluster forgets the producer's name now and then, far earlier than a cluster does."""
    state: FakeState = field(default_factory=FakeState)
    now_s: float = 0.0
    batches: list[Batch] = field(default_factory=list)
    flying: list[Attempt] = field(default_factory=list)
    late: list[Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state.create("t", dedupe_window_ms=10**6)
        config = ClientConfig(
            linger_ms=0, retry_backoff_ms=1, on_error=self.on_error, delivery_timeout_ms=3_600_000, batch_records_max=1
        )
        self.queue = PartitionQueue(config, lambda batch: batch.encode(1 << 20), 1 << 20)
        self._renew()

    @property
    def log_end(self) -> int:
        return self.state.machine("t", 0).log_end

    def add(self, conditions: Conditions) -> None:
        name = f"b{len(self.batches)}".encode()
        batch = Batch.of([name] * self.chance.randint(1, 2), None, None, None, now_ms=0)
        batch.conditions, batch.created_s = conditions, self.now_s
        batch.encode(1 << 20)  # so that it is not joined with others
        self.batches.append(batch)
        batch.keys = [name]  # to know it again
        self.queue.add_batch(batch)

    def pump(self) -> None:
        may_send = self.chance.random() < 0.8
        while not isinstance(action := self.queue.poll(self.now_s, may_send=may_send), Wait):
            assert may_send or not isinstance(action, Send)
            if isinstance(action, Settle):
                self.settle(action.settled)
            elif isinstance(action, Send):
                batch = action.batch
                assert batch.message is not None
                assert batch.identity is not None
                stamp = Stamp(batch.identity.producer_id, batch.identity.producer_epoch, batch.first_seq)
                body = STREAM_START + batch.message + STREAM_END
                self.flying.append(Attempt(batch, body, stamp, batch.conditions))
                self.queue.written(batch)
        if self.queue.needs_epoch and self.queue.is_quiet:
            self._renew()
            self.pump()
        elif self.queue.error is not None and self.queue.is_idle:
            self._renew()
            self.queue.reopen()

    def settle(self, settled: list[Settled]) -> None:
        for batch, outcome in settled:
            batch.settle(outcome)

    def apply(self, attempt: Attempt) -> Any:
        try:
            return self.state.append("t", 0, attempt.body, attempt.stamp, None, **attempt.conditions._asdict())
        except StockadeError as error:
            return error

    def meet(self, fate: str) -> None:
        """One attempt in flight meets its fate."""
        attempt = self.flying.pop(self.chance.randrange(len(self.flying)))
        answer: Any = LeaderNotAvailable() if fate == "refused" else RequestTimedOut()
        if fate in ("answered", "reply lost"):
            applied = self.apply(attempt)
            answer = applied if fate == "answered" else answer
        if fate == "late":
            self.late.append(attempt)
        self.answered(attempt.batch, answer)

    def answered(self, batch: Batch, answer: Any) -> None:
        if isinstance(answer, StockadeError):
            offset = committed_offset(answer) if is_forgotten(answer) else None
            committed = None if offset is None else Receipt("t", 0, offset, batch.count, True, None)
            self.settle(self.queue.refused(batch, answer, self.now_s, committed))
        else:
            receipt = Receipt("t", 0, answer.base_offset, batch.count, answer.duplicate, 0)
            self.settle(self.queue.stored(batch, receipt))

    def others_write(self) -> None:
        message = message_from_columns([None], [b"other"], [0], None)
        self.state.append("t", 0, STREAM_START + message + STREAM_END, None, None)

    def _renew(self) -> None:
        pid, epoch = self.state.init_producer("writer")
        self.queue.renew(ProducerPair(pid, epoch, "writer"))


def conditions(world: World) -> Conditions:
    match world.chance.randrange(4):
        case 0:
            return Conditions(if_log_end=max(0, world.log_end + world.chance.choice([-1, 0, 0, 0, 1, 2])))
        case 1:
            return Conditions(message_id=world.chance.choice(NAMES))
        case 2:
            return Conditions(if_log_end=world.log_end, message_id=world.chance.choice(NAMES))
        case _:
            return Conditions()


FATES = ["answered"] * 5 + ["request lost", "reply lost", "late", "late", "refused"]


def live(world: World, fates: Sequence[str] = FATES) -> None:
    for _ in range(STEPS):
        world.now_s += 0.01
        if world.is_forgetful and world.chance.random() < 0.05 and "writer" in world.state.producers:
            world.state.forget_producer("writer")
        match world.chance.randrange(8):
            case 0 | 1 if world.queue.error is None:
                world.add(conditions(world))
            case 2:
                world.others_write()
            case 3 if world.late:
                world.apply(world.late.pop(world.chance.randrange(len(world.late))))
            case _ if world.flying:
                world.meet(world.chance.choice(fates))
            case _:
                pass
        world.pump()
    while not world.queue.is_idle or world.queue.error is not None:
        world.now_s += 1
        world.pump()
        if world.flying:
            world.meet("answered")
    for attempt in world.late:
        world.apply(attempt)


@pytest.mark.parametrize("seed", range(100))
def test_a_producer_whose_name_is_forgotten_loses_no_record_and_stores_none_twice(seed: int) -> None:
    """003: INVALID_PRODUCER_ID_MAPPING leads to a fresh init, as long as no outcome is unknown."""
    world = World(random.Random(seed), "halt_partition", is_forgetful=True)
    live(world, ["answered"] * 5 + ["refused"])
    failures = [batch.outcome for batch in world.batches if isinstance(batch.outcome, StockadeError)]
    assert all(isinstance(failure, OffsetMismatch) for failure in failures), "only conditions were refused"
    stored = [name for name in world.state.values("t") if name != b"other"]
    wanted = [batch for batch in world.batches if isinstance(batch.outcome, Receipt) and not batch.outcome.duplicate]
    assert len(stored) == sum(batch.count for batch in wanted), "each once"


@pytest.mark.parametrize("is_forgetful", [False, True])
@pytest.mark.parametrize("on_error", ["halt_partition", "continue"])
@pytest.mark.parametrize("seed", range(100))
def test_outcomes_are_true_whatever_is_lost_repeated_late_or_forgotten(
    seed: int, on_error: Literal["halt_partition", "continue"], is_forgetful: bool
) -> None:
    world = World(random.Random(seed), on_error, is_forgetful)
    live(world)
    log = world.state.values("t")
    names = [f"b{number}".encode() for number in range(len(world.batches))]
    by_id: dict[str | None, list[bytes]] = {}
    for name, batch in zip(names, world.batches, strict=True):
        assert log.count(name) in (0, batch.count), "all or none, and once"
        by_id.setdefault(batch.conditions.message_id, []).append(name)
        if isinstance(batch.outcome, Receipt):
            assert batch.outcome.base_offset is not None
            found = log[batch.outcome.base_offset]
            assert found == name or found in by_id[batch.conditions.message_id or "plain"], "where the receipt says"
        else:
            assert batch.outcome is not None
            if batch.outcome.fields["outcome"]["state"] == "absent":
                assert name not in log, batch.outcome
    for number in NAMES:
        assert sum(name in log for name in by_id.get(number, [])) <= 1, "a name is stored once"
    stored = [name for name in dict.fromkeys(log) if name in names]
    assert stored == [name for name in names if name in log], "in order"
