"""Connections between nodes over real sockets: which nodes are admitted, what arrives, and what happens on failures."""

import asyncio
import logging
import struct

import pytest

from stockade.raft.messages import AppendAck, AppendEntries, Hello, Message, Ping, RaftMessage, Refusal, TimeoutNow
from stockade.raft.net.codec import PROTOCOL_VERSION, InvalidFrame, encode
from stockade.raft.net.connection import HELLO_BYTES_MAX
from stockade.raft.net.handshake import stranger_to_drop
from stockade.raft.net.liveness import LivenessTimeouts
from stockade.raft.net.transport import Address, Transport

from ..transports import UNSET, Node, Peer, Run, hello


def test_frames_arrive_whole_and_in_order_in_both_directions(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        async with Node("n1", addresses) as n1, Node("n2", addresses) as n2:
            await n1.until(lambda: n1.events == ["up n2"])
            await n2.until(lambda: n2.events == ["up n1"])
            assert (n1.transport.connected, n2.transport.connected) == ({"n2"}, {"n1"})
            large = AppendEntries(1, 0, 0, 0, 1, [(1, 1, bytes(20 << 20))])
            sent: list[RaftMessage] = [TimeoutNow(1), large, AppendAck(1, True, 2, 3), *map(TimeoutNow, range(2, 100))]
            for message in sent:
                assert n1.transport.send(7, "n2", message)
                assert n2.transport.send(8, "n1", message)
            await n1.until(lambda: len(n1.frames) == len(sent))
            await n2.until(lambda: len(n2.frames) == len(sent))
            assert n1.frames == [("n2", 8, message) for message in sent]
            assert n2.frames == [("n1", 7, message) for message in sent]

    run(scenario)


def test_three_nodes_have_one_connection_for_each_pair(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {"n1": UNSET, "n2": UNSET, "n3": UNSET}
        async with Node("n1", addresses) as n1, Node("n2", addresses) as n2, Node("n3", addresses) as n3:
            for node in (n1, n2, n3):
                await node.until_events(2)
            assert set(n1.events) == {"up n2", "up n3"}
            assert set(n2.events) == {"up n1", "up n3"}
            assert set(n3.events) == {"up n1", "up n2"}

    run(scenario)


def test_sending_to_a_node_that_is_not_connected_says_so(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1:
            assert not n1.transport.send(1, "n2", TimeoutNow(1))
            assert not n1.transport.send(1, "unheard of", TimeoutNow(1))

    run(scenario)


@pytest.mark.parametrize(
    "introduction, why",
    [
        (hello("n2", version=9), f"it speaks version 9 of the protocol, n1 speaks 6 to {PROTOCOL_VERSION}"),
        (hello("n2", cluster_id="barn"), "it belongs to cluster 'barn', n1 to 'house'"),
        (hello("n7"), "n1 knows no node 'n7': it was removed, or not added yet"),
        (hello("n0"), "'n0' must not dial 'n1'"),
        (hello("n1"), "'n1' must not dial 'n1'"),
    ],
)
def test_a_rejected_node_is_told_the_reason_and_logged_once(
    run: Run, caplog: pytest.LogCaptureFixture, introduction: Hello, why: str
) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n0": UNSET, "n2": UNSET}) as n1:
            for _ in range(3):
                async with await Peer.dial(n1, introduction) as peer:
                    refusal = await peer.hear()
                    assert isinstance(refusal, Refusal) and why in refusal.reason
                    assert await peer.hear() is None
            assert n1.events == []

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert [why in record.message for record in caplog.records].count(True) == 1


class Impostor:
    """Listens where a node should, and answers each hello with ``answer``."""

    def __init__(self, answer: Message) -> None:
        self.answer = answer
        self.dials = 0
        self.changed = asyncio.Event()

    async def __aenter__(self) -> "Impostor":
        self.server = await asyncio.start_server(self.accept, *UNSET)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    @property
    def address(self) -> Address:
        host, port = self.server.sockets[0].getsockname()
        return host, port

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        assert isinstance(await peer.hear(), Hello)
        self.dials += 1
        peer.say(self.answer)
        while await peer.hear() is not None:
            pass
        self.changed.set()
        writer.close()


@pytest.mark.parametrize(
    "answer, why",
    [
        (hello("n1", version=9), "speaks version 9"),
        (hello("n1", cluster_id="barn"), "belongs to cluster 'barn'"),
        (hello("n0"), "it is node 'n0', not 'n1'"),
        (Refusal("no room"), "n1 at 127.0.0.1 refuses this node: no room"),
    ],
)
def test_a_dialled_node_that_is_another_is_not_connected_to_and_dialled_again(
    run: Run, caplog: pytest.LogCaptureFixture, answer: Message, why: str
) -> None:
    async def scenario() -> None:
        async with Impostor(answer) as impostor, Node("n2", {"n0": UNSET, "n1": impostor.address}) as n2:
            while impostor.dials < 3:
                impostor.changed.clear()
                await impostor.changed.wait()
            assert n2.events == []

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert [why in record.message for record in caplog.records].count(True) == 1


def test_a_restarted_peer_is_connected_again_and_ups_and_downs_alternate(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {"n1": UNSET, "n2": UNSET}
        async with Node("n2", addresses) as n2:
            for _ in range(3):
                async with Node("n1", addresses) as n1:
                    await n1.until_events(1)
                    await n2.until(lambda: n2.transport.connected == {"n1"})
                assert n1.events == ["up n2", "down n2"]
                await n2.until(lambda: not n2.transport.connected)
            assert n2.events == ["up n1", "down n1"] * 3
            assert n2.transport.connected == set()

    run(scenario)


def test_the_newer_of_two_connections_wins_and_the_older_is_closed(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1:
            async with await Peer.dial(n1, hello("n2")) as older:
                assert await older.hear() == hello("n1")
                async with await Peer.dial(n1, hello("n2")) as newer:
                    assert await newer.hear() == hello("n1")
                    assert n1.events == ["up n2", "down n2", "up n2"]
                    assert await older.hear() is None
                    newer.say(TimeoutNow(5), group_id=3)
                    await n1.until(lambda: n1.frames == [("n2", 3, TimeoutNow(5))])
                    assert n1.transport.send(3, "n2", TimeoutNow(6))
                    assert await newer.hear() == TimeoutNow(6)
            await n1.until(lambda: n1.events == ["up n2", "down n2", "up n2", "down n2"])

    run(scenario)


def test_a_silent_peer_is_dropped(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            Node("n1", {"n2": UNSET}, times=LivenessTimeouts(heartbeat_s=0.02, dead_s=0.1)) as n1,
            await Peer.dial(n1, hello("n2")) as peer,
        ):
            await n1.until(lambda: n1.events == ["up n2", "down n2"])
            assert await peer.hear() == hello("n1")
            while (last := await peer.hear()) is not None:
                assert last == Ping()

    run(scenario)
    assert "n2 at 127.0.0.1: silent for" in caplog.text


def test_a_connection_that_says_nothing_at_all_is_dropped(run: Run) -> None:
    async def scenario() -> None:
        async with (
            Node("n1", {}, times=LivenessTimeouts(heartbeat_s=0.02, dead_s=0.1)) as n1,
            await Peer.dial(n1) as stranger,
        ):
            assert await stranger.hear() is None

    run(scenario)


def test_a_connection_without_a_hello_in_time_is_dropped_although_it_sends_bytes(run: Run) -> None:
    async def scenario() -> None:
        async with (
            Node("n1", {"n2": UNSET}, times=LivenessTimeouts(heartbeat_s=0.02, dead_s=0.2)) as n1,
            await Peer.dial(n1) as slow,
        ):
            ended = asyncio.create_task(slow.hear())
            for byte in struct.pack("<IBI", HELLO_BYTES_MAX - 4, 10, 0) + bytes(HELLO_BYTES_MAX):
                if (await asyncio.wait([ended], timeout=0.005))[0]:
                    break
                slow.writer.write(bytes([byte]))
            assert await ended is None
            assert n1.events == []

    run(scenario)


def test_a_peer_that_only_pings_stays_connected(run: Run) -> None:
    async def scenario() -> None:
        async with (
            Node("n1", {"n2": UNSET}, times=LivenessTimeouts(heartbeat_s=0.02, dead_s=0.4)) as n1,
            await Peer.dial(n1, hello("n2")) as peer,
        ):
            assert await peer.hear() == hello("n1")
            for _ in range(40):  # 0.8 s, twice the silence that is allowed
                assert await peer.hear() == Ping()
                peer.say(Ping())
            assert n1.events == ["up n2"]

    run(scenario)


def test_two_idle_nodes_stay_connected(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        times = LivenessTimeouts(heartbeat_s=0.02, dead_s=0.4)
        async with Node("n1", addresses, times) as n1, Node("n2", addresses, times) as n2:
            await n2.until(lambda: n2.events == ["up n1"])
            async with Node("n0", {"n9": UNSET}, times) as n0, await Peer.dial(n0, hello("n9")) as clock:
                for _ in range(40):
                    clock.say(Ping())
                    await clock.hear()
            assert (n1.events, n2.events) == (["up n2"], ["up n1"])

    run(scenario)


def test_a_halted_node_sends_no_message_and_no_heartbeat(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        times = LivenessTimeouts(heartbeat_s=0.01, silent_s=0.2, reconnect_s=0.01)
        async with Node("n1", addresses, times) as n1, Node("n2", addresses, times) as n2:
            await n1.until(lambda: n1.events == ["up n2"])
            n2.transport.on_silent = lambda peer: n2.note(f"silent {peer}")
            n1.transport.halt()
            assert not n1.transport.send(1, "n2", TimeoutNow(1))
            await n2.until(lambda: "silent n1" in n2.events)
            assert n2.frames == []

    run(scenario)


def test_frames_beyond_the_buffer_bound_are_dropped_until_the_peer_reads(run: Run) -> None:
    bound = 1 << 20
    message = AppendEntries(1, 0, 0, 0, 0, [(1, 1, bytes(100_000))])

    async def scenario() -> None:
        async with (
            Node("n1", {"n2": UNSET}, peer_buffer_bytes_max=bound) as n1,
            await Peer.dial(n1, hello("n2")) as peer,
        ):
            await n1.until(lambda: n1.events == ["up n2"])
            in_one_turn = 0
            while n1.transport.send(1, "n2", message):
                in_one_turn += 1
            assert in_one_turn == bound // len(encode(1, message))
            accepted = in_one_turn
            while True:  # until the sockets' buffers are full as well
                await asyncio.sleep(0)
                if not n1.transport.send(1, "n2", message):
                    break
                accepted += 1
            assert await peer.hear() == hello("n1")
            for _ in range(accepted):
                _ = await peer.hear_a(AppendEntries)
            assert n1.transport.send(1, "n2", TimeoutNow(1))
            assert await peer.hear_a(TimeoutNow) == TimeoutNow(1)

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<IBI", HELLO_BYTES_MAX - 3, 10, 0),
        encode(0, Ping()),
        encode(1, TimeoutNow(1)),
        encode(0, Refusal("you first")),
    ],
)
def test_a_connection_that_does_not_begin_with_a_hello_is_dropped(run: Run, garbage: bytes) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1, await Peer.dial(n1) as stranger:
            stranger.writer.write(garbage)
            assert await stranger.hear() is None
            assert (n1.events, n1.frames) == ([], [])

    run(scenario)


@pytest.mark.parametrize("garbage", [b"\0" * 20, encode(0, hello("n2")), encode(0, Refusal("after all"))])
def test_a_peer_that_talks_nonsense_is_dropped_and_may_come_back(run: Run, garbage: bytes) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1:
            async with await Peer.dial(n1, hello("n2")) as peer:
                peer.say(TimeoutNow(1), group_id=1)
                peer.writer.write(garbage + encode(1, TimeoutNow(2)))
                await n1.until(lambda: n1.events == ["up n2", "down n2"])
            assert n1.frames == [("n2", 1, TimeoutNow(1))]
            async with await Peer.dial(n1, hello("n2")):
                await n1.until(lambda: n1.events == ["up n2", "down n2", "up n2"])

    run(scenario)


def test_connections_without_a_hello_are_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.raft.net.transport.STRANGERS_MAX", 2)

    async def scenario() -> None:
        async with (
            Node("n1", {"n2": UNSET}) as n1,
            await Peer.dial(n1) as first,
            await Peer.dial(n1),
            await Peer.dial(n1) as third,
        ):
            assert await first.hear() is None
            third.say(hello("n2"))
            assert await third.hear() == hello("n1")

    run(scenario)


@pytest.mark.parametrize(
    ("hosts", "peers", "goes"),
    [
        (["a", "a", "a"], [], 0),
        (["a", "b", "b"], [], 1),
        (["peer", "peer", "b"], ["peer"], 2),
        (["peer", "peer"], ["peer"], 0),
    ],
)
def test_beyond_the_bound_the_oldest_connection_without_a_hello_of_the_host_with_the_most_is_closed(
    hosts: list[str], peers: list[str], goes: int
) -> None:
    assert stranger_to_drop(hosts, peers) == goes


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "node7.example"])
def test_listening_in_plaintext_where_others_can_reach_must_be_asked_for(host: str) -> None:
    with pytest.raises(ValueError, match="plaintext=True"):
        Transport("n1", "house", (host, 0), {})
    Transport("n1", "house", (host, 0), {}, plaintext=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_listening_on_loopback_needs_no_permission(host: str) -> None:
    Transport("n1", "house", (host, 0), {})


def test_the_longest_introductions_and_refusals_fit_and_longer_ids_are_refused_at_once(run: Run) -> None:
    cluster_id, node_id = "\1" * 255, "\2" * 255

    async def scenario() -> None:
        async with Node("n1", {"n1": UNSET}) as n1, await Peer.dial(n1, hello(node_id, cluster_id)) as peer:
            peer.frames.frame_bytes_max = HELLO_BYTES_MAX
            assert isinstance(await peer.hear(), Refusal)

    run(scenario)
    for too_long in (("n" * 256, "house"), ("n1", "h" * 256)):
        with pytest.raises(InvalidFrame):
            Transport(*too_long, UNSET, {})


def test_a_taken_port_is_an_error_of_start_and_stop_is_harmless(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {}) as n1:
            second = Transport("n9", "house", n1.transport.address, {"n1": n1.transport.address})
            with pytest.raises(OSError, match="address already in use"):
                await second.start(0)
            await second.stop()
            await n1.transport.stop()

    run(scenario)


def test_stop_takes_connected_peers_down_and_can_be_repeated(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        async with Node("n1", addresses) as n1, Node("n2", addresses) as n2:
            await n1.until(lambda: n1.events == ["up n2"])
            await n2.until(lambda: n2.events == ["up n1"])
            await n2.transport.stop()
            assert n2.events == ["up n1", "down n1"]
            assert not n2.transport.send(1, "n1", TimeoutNow(1))
            await n1.until(lambda: n1.events == ["up n2", "down n2"])

    run(scenario)
