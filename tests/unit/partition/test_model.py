"""Producers over a network that loses, repeats and reorders: each record is stored once, in order (SEMANTICS 9).

Three replicas apply the same commands; the driver compares their state and checks the invariants after each of them.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from stockade.partition.commands import SEQUENCE_MODULUS, Appended, Result, Stamp, Token
from stockade.partition.errors import (
    InvalidProducerEpoch,
    OutOfOrderSequence,
    ProducerBusy,
    ProducerFenced,
    StockadeError,
)
from stockade.partition.state import invariants, producers
from stockade.partition.state.producers import BEHIND_MAX, CACHE_BATCHES

from .driver import Driver, grant, state

PIDS = (7, 8, 9)  # two named ones and an anonymous one
SMALL_CIRCLE = 32


class Sent:
    """A batch of a producer: records ``first`` and after, as the producer counts them for ever, and its stamp."""

    def __init__(self, first: int, count: int, stamp: Stamp) -> None:
        self.first, self.count, self.stamp = first, count, stamp
        self.is_settled = False

    @property
    def content(self) -> str:
        return " ".join(f"{self.stamp.pid}:{number}" for number in range(self.first, self.first + self.count))


class Sender:
    """Keeps at most CACHE_BATCHES unsettled batches, and resends them unchanged (SEMANTICS 9.1, 9.2)."""

    def __init__(self, pid: int, circle: int) -> None:
        self.pid, self.epoch, self.next_seq, self.records = pid, 0, 0, 0
        self.circle = circle
        self.unsettled: list[Sent] = []

    def make(self, count: int) -> None:
        stamp = Stamp(self.pid, self.epoch, self.next_seq)
        self.unsettled.append(Sent(self.records, count, stamp))
        self.records += count
        self.next_seq = (self.next_seq + count) % self.circle

    def settle(self) -> None:
        self.unsettled = [batch for batch in self.unsettled if not batch.is_settled]

    def renumber(self, epoch: int) -> None:
        self.settle()
        self.epoch, self.next_seq = epoch, 0
        for batch in self.unsettled:
            batch.stamp = Stamp(self.pid, epoch, self.next_seq)
            self.next_seq = (self.next_seq + batch.count) % self.circle


class Pipelines(RuleBasedStateMachine):
    circle = SEQUENCE_MODULUS

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(replicas=3)
        self.senders = [Sender(pid, self.circle) for pid in PIDS]
        self.network: list[tuple[Sent, Stamp, Token | None, int]] = []
        self.token: Token | None = None
        for pid in PIDS:
            self.driver.enrol(pid)

    @rule(who=st.integers(0, 2), which=st.integers(0, CACHE_BATCHES - 1), count=st.integers(1, 4))
    def send(self, who: int, which: int, count: int) -> None:
        """Send one of the unsettled batches, or a new one while there is room."""
        sender = self.senders[who]
        if which >= len(sender.unsettled):
            sender.make(count)
        batch = sender.unsettled[min(which, len(sender.unsettled) - 1)]
        self.network.append((batch, batch.stamp, self.token, sender.records))

    @rule(who=st.integers(0, 2), counts=st.lists(st.integers(1, 4), min_size=1, max_size=4))
    def flow(self, who: int, counts: list[int]) -> None:
        """For a while the network is kind to one producer."""
        sender = self.senders[who]
        for count in counts:
            if len(sender.unsettled) < CACHE_BATCHES:
                sender.make(count)
        self.drain(sender)

    @precondition(lambda self: self.network)
    @rule(data=st.data(), stays=st.booleans(), answer_is_lost=st.booleans())
    def deliver(self, data: st.DataObject, stays: bool, answer_is_lost: bool) -> None:
        """Any request in the network arrives; a copy of it may arrive again, and its answer may get lost."""
        place = data.draw(st.integers(0, len(self.network) - 1))
        batch, stamp, token, sent_at = self.network[place]
        if not stays:
            del self.network[place]
        sender = self.senders[PIDS.index(stamp.pid)]
        if sender.records - sent_at > self.circle // 4:
            return  # a request that old no longer names one batch: its numbers come round again
        result = self.driver.append(stamp, batch.count, token=token, content=batch.content)
        if token != self.token:
            assert not isinstance(result, Appended), "a token that was superseded let a batch pass"
        if not answer_is_lost and batch.stamp == stamp:
            self.hear(batch, result)
            sender.settle()

    def hear(self, batch: Sent, result: Result | StockadeError) -> None:
        if isinstance(result, Appended):
            batch.is_settled = True
        elif isinstance(result, ProducerFenced | InvalidProducerEpoch):
            self.learn(batch, result.fields["outcome"]["state"])
        else:
            assert isinstance(result, OutOfOrderSequence | ProducerBusy), result

    def learn(self, batch: Sent, outcome: str) -> None:
        """A certificate tells the truth; what it cannot tell is found in the log's tail (SEMANTICS 9.9)."""
        is_stored = batch.first < len(self.stored()[batch.stamp.pid])
        if outcome == "unknown":
            assert batch.is_settled or self.circle == SMALL_CIRCLE, (
                "a batch in flight is remembered, until numbers wrap"
            )
        else:
            assert (outcome == "committed") == is_stored
        batch.is_settled = is_stored

    @rule(who=st.sampled_from([0, 2]))
    def begin_epoch(self, who: int) -> None:
        """A named producer starts again: it learns what was stored, and renumbers the rest (SEMANTICS 9.6)."""
        sender = self.senders[who]
        self.driver.enrol(sender.pid, sender.epoch + 1)
        for batch in sender.unsettled:
            result = self.driver.append(batch.stamp, batch.count, token=self.token)
            assert isinstance(result, InvalidProducerEpoch)
            self.learn(batch, result.fields["outcome"]["state"])
        settled = [batch.is_settled for batch in sender.unsettled]
        assert settled == sorted(settled, reverse=True), "a later batch was stored and an earlier one was not"
        sender.renumber(sender.epoch + 1)

    @rule()
    def fence(self) -> None:
        """Another grant takes the slot; requests under way carry the old token."""
        epoch = self.driver.machine.topic_epoch + 1
        self.driver.seat(epoch, epoch, f"s{epoch}")
        self.token = Token(grant(epoch), epoch, f"s{epoch}")

    @rule(who=st.integers(0, 2))
    def restart(self, who: int) -> None:
        self.driver.machines[who] = self.driver.replayed()

    def stored(self) -> dict[int, list[int]]:
        """Numbers of the records in the log, by producer."""
        numbers: dict[int, list[int]] = {pid: [] for pid in PIDS}
        for message in self.driver.machine.log.read(0, 1 << 40).messages():
            for record in message.decode().split():
                pid, number = map(int, record.split(":"))
                numbers[pid].append(number)
        return numbers

    @invariant()
    def nothing_is_stored_twice_or_out_of_order(self) -> None:
        stored = self.stored()
        for sender in self.senders:
            numbers = stored[sender.pid]
            assert numbers == list(range(len(numbers)))
            first_unsettled = sender.unsettled[0].first if sender.unsettled else sender.records
            assert len(numbers) >= first_unsettled, "a batch was acknowledged and is not there"

    def teardown(self) -> None:
        """In the end the network is kind, and everything gets stored."""
        for sender in self.senders:
            self.drain(sender)
        self.nothing_is_stored_twice_or_out_of_order()
        assert state(self.driver.replayed()) == state(self.driver.machine)

    def drain(self, sender: Sender) -> None:
        for batch in sender.unsettled:
            result = self.driver.append(batch.stamp, batch.count, token=self.token, content=batch.content)
            assert isinstance(result, Appended), result
            batch.is_settled = True
        sender.settle()


class SmallCircle(Pipelines):
    circle = SMALL_CIRCLE


@pytest.fixture
def small_circle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sequence numbers that wrap after SMALL_CIRCLE records."""
    for module in (producers, invariants):
        monkeypatch.setattr(module, "SEQUENCE_MODULUS", SMALL_CIRCLE)
    monkeypatch.setattr(producers, "BEHIND_MAX", SMALL_CIRCLE // 2)
    yield


SETTINGS = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_each_record_is_stored_once_and_in_order() -> None:
    run_state_machine_as_test(Pipelines, settings=SETTINGS)


@pytest.mark.usefixtures("small_circle")
def test_each_record_is_stored_once_and_in_order_while_the_numbers_wrap() -> None:
    run_state_machine_as_test(SmallCircle, settings=SETTINGS)


def test_half_of_the_circle_is_the_longest_way_back() -> None:
    assert 2 * BEHIND_MAX == SEQUENCE_MODULUS
