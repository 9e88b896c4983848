"""Writes are counted, and the latest refused ones are remembered; what was not decided counts as neither."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from stockade.cluster.front.writes import REFUSED_WRITES_MAX, Writes, leading_partition
from stockade.cluster.model import Conditions, Leader
from stockade.partition.commands import Appended, Stamp, Token
from stockade.partition.errors import (
    InternalError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OutOfOrderSequence,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
    StorageQuotaExceeded,
)

CONDITIONS = Conditions(1, Token("g-1-1", 7, "secret"), Stamp(5, 1, 9), 3, "m", 2)
BATCH: Any = SimpleNamespace(count=3, message=b"12345")


def partition(verdict: Appended | StockadeError, leader: Leader | None = None) -> Any:
    async def append(*_: Any) -> Appended:
        if isinstance(verdict, StockadeError):
            raise verdict
        return verdict

    tenure = SimpleNamespace(producer_name="alice", client_id="pod-a")
    return SimpleNamespace(
        topic="orders", partition=4, append=append, leader=lambda: leader, tenure={"g-1-1": tenure}.get
    )


def append(writes: Writes, verdict: Appended | StockadeError) -> Appended:
    return asyncio.run(writes.append("r-1", partition(verdict), BATCH, CONDITIONS))


@pytest.mark.parametrize(("duplicate", "counted"), [(False, (3, 5)), (True, (0, 0))])
def test_a_stored_batch_is_counted_once(duplicate: bool, counted: tuple[int, int]) -> None:
    writes = Writes()
    append(writes, Appended(0, 2, duplicate, 0, 1))
    assert (writes.records, writes.bytes) == counted


def test_a_refused_write_is_counted_and_remembered_without_its_session() -> None:
    writes = Writes()
    with pytest.raises(ProducerFenced):
        append(writes, ProducerFenced(current_epoch=8, reason="superseded"))
    assert writes.refusals == {("PRODUCER_FENCED", "superseded"): 1}
    (refused,) = writes.latest_refused(10)
    assert refused.at_ms > 0
    where = ("r-1", "orders", 4, "PRODUCER_FENCED", "superseded")
    assert structs.astuple(refused)[1:] == (*where, "g-1-1", 7, 5, 1, 9, 8, None, None, "alice", "pod-a")


@pytest.mark.parametrize(
    "undecided", [RequestTimedOut(), InternalError(), LeaderNotAvailable("none"), NotLeaderOrFollower(None, None)]
)
def test_a_write_without_a_verdict_is_not_refused(undecided: StockadeError) -> None:
    writes = Writes()
    with pytest.raises(type(undecided)):
        append(writes, undecided)
    assert (writes.refusals, writes.latest_refused(10)) == ({}, [])


def test_the_latest_refused_writes_come_first_and_are_bounded() -> None:
    writes = Writes()
    for number in range(REFUSED_WRITES_MAX + 5):
        refusal = OutOfOrderSequence(reason="gap", expected_seq=number)
        writes.refused(f"r-{number}", partition(refusal), refusal, None)
    latest = writes.latest_refused(REFUSED_WRITES_MAX + 5)
    assert [each.request for each in latest[:2]] == [f"r-{REFUSED_WRITES_MAX + 4}", f"r-{REFUSED_WRITES_MAX + 3}"]
    assert len(latest) == REFUSED_WRITES_MAX
    assert writes.refusals.total() == REFUSED_WRITES_MAX + 5


def test_many_refusals_for_want_of_room_push_out_no_zombie() -> None:
    writes = Writes()
    zombie, full = ProducerFenced(current_epoch=8, reason="superseded"), StorageQuotaExceeded(10, 10)
    for number in range(2 * REFUSED_WRITES_MAX):
        refusal = zombie if number in {0, REFUSED_WRITES_MAX} else full
        writes.refused(f"r-{number}", partition(refusal), refusal, None)
    latest = writes.latest_refused(REFUSED_WRITES_MAX)
    numbers = [int(each.request.removeprefix("r-")) for each in latest]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) == REFUSED_WRITES_MAX
    assert numbers[-1] == 0
    assert REFUSED_WRITES_MAX in numbers


@pytest.mark.parametrize(("node_id", "is_led_elsewhere"), [("n1", False), ("n2", True), (None, False)])
def test_a_partition_that_is_known_to_be_led_elsewhere_is_not_written_here(
    node_id: str | None, is_led_elsewhere: bool
) -> None:
    found = partition(RequestTimedOut(), Leader(node_id, "http://leader", 3))

    async def find(*_: Any) -> Any:
        return found

    service: Any = SimpleNamespace(node_id="n1", partition=find)
    if is_led_elsewhere:
        with pytest.raises(NotLeaderOrFollower) as moved:
            asyncio.run(leading_partition(service, "orders", 4, None))
        assert (moved.value.fields["leader"], moved.value.fields["leader_term"]) == ("http://leader", 3)
    else:
        assert asyncio.run(leading_partition(service, "orders", 4, None)) is found
