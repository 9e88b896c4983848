"""What a producer's batches may depend on beside a fence: the log's end, a message id, an ownership."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.api.conditions import Conditions
from stockade.client.config import ClientConfig
from stockade.client.producer.producer import Producer
from stockade.client.session.session import Session
from stockade.partition.errors import InvalidRequest, NotOwner, OffsetMismatch
from stockade.partition.records.batch import message_from_columns

from ..fake_cluster import FakeCluster, Fault


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, retry_backoff_ms=1, **settings)
        async with Producer(config, name="writer") as producer:
            await work(producer)

    asyncio.run(run())


def test_a_batch_is_stored_only_at_the_end_of_the_log_that_it_names(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        first = await (await producer.send_batch("t", 0, [b"a", b"b"], if_log_end=0))
        assert first.offset == 0
        with pytest.raises(OffsetMismatch) as refused:
            await (await producer.send_batch("t", 0, [b"late"], if_log_end=0))
        assert refused.value.fields["log_end"] == 2
        assert refused.value.fields["outcome"]["state"] == "absent"
        assert (await (await producer.send("t", b"c"))).offset == 2
        assert producer.identity.producer_epoch == 0, "a refused condition costs no epoch"

    produce(cluster, work)
    assert cluster.values("t") == [b"a", b"b", b"c"]


def test_a_conditional_batch_whose_answer_was_lost_is_stored_and_no_failure(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REPLY, Fault.TIMED_OUT, Fault.LOSE_REQUEST]

    async def work(producer: Producer) -> None:
        receipt = await (await producer.send_batch("t", 0, [b"a"], if_log_end=0))
        assert (receipt.offset, receipt.duplicate) == (0, True)

    produce(cluster, work)
    assert cluster.values("t") == [b"a"]


def test_a_message_id_stores_one_batch_from_any_producer(cluster: FakeCluster) -> None:
    cluster.create("t", dedupe_window_ms=60_000)

    async def work(producer: Producer) -> None:
        first = await (await producer.send_batch("t", 0, [b"a"], message_id="order-7"))
        async with Producer(producer.client.config, name="another") as other:
            again = await (await other.send_batch("t", 0, [b"a"], message_id="order-7"))
            assert (again.offset, again.duplicate) == (first.offset, True)
            assert (await (await other.send("t", b"b"))).offset == 1, "its sequence numbers go on"
        assert (await (await producer.send("t", b"c"))).offset == 2

    produce(cluster, work)
    assert cluster.values("t") == [b"a", b"b", b"c"]


def test_a_message_id_after_a_lost_answer_is_answered_once_and_the_next_batch_is_stored(cluster: FakeCluster) -> None:
    cluster.create("t", dedupe_window_ms=60_000)
    cluster.faults = [Fault.LOSE_REPLY]

    async def work(producer: Producer) -> None:
        assert (await (await producer.send_batch("t", 0, [b"a"], message_id="m"))).offset == 0
        assert (await (await producer.send("t", b"b"))).offset == 1
        assert producer.identity.producer_epoch == 1, "whose the duplicate was is not known"

    produce(cluster, work)
    assert cluster.values("t") == [b"a", b"b"]


def test_contradicting_conditions_are_refused_before_a_request(cluster: FakeCluster) -> None:
    cluster.create("t", 2)

    async def work(producer: Producer) -> None:
        with pytest.raises(InvalidRequest, match="dedupe_window_ms; `stockade topics alter` sets it"):
            _ = await producer.send_batch("t", 0, [b"a"], message_id="m")
        with pytest.raises(InvalidRequest, match="partition"):
            _ = await producer.send_batch("t", None, [b"a"], if_log_end=0)
        await (await producer.send("t", b"b", partition=0))

    produce(cluster, work)
    assert cluster.values("t") == [b"b"]


def test_only_the_owner_in_the_writer_group_writes(cluster: FakeCluster) -> None:
    cluster.create("t", 2, writer_group="writers")

    async def work(producer: Producer) -> None:
        async with Session(producer.client, "me") as session:
            owned = await session.own("writers", ["t/0", "t/1"])
            async with producer.owning(*owned):
                for partition in range(2):
                    await (await producer.send("t", b"mine", partition=partition))
            with pytest.raises(NotOwner):
                await (await producer.send("t", b"outside", partition=0))
            await producer.recover("t", 0)
            async with producer.owning(owned[0]):
                await (await producer.send("t", b"again", partition=0))

    produce(cluster, work)
    assert [cluster.values("t", number) for number in range(2)] == [[b"mine", b"again"], [b"mine"]]


def test_an_ownership_remembers_no_block_that_has_ended(cluster: FakeCluster) -> None:
    """It may be held for days, and each piece of work have a block of its own."""
    cluster.create("t", writer_group="writers")

    async def work(producer: Producer) -> None:
        async with Session(producer.client, "me") as session:
            owned = await session.own("writers", "t/0")
            before = len(owned._watchers)
            for _ in range(3):
                async with producer.owning(owned):
                    await (await producer.send("t", b"v"))
            assert len(owned._watchers) == before

    produce(cluster, work)


def test_records_of_a_writer_whose_ownership_was_taken_fail_in_order_with_not_owner(cluster: FakeCluster) -> None:
    cluster.create("t", writer_group="writers")

    async def work(producer: Producer) -> None:
        async with Session(producer.client, "me") as session, Session(producer.client, "you") as taker:
            owned = await session.own("writers", "t/0")
            with pytest.raises(NotOwner):
                async with producer.owning(owned):
                    await (await producer.send("t", b"mine"))
                    await taker.own("writers", "t/0", generation=0, sever="resource")
                    delivery = await producer.send("t", b"zombie")
                    await asyncio.Event().wait()
            with pytest.raises(NotOwner):
                await delivery
            assert owned.error is not None
            with pytest.raises(NotOwner):
                async with producer.owning(owned):
                    pytest.fail("it is lost")

    produce(cluster, work)
    assert cluster.values("t") == [b"mine"]


def test_the_last_batch_of_a_writer_that_lost_its_ownership_has_a_certified_outcome(cluster: FakeCluster) -> None:
    cluster.create("t", writer_group="writers")

    async def work(producer: Producer) -> None:
        async with Session(producer.client, "me") as session, Session(producer.client, "you") as taker:
            owned = await session.own("writers", "t/0")
            async with producer.owning(owned, cancel_on_loss=False):
                cluster.faults = [Fault.LOSE_REPLY, Fault.HOLD]
                posts = len(cluster.paths("POST"))
                delivery = await producer.send("t", b"stored")
                await cluster.seen("POST", posts + 2)  # the first attempt is stored, and a second one waits
                await taker.own("writers", "t/0", generation=0, sever="resource")
                cluster.release_held()
                with pytest.raises(NotOwner) as refused:
                    await delivery
        assert refused.value.fields["outcome"]["state"] == "committed"

    produce(cluster, work)
    assert cluster.values("t") == [b"stored"]


def test_an_ownership_that_guards_nothing_there_is_refused(cluster: FakeCluster) -> None:
    cluster.create("t", writer_group="writers")

    async def work(producer: Producer) -> None:
        async with Session(producer.client, "me") as session:
            for group, resource in [("others", "t/0"), ("writers", "t"), ("writers", "t/x")]:
                owned = await session.own(group, resource)
                with pytest.raises(InvalidRequest):
                    async with producer.owning(owned):
                        pytest.fail("it owns nothing there")

    produce(cluster, work)


def test_a_single_append_takes_the_same_conditions(cluster: FakeCluster) -> None:
    cluster.create("t", writer_group="writers", dedupe_window_ms=60_000)
    message = message_from_columns([None], [b"v"], [0], None)

    async def work(producer: Producer) -> None:
        client = producer.client
        async with Session(client, "me") as session:
            owned = await session.own("writers", "t/0")
            with pytest.raises(NotOwner):
                await client.append("t", 0, message)
            conditions = Conditions(if_log_end=0, message_id="m", fence_epoch=owned.fence_epoch)
            assert not (await client.append("t", 0, message, conditions=conditions)).duplicate
            assert (await client.append("t", 0, message, conditions=conditions)).duplicate
            with pytest.raises(OffsetMismatch):
                await client.append("t", 0, message, conditions=conditions._replace(message_id="n"))

    produce(cluster, work)
    assert cluster.values("t") == [b"v"]
