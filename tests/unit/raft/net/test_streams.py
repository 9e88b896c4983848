"""Streams between nodes over real sockets: who gets one, that it carries what it is given, and when it ends."""

import asyncio
from collections.abc import Callable

import pytest

from stockade.raft.messages import OpenStream, Ping, Refusal
from stockade.raft.net import transport
from stockade.raft.net.codec import encode
from stockade.raft.net.liveness import LivenessTimeouts

from ..transports import UNSET, Node, Peer, Run, hello
from .certificates import Issuer, trusting_context

BYTES = bytes(range(256)) * (8 << 10)
"""More than the kernel takes at once, so that the writer is paused."""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer.make(tmp_path_factory.mktemp("tls") / "ours")


def node_of(issuer: Issuer, encrypted: bool) -> Callable[..., Node]:
    def make(node_id: str, addresses: dict[str, tuple[str, int]]) -> Node:
        return Node(node_id, addresses, tls=issuer.tls(node_id) if encrypted else None)

    return make


class Echo(asyncio.Protocol):
    """The accepting end: sends back what it gets."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Caller(asyncio.Protocol):
    """The opening end: remembers what it gets."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.changed = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    async def until(self, count: int) -> None:
        while len(self.received) < count:
            self.changed.clear()
            await self.changed.wait()


def echoing(node: Node) -> list[Echo]:
    made: list[Echo] = []

    def accept(node_id: str) -> Echo:
        made.append(Echo(node_id))
        return made[-1]

    node.transport.accept_stream = accept
    return made


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(("opens", "accepts"), [("n1", "n2"), ("n2", "n1")])
def test_bytes_go_both_ways_from_either_opener(
    run: Run, issuer: Issuer, encrypted: bool, opens: str, accepts: str
) -> None:
    async def scenario() -> None:
        make, addresses = node_of(issuer, encrypted), {"n1": UNSET, "n2": UNSET}
        async with make("n1", addresses) as n1, make("n2", addresses) as n2:
            by_name = {"n1": n1, "n2": n2}
            made, caller = echoing(by_name[accepts]), Caller()
            await by_name[opens].transport.open_stream(accepts, caller)
            caller.transport.write(BYTES)
            await caller.until(len(BYTES))
            assert caller.received == BYTES
            assert [echo.node_id for echo in made] == [opens]
            caller.transport.close()
            await made[0].lost.wait()

    run(scenario)


def test_a_stream_gets_no_heartbeat_and_is_not_dropped_for_its_silence(run: Run, issuer: Issuer) -> None:
    async def scenario() -> None:
        make, addresses = node_of(issuer, True), {"n1": UNSET, "n2": UNSET}
        async with make("n1", addresses) as n1, make("n2", addresses) as n2:
            echoing(n2)
            caller = Caller()
            await n1.transport.open_stream("n2", caller)
            streams = [each for node in (n1, n2) for each in node.transport._open if each.stream is not None]
            assert len(streams) == 2
            for each in streams:
                each.keep_alive(0.0, float("-inf"), (Ping(), encode(0, Ping())))
            caller.transport.write(b"still here")
            await caller.until(len(b"still here"))
            assert caller.received == b"still here"

    run(scenario)


@pytest.mark.parametrize(
    ("shows", "says", "why"),
    [
        ("n2", "n3", "its certificate names"),
        ("n2", "n9", "knows no node"),
        (None, "n2", None),
    ],
)
def test_a_stranger_that_claims_to_be_a_forwarding_node_gets_no_stream(
    run: Run, issuer: Issuer, shows: str | None, says: str, why: str | None
) -> None:
    async def scenario() -> None:
        addresses = {"n1": UNSET, "n2": UNSET, "n3": UNSET}
        tls = trusting_context(issuer.files(shows) if shows else None)
        async with node_of(issuer, True)("n1", addresses) as n1:
            made = echoing(n1)
            async with await Peer.dial(n1, tls=tls) as peer:
                peer.say(OpenStream(hello(says)))
                answer = await peer.hear()
                assert (None if answer is None else isinstance(answer, Refusal) and (why or "") in answer.reason) in (
                    None if why is None else True,
                )
            assert made == []

    run(scenario)


def test_a_plain_stranger_gets_no_stream_from_a_node_with_tls(run: Run, issuer: Issuer) -> None:
    async def scenario() -> None:
        async with (
            node_of(issuer, True)("n1", {"n1": UNSET, "n2": UNSET}) as n1,
            await Peer.dial(n1, None) as peer,
        ):
            made = echoing(n1)
            peer.say(OpenStream(hello("n2")))
            answer = await peer.hear()
            assert isinstance(answer, Refusal)
            assert "speaks TLS only" in answer.reason
            assert made == []

    run(scenario)


@pytest.mark.parametrize("more", [encode(0, OpenStream(hello("n2"))), b"\xff", b"HELLO WO"])
def test_bytes_that_arrive_before_the_stream_is_open_are_not_given_to_its_protocol(
    run: Run, issuer: Issuer, more: bytes
) -> None:
    """What is shorter than a frame was lost, and the stream began with a hole."""

    async def scenario() -> None:
        async with (
            node_of(issuer, False)("n1", {"n1": UNSET, "n2": UNSET}) as n1,
            await Peer.dial(n1, None) as peer,
        ):
            made = echoing(n1)
            peer.writer.write(encode(0, OpenStream(hello("n2"))) + more)
            assert await peer.hear() in (hello("n1"), None)
            assert await peer.hear() is None
            await made[0].lost.wait()

    run(scenario)


def test_a_stream_to_a_node_that_is_unknown_or_gone_or_takes_none_is_refused(run: Run, issuer: Issuer) -> None:
    async def scenario() -> None:
        make, addresses = node_of(issuer, False), {"n1": UNSET, "n2": UNSET}
        async with make("n1", addresses) as n1:
            with pytest.raises(ConnectionError, match="n9 is not known"):
                await n1.transport.open_stream("n9", Caller())
            async with make("n2", addresses):
                with pytest.raises(ConnectionError, match="takes no streams"):
                    await n1.transport.open_stream("n2", Caller())
            with pytest.raises(OSError, match=r".+"):
                await n1.transport.open_stream("n2", Caller())

    run(scenario)


def test_a_node_that_is_removed_loses_its_streams(run: Run, issuer: Issuer) -> None:
    async def scenario() -> None:
        make, addresses = node_of(issuer, True), {"n1": UNSET, "n2": UNSET}
        async with make("n1", addresses) as n1, make("n2", addresses) as n2:
            made, caller = echoing(n2), Caller()
            await n1.transport.open_stream("n2", caller)
            n2.transport.remove_peer("n1")
            await made[0].lost.wait()
            await caller.lost.wait()

    run(scenario)


def test_streams_to_a_node_that_hangs_end_when_it_counts_as_lost(
    run: Run, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked on them waited until its own time was over: ten seconds, where the node was lost after three."""

    async def scenario() -> None:
        make, addresses = node_of(issuer, False), {"n1": UNSET, "n2": UNSET, "n3": UNSET}
        async with (
            Node("n1", addresses, LivenessTimeouts(heartbeat_s=0.02, dead_s=0.5)) as n1,
            make("n2", addresses) as n2,
            make("n3", addresses) as n3,
            asyncio.timeout(30),
        ):
            await n1.until(lambda: sorted(n1.events) == ["up n2", "up n3"])
            echoing(n2), echoing(n3)
            lost, other = Caller(), Caller()
            await n1.transport.open_stream("n2", lost)
            await n1.transport.open_stream("n3", other)
            monkeypatch.setattr(n2.transport, "received", lambda *_: None)
            opening = asyncio.ensure_future(n1.transport.open_stream("n2", Caller()))
            n2.transport.liveness.stop()
            await lost.lost.wait()
            with pytest.raises(ConnectionError, match="was lost before the stream was open"):
                await opening
            assert n1.events[2:] == ["down n2"]
            other.transport.write(b"still here")
            await other.until(len(b"still here"))

    run(scenario)


def test_streams_of_a_node_have_a_bound(run: Run, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STREAMS_MAX", 1)

    async def scenario() -> None:
        make, addresses = node_of(issuer, False), {"n1": UNSET, "n2": UNSET}
        async with make("n1", addresses) as n1, make("n2", addresses) as n2:
            made, caller = echoing(n2), Caller()
            await n1.transport.open_stream("n2", caller)
            with pytest.raises(ConnectionError, match="takes no streams"):
                await n1.transport.open_stream("n2", Caller())
            caller.transport.close()
            await made[0].lost.wait()
            await n1.transport.open_stream("n2", Caller())

    run(scenario)
