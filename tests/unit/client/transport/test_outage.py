"""Calls without an answer: one warning after a second, from every kind of call, and one bound for all of them."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import until

from stockade import Client, ClientConfig, Consumer, Producer, Session
from stockade.client.errors import ClusterUnreachable
from stockade.client.transport import outage
from stockade.client.transport.outage import NODES_NAMED_MAX, WARN_AFTER_S, WARN_AGAIN_S, Call, Outage
from stockade.partition.errors import LeaderNotAvailable, OutOfOrderSequence, StockadeError

from ..fake_cluster import FakeCluster, Fault


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(outage, "WARN_AFTER_S", 0.05)
    caplog.set_level(logging.INFO, logger="stockade.client")


def nowhere() -> ClientConfig:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    return ClientConfig(bootstrap=url, delivery_timeout_ms=400, request_timeout_ms=300, retry_backoff_ms_max=100)


async def calls(config: ClientConfig) -> dict[str, Callable[[], Awaitable[Any]]]:
    async def group() -> None:
        async with Consumer(config) as consumer, consumer.group("g", "t"):
            raise AssertionError

    async def session() -> None:
        async with Client(config) as client, Session(client, "s"):
            raise AssertionError

    async def read() -> None:
        async with Consumer(config) as consumer:
            _ = [record async for record in consumer.read("t")]

    async def client() -> None:
        async with Client(config) as client:
            await client.topics()

    return {"client": client, "read": read, "group": group, "session": session, "producer": Producer(config).start}


@pytest.mark.parametrize("kind", ["client", "read", "group", "session", "producer"])
def test_without_a_cluster_every_call_warns_once_and_fails_after_one_bound(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = nowhere()

    async def run() -> float:
        use = (await calls(config))[kind]
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(ClusterUnreachable, match="Connection refused"):
            await use()
        return asyncio.get_running_loop().time() - begun_s

    assert asyncio.run(run()) > 0.2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{config.bootstrap[0]} (" in warning
    assert "The client goes on for 0 s, then the call fails" in warning


def test_a_majority_that_stands_still_is_warned_of_and_its_return_is_told(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t")
    cluster.faults = [Fault.HOLD]
    monkeypatch.setattr(outage, "WARN_AFTER_S", 60.0)  # of the calls before; on a slow machine they take their time

    async def run() -> None:
        async with Producer(ClientConfig(bootstrap=cluster.nodes, linger_ms=0)) as producer:
            _ = await producer.client.metadata.topic("t")
            monkeypatch.setattr(outage, "WARN_AFTER_S", 0.05)
            delivery = await producer.send("t", b"v")
            await until(lambda: "an append to t/0 is not done after" in caplog.text)
            cluster.release_held()
            await delivery

    asyncio.run(run())
    warning, told = [record for record in caplog.records if "an append to t/0" in record.getMessage()]
    assert "(no answer yet)" in warning.getMessage()
    assert "The client goes on for 120 s" in warning.getMessage()
    assert told.levelno == logging.INFO
    assert "an append to t/0 was done after" in told.getMessage()


def test_a_call_remembers_the_last_error_of_each_node(cluster: FakeCluster) -> None:
    dead = nowhere().bootstrap[0]
    cluster.create("t")
    cluster.read_faults = [Fault.UNAVAILABLE]
    call = Call("a read", 0.0, 1.0, 1.0)

    async def run() -> None:
        async with Client(ClientConfig(bootstrap=(dead, cluster.nodes[0]))) as client:
            with outage.on_behalf_of(call), pytest.raises(LeaderNotAvailable):
                await client.fetch("t", 0, 0, max_bytes=1)

    asyncio.run(run())
    assert list(call.nodes) == [dead, cluster.nodes[0]]
    assert call.nodes[dead] == "Connection refused"
    assert call.nodes[cluster.nodes[0]].startswith("LEADER_NOT_AVAILABLE: ")


def told_now(client: Client) -> str:
    """What the log would say now of the one call that waits."""
    (call,) = client.outage._alarm.entries
    return outage.warning(call, 0, asyncio.get_running_loop().time())


def test_a_node_that_answered_is_not_said_to_give_no_answer(cluster: FakeCluster) -> None:
    """The slot is held by another session: the node says so at each attempt."""
    cluster.create("t")
    cluster.take_over("t")

    async def run() -> None:
        config = ClientConfig(bootstrap=cluster.nodes, linger_ms=0, retry_backoff_ms=1, retry_backoff_ms_max=2)
        producer = await Producer(config).start()
        _ = await producer.send("t", b"v")
        await cluster.seen("POST", 3)  # the producer's id, and two attempts
        text = told_now(producer.client)
        await producer.abort()
        assert text.startswith("an append to t/0 is not done after ")
        assert f"{cluster.nodes[0]} (PRODUCER_BUSY: " in text
        assert text.count("PRODUCER_BUSY") == 1
        assert "no answer" not in text

    asyncio.run(run())


def test_a_warning_names_the_node_that_this_call_waits_for_also_when_the_node_answers_other_calls(
    cluster: FakeCluster,
) -> None:
    """The answers of other calls took the node out of the warning."""
    cluster.create("t")
    cluster.faults = [Fault.HOLD]

    async def run() -> None:
        async with Client(ClientConfig(bootstrap=cluster.nodes[0])) as client, Producer(client) as producer:
            delivery = await producer.send("t", b"v")
            await cluster.seen("POST", 2)
            assert await client.topics()
            assert f"{cluster.nodes[0]} (no answer yet)" in told_now(client)
            cluster.release_held()
            await delivery

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "reason"), [(Fault.HOLD, "(no answer yet)"), (Fault.THROTTLED, "(THROTTLING_QUOTA_EXCEEDED: ")]
)
def test_a_warning_names_what_holds_up_the_oldest_batch_and_not_what_the_later_ones_in_flight_met_with(
    cluster: FakeCluster, fault: Fault, reason: str
) -> None:
    """It named OUT_OF_ORDER_SEQUENCE_NUMBER: the batches behind the one that waited for quota had been let in."""
    cluster.create("t")
    cluster.faults = [fault]

    async def run() -> None:
        producer = await Producer(ClientConfig(bootstrap=cluster.nodes[0], on_error="continue")).start()
        for value in (b"oldest", b"later"):
            _ = await producer.send_batch("t", 0, [value])
        [route] = producer._running.routes
        await until(lambda: any(isinstance(batch.last_error, OutOfOrderSequence) for batch in route.queue.window))
        text = told_now(producer.client)
        await producer.abort()
        assert f"{cluster.nodes[0]} {reason}" in text
        assert "OUT_OF_ORDER" not in text

    asyncio.run(run())


class Clock:
    """Stands for the loop: time moves when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: dict[str, str]) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(outage, "WARN_AFTER_S", WARN_AFTER_S)
        monkeypatch.setattr("asyncio.get_running_loop", lambda: self)
        self.nodes = nodes
        self.outage = Outage()

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, wake: Callable[[], None]) -> "Clock":
        return self

    def cancel(self) -> None:
        pass

    def move(self, to_s: float) -> None:
        self.now_s = to_s
        self.outage._alarm._wake()


def test_many_calls_are_one_warning_and_another_one_comes_after_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch, {f"http://n{number}": "down" for number in range(NODES_NAMED_MAX + 2)})
    first = clock.outage.begin("the first", 120.0)
    first.error = LeaderNotAvailable("no majority")
    first.nodes = clock.nodes
    clock.now_s = 0.001
    second = clock.outage.begin("the second", 120.0)
    quiet = clock.outage.begin("a poll", 120.0, quiet_s=10.0)
    clock.move(WARN_AFTER_S - 0.01)
    assert not caplog.records
    told_s = WARN_AFTER_S + 0.001
    clock.move(told_s)
    assert len(caplog.records) == 1
    text = caplog.records[0].getMessage()
    assert text.startswith("the first is not done after 1.0 s: http://n0 (down), ")
    assert (
        f"http://n{NODES_NAMED_MAX - 1} (down) and 2 more nodes; 1 more call waits; the last attempt: LEADER_NOT"
        in text
    )
    assert text.endswith("no majority. The client goes on for 119 s, then the call fails")
    late = clock.outage.begin("a late one", 120.0)
    clock.move(told_s + WARN_AGAIN_S - 0.01)
    assert len(caplog.records) == 1, "no second warning for those two, and none before its time"
    clock.move(told_s + WARN_AGAIN_S)
    assert [record.getMessage()[:10] for record in caplog.records[1:]] == ["a poll is "]
    for call in (first, second, quiet, late):
        clock.outage.end(call, is_answered=True)
    assert sum(record.levelno == logging.INFO for record in caplog.records) == 4


def test_nodes_that_cannot_be_reached_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the last attempt names the same nodes with the same reasons."""
    clock = Clock(monkeypatch, {"http://n0": "Connection refused", "http://n1": "Connection refused"})
    call = clock.outage.begin("a read", 120.0)
    call.error = ClusterUnreachable("no node answers: http://n0 (Connection refused), http://n1 (Connection refused)")
    assert outage.warning(call, 0, 1.0).count("the last attempt: CLUSTER_UNREACHABLE") == 1
    call.nodes = clock.nodes
    assert outage.warning(call, 2, 1.0) == (
        "a read is not done after 1.0 s: http://n0 (Connection refused), http://n1 (Connection refused);"
        " 2 more calls wait. The client goes on for 119 s, then the call fails"
    )


def test_a_call_that_is_answered_in_time_or_gets_part_of_its_answer_is_not_mentioned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch, {})
    with clock.outage.over("quick", 120.0):
        clock.move(WARN_AFTER_S - 0.01)
    call = clock.outage.begin("a stream", 120.0)
    for _ in range(9):
        clock.outage.moved(call, 120.0)
        clock.move(clock.now_s + WARN_AFTER_S - 0.01)
    with pytest.raises(StockadeError), clock.outage.over("refused", 120.0):
        raise StockadeErrorOf("final")
    assert not caplog.records
    assert isinstance(call, Call)


class StockadeErrorOf(StockadeError, code="X", http_status=400, title="x"):
    """A refusal that is final."""
