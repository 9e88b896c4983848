"""Bugs of the library, and exceptions of the application's hooks: every delivery has its outcome all the same."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from stockade.client.api.client import Client
from stockade.client.errors import ClientFault
from stockade.client.producer.delivery import Delivery
from stockade.client.producer.metrics import Counts
from stockade.client.producer.producer import Producer
from stockade.client.producer.queue.batch import Batch, Receipt
from stockade.client.producer.queue.partition_queue import PartitionQueue
from stockade.client.producer.results import Results
from stockade.client.producer.sender import Sender
from stockade.client.session.held import HeldLease
from stockade.client.session.session import Session
from stockade.partition.errors import MessageTooLarge, ProducerFenced, StockadeError

from ..fake_cluster import FakeCluster, Fault
from .test_producer import config

ABSENT = {"state": "absent"}
"""The outcome of what the producer did not take."""


def bug(*_: Any, **__: Any) -> None:
    raise KeyError("injected")


def outcomes(cluster: FakeCluster, prepare: Callable[[Producer], object], **settings: Any) -> list[Any]:
    """Of three batches, sent one after the other, or why `send_batch` did not take it; a delivery that hangs ends the
    test.
    """
    cluster.create("t")

    async def run() -> list[Any]:
        producer = await Producer(config(cluster, **settings)).start()
        prepare(producer)
        ends: list[Any] = []
        async with asyncio.timeout(30):
            for value in (b"a", b"b", b"c"):
                try:
                    ends.append(await producer.send_batch("t", 0, [value]))
                except StockadeError as error:
                    ends.append(error)
            for place, end in enumerate(ends):
                if isinstance(end, Delivery):
                    with suppress(StockadeError):
                        await end
                    ends[place] = end.receipt or end.failure
            await producer.abort()
        return ends

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Counts, "settled"), (Sender, "_note_changes"), (Results, "settled"), (None, "watcher")],
)
def test_a_bug_while_an_outcome_is_reported_changes_no_outcome(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(producer: Producer) -> None:
        producer.on_outcome(bug) if owner is None else monkeypatch.setattr(owner, name, bug)

    ends = outcomes(cluster, prepare)
    assert [type(end) for end in ends] == [Receipt] * 3
    assert "injected" in caplog.text
    assert cluster.values("t") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("name", ["stored", "poll", "_slide", "_attempt"])
def test_a_bug_in_a_partition_queue_fails_its_batches_those_in_flight_as_unknown(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def once(*arguments: Any, **settings: Any) -> Any:
        monkeypatch.setattr(PartitionQueue, name, sound)
        return bug()

    sound = getattr(PartitionQueue, name)
    ends = outcomes(cluster, lambda _: monkeypatch.setattr(PartitionQueue, name, once))
    assert {type(end) for end in ends} <= {ClientFault, Receipt}
    assert isinstance(ends[0], ClientFault)
    stored = cluster.values("t")
    for value, end in zip((b"a", b"b", b"c"), ends, strict=True):
        state = "committed" if isinstance(end, Receipt) else end.fields.get("outcome", ABSENT)["state"]
        assert state == "unknown" or (value in stored) == (state == "committed")


def test_a_bug_while_a_refusal_is_noted_leaves_no_batch_behind(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.faults = [Fault.TOO_LARGE]
    ends = outcomes(cluster, lambda _: monkeypatch.setattr(PartitionQueue, "refused", bug))
    assert {type(end) for end in ends} <= {ClientFault, Receipt}
    assert ClientFault in map(type, ends)


def test_a_bug_while_a_batch_is_encoded_fails_it_as_absent(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = outcomes(cluster, lambda _: monkeypatch.setattr(Batch, "encode", bug))
    assert [type(end) for end in ends] == [ClientFault] * 3
    assert ends[0].fields["outcome"]["state"] == "absent"
    assert cluster.values("t") == []


def test_a_bug_while_a_new_epoch_is_requested_fails_the_batches_that_wait_for_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.faults = [Fault.TOO_LARGE]
    settings: dict[str, Any] = {"on_error": "continue", "inflight_batches_max": 1}
    ends = outcomes(cluster, lambda _: monkeypatch.setattr(Client, "init_producer", bug), **settings)
    assert [type(end) for end in ends] == [MessageTooLarge, ClientFault, ClientFault]


def test_a_producer_whose_decisions_had_a_bug_recovers(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("t")

    async def run() -> None:
        async with Producer(config(cluster)) as producer:
            with monkeypatch.context() as patch, pytest.raises(ClientFault):
                patch.setattr(PartitionQueue, "stored", bug)
                await (await producer.send("t", b"a"))
            tail = await producer.recover("t", 0)
            assert [record.value for record in tail.records] == [b"a"], "its outcome was unknown, and it is stored"
            assert (await (await producer.send("t", b"b"))).offset == 1

    asyncio.run(run())


def test_a_watcher_that_raises_hides_a_loss_from_no_other_one() -> None:
    lease, told = HeldLease(), list[StockadeError]()
    lease.on_lost(bug)
    lease.on_lost(told.append)
    lost = ProducerFenced()
    lease.lose(lost)
    assert (told, lease.lost.is_set()) == ([lost], True)


def test_a_bug_while_a_session_is_renewed_loses_it_instead_of_leaving_it_to_end_unseen(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with Client(config(cluster)) as client:
            monkeypatch.setattr(Client, "renew_session", bug)
            session = await Session(client, "s", ttl_ms=1000).open()
            async with asyncio.timeout(30):
                await session.lost.wait()
            assert isinstance(session.error, ClientFault)
            await session.close()

    asyncio.run(run())
