"""Which connection goes when a node has as many as it takes."""

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from waiting import until

from stockade.cli.node.descriptors import DESCRIPTORS_MIN, RESERVED_MIN, bounds
from stockade.cluster.config import ConfigError, LimitsSection
from stockade.http_api.request.connections import ConnectionBounds, Connections, Descriptors, network_of
from stockade.partition.errors import ThrottlingQuotaExceeded

from ..conversation import RECORDS, Conversation, nodes

FEW = ConnectionBounds(connections_max=4, address_connections_max=3, descriptors_max=100)


@contextmanager
def closing_descriptor() -> Iterator[int]:
    """The lowest free descriptor, which is open inside."""
    found = os.open(os.devnull, os.O_RDONLY)
    try:
        yield found
    finally:
        os.close(found)


class Caller:
    """A connection whose state the test sets."""

    def __init__(self, *, has_asked: bool = False, is_idle: bool = True, is_overdue: bool = False) -> None:
        self.has_asked, self.is_idle, self.is_overdue = has_asked, is_idle, is_overdue
        self.is_evicted = False

    def overdue(self, now_s: float) -> str | None:
        return "silent" if self.is_overdue else None

    def evict(self) -> None:
        assert not self.is_evicted
        self.is_evicted = True


def opened(connections: Connections, *callers: Caller, host: str = "10.0.0.1") -> list[bool]:
    return [connections.opened(caller, host, 10) for caller in callers]


def test_an_address_at_its_bound_loses_its_oldest_connection_that_has_not_asked() -> None:
    connections = Connections(FEW)
    asked, first, second, third = Caller(has_asked=True), Caller(), Caller(), Caller()
    assert opened(connections, asked, first, second, third) == [True] * 4
    assert [caller.is_evicted for caller in (asked, first, second, third)] == [False, True, False, False]
    assert (len(connections), connections.ended) == (3, {"evicted_address": 1})


def test_then_its_oldest_idle_one_and_never_a_busy_one() -> None:
    connections = Connections(FEW)
    busy, idle, other = Caller(has_asked=True, is_idle=False), Caller(has_asked=True), Caller(has_asked=True)
    assert opened(connections, busy, idle, other, Caller()) == [True] * 4
    assert [caller.is_evicted for caller in (busy, idle, other)] == [False, True, False]


def test_when_all_are_busy_the_new_one_is_refused_and_not_counted() -> None:
    connections = Connections(FEW)
    busy = [Caller(has_asked=True, is_idle=False) for _ in range(3)]
    assert opened(connections, *busy, Caller()) == [True, True, True, False]
    assert (len(connections), connections.ended) == (3, {"refused_address": 1})
    connections.closed(busy[0])
    assert opened(connections, Caller()) == [True]


def test_at_the_bound_of_all_the_address_with_the_most_loses_one() -> None:
    connections = Connections(FEW)
    alone, many = Caller(), [Caller() for _ in range(3)]
    opened(connections, alone, host="10.0.0.2")
    opened(connections, *many)
    assert opened(connections, Caller(), host="10.0.0.3") == [True]
    assert [alone.is_evicted, *[caller.is_evicted for caller in many]] == [False, True, False, False]
    assert connections.ended == {"evicted_connections": 1}


def test_a_descriptor_of_the_reserve_costs_a_connection_below_the_other_bounds() -> None:
    connections = Connections(FEW)
    first = Caller()
    assert connections.opened(first, "10.0.0.1", 99)
    assert connections.opened(Caller(), "10.0.0.1", 100)
    assert first.is_evicted and connections.ended == {"evicted_descriptors": 1}
    alone = Connections(FEW)
    assert not alone.opened(Caller(), "10.0.0.1", 100)
    assert len(alone) == 0


def test_the_log_says_when_files_of_the_node_leave_no_descriptor_to_clients(caplog: pytest.LogCaptureFixture) -> None:
    """Each client was answered that there are too many connections, for good, and nothing said what to do."""
    connections = Connections(FEW)
    for now_s, number in ((0.0, 99), (1.0, 100), (2.0, 100), (2.5, 100), (61.0, 100), (62.0, 99)):
        caller = Caller()
        connections.opened(caller, "10.0.0.1", number)
        connections.closed(caller)
        connections.sweep(now_s)
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in told] == [
        "1 connections of clients were refused",
        "3 connections of clients were refused",
    ]
    assert "below 100, the bound for clients, who have 0 of them" in told[0]


def test_connections_whose_time_is_over_are_closed() -> None:
    connections = Connections(FEW)
    late, fine = Caller(is_overdue=True), Caller()
    opened(connections, late, fine)
    connections.sweep(0.0)
    assert (late.is_evicted, fine.is_evicted, len(connections)) == (True, False, 1)
    connections.closed(late)  # the loop says so later
    assert len(connections) == 1


def test_the_crowd_with_the_most_is_known_after_any_order_of_openings_and_ends() -> None:
    connections = Connections(ConnectionBounds(6, 6, 100))
    one, two = [Caller() for _ in range(4)], [Caller() for _ in range(2)]
    opened(connections, *one, host="10.0.0.1")
    opened(connections, *two, host="10.0.0.2")
    for caller in one[:3]:
        connections.closed(caller)
    opened(connections, Caller(), Caller(), Caller(), Caller(), host="10.0.0.3")
    assert [caller.is_evicted for caller in (*one, *two)] == [False] * 6
    assert connections.ended == {"evicted_connections": 1}


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:9::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown address", "unknown address"),
    ],
)
def test_a_host_counts_as_one_address(host: str, network: str) -> None:
    assert network_of(host) == network


def test_a_node_without_enough_descriptors_does_not_start_and_says_how_many_it_needs() -> None:
    with pytest.raises(ConfigError, match=f"the limit is {DESCRIPTORS_MIN - 1}, and a node needs {DESCRIPTORS_MIN}"):
        bounds(LimitsSection(), DESCRIPTORS_MIN - 1)
    least = DESCRIPTORS_MIN - RESERVED_MIN
    assert bounds(LimitsSection(), DESCRIPTORS_MIN) == (least, least, least, least + RESERVED_MIN // 2)
    assert bounds(LimitsSection(), 1 << 20) == (10_000, 5_000, (1 << 20) * 3 // 4, (1 << 20) * 7 // 8)


def test_files_of_answers_leave_the_descriptors_of_the_log_free() -> None:
    with closing_descriptor() as free:
        pass
    assert Descriptors(FEW).opened(lambda: os.open(os.devnull, os.O_RDONLY)) == free
    os.close(free)
    tight = Descriptors(FEW._replace(descriptors_max=free - 1, forwarding_descriptors_max=free + 1))
    with pytest.raises(ThrottlingQuotaExceeded):
        tight.opened(lambda: os.open(os.devnull, os.O_RDONLY))
    with closing_descriptor() as again:
        assert again == free, "the descriptor that was refused is closed"
        assert not tight.has_room()
    assert tight.has_room()
    with tight.dialling():
        assert not tight.has_room()
        with pytest.raises(OSError, match="open files"), tight.dialling():
            pass
    assert tight.has_room()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_request_for_which_there_is_no_descriptor_at_all_may_be_sent_again(number: int) -> None:
    def refused() -> int:
        raise OSError(number, os.strerror(number))

    with pytest.raises(ThrottlingQuotaExceeded):
        Descriptors().opened(refused)


def test_an_error_of_a_file_is_no_lack_of_descriptors() -> None:
    with pytest.raises(FileNotFoundError):
        Descriptors().opened(lambda: os.open("/nowhere", os.O_RDONLY))


def test_the_answer_on_a_connection_that_is_refused_counts_as_a_refusal() -> None:
    async def test() -> None:
        async with nodes(1, bounds=ConnectionBounds(1, 1, 1 << 20)) as (node,):
            await node.topic()
            asking = asyncio.create_task(node.call("GET", f"{RECORDS}?max_wait_ms=60000"))
            await until(lambda: node.server.front.in_flight.requests.used == 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            assert (await reader.read()).startswith(b"HTTP/1.1 429 ")
            writer.close()
            node.service.shared.wake()
            assert (await asking).status == 200
            counted = 'stockade_http_refusals_total{code="THROTTLING_QUOTA_EXCEEDED"} 1.0'
            assert counted in (await node.server.metrics.text(names=True)).decode()

    asyncio.run(test())


def test_a_node_takes_a_new_client_when_idle_connections_fill_it() -> None:
    async def test() -> None:
        async with nodes(1, bounds=ConnectionBounds(8, 8, 1 << 20)) as (node,):
            idle = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(8)]
            assert (await node.call("GET", "/healthz")).status == 200
            assert await idle[0][0].read() == b""
            assert 'stockade_http_ended_connections_total{reason="evicted_address"} 1.0' in await metrics(node)
            assert "stockade_http_connections 8.0" in await metrics(node)
            for _, writer in idle:
                writer.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("bound", "sent", "reason"),
    [
        ("FIRST_BYTE_S", b"", "silent"),
        ("HEAD_S", b"GET /healthz HTTP/1.1\r\nHost: ", "head"),
        ("IDLE_S", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "idle"),
    ],
)
def test_a_connection_that_takes_too_long_is_closed(
    monkeypatch: pytest.MonkeyPatch, bound: str, sent: bytes, reason: str
) -> None:
    monkeypatch.setattr("stockade.http_api.request.connections.SWEEP_S", 0.01)
    for name in ("FIRST_BYTE_S", "HEAD_S", "IDLE_S"):
        monkeypatch.setattr(f"stockade.http_api.server.{name}", 0.01 if name == bound else 3600.0)

    async def test() -> None:
        async with nodes(1) as (node,):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(sent)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 200") == sent.endswith(b"\r\n\r\n")
            writer.close()
            if reason != "idle":  # aiohttp's own clock may close that one first
                assert f'stockade_http_ended_connections_total{{reason="{reason}"}} 1.0' in await metrics(node)

    asyncio.run(test())


async def metrics(node: Conversation) -> str:
    return (await node.call("GET", "/metrics")).body.decode()
