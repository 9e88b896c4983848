"""A connection has a version of the protocol: two nodes of different releases speak what both know, and a cluster whose
feature level was raised has no node in it that is too old for it.
"""

import asyncio
import logging
import struct

import pytest

from stockade.raft.messages import Hello, OpenStream, Refusal, Software, TimeoutNow, Wake
from stockade.raft.net import codec, transport
from stockade.raft.net.codec import PROTOCOL_OLDEST, PROTOCOL_VERSION, encode

from ..transports import UNSET, Node, Peer, Run, hello

HELLO_OF_6 = bytes.fromhex(
    "28000000" "0a" "00000000" "0600" "05" "02" "0700000000000000" "0900000000000000" "0b00000000000000"
) + b"housen1"  # fmt: skip
"""As the release with protocol 6 writes it: byte for byte."""


class OldNode:
    """The end of a connection that a node with protocol 6 has: it refuses every other version, as that release does."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.dials: list[int] = []
        self.changed = asyncio.Event()
        self.peers: list[Peer] = []

    async def __aenter__(self) -> "OldNode":
        self.server = await asyncio.start_server(self.accept, *UNSET)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for peer in self.peers:
            peer.writer.close()
        await self.server.wait_closed()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length, _kind, _ = struct.unpack("<IBI", await reader.readexactly(9))
        body = await reader.readexactly(length - 5)
        (version,) = struct.unpack_from("<H", body)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        if version != 6:
            peer.say(Refusal(f"it speaks version {version} of the protocol, {self.node_id} speaks 6"))
            writer.close()
        else:
            _, cluster_bytes, node_bytes, *_ = struct.unpack_from("<HBBQQQ", body)
            assert 28 + cluster_bytes + node_bytes == len(body), "the exact length is what that release insists on"
            peer.say(hello(self.node_id, version=6))
        self.dials.append(version)
        self.changed.set()

    async def until_dialled(self, count: int) -> None:
        while len(self.dials) < count:
            self.changed.clear()
            await self.changed.wait()


def test_the_hello_of_the_older_version_is_that_of_the_release_that_brought_it() -> None:
    greeting = Hello(6, "house", "n1", 7, 9, 11)
    assert encode(0, greeting) == HELLO_OF_6
    assert list(codec.FrameReader().feed(HELLO_OF_6)) == [(0, greeting)]


def test_two_nodes_of_this_release_speak_its_version_and_know_each_others_software(run: Run) -> None:
    async def scenario() -> None:
        addresses = {"n1": UNSET, "n2": UNSET}
        async with (
            Node("n1", addresses, software=Software("0.2.0", 1, 2)) as n1,
            Node("n2", addresses, software=Software("0.3.0", 1, 3)) as n2,
        ):
            await n1.until_events(1)
            await n2.until_events(1)
            assert n1.transport.speaks("n2", PROTOCOL_VERSION)
            assert n2.transport.speaks("n1", PROTOCOL_VERSION)
            assert not n1.transport.speaks("n3", PROTOCOL_OLDEST)
            assert n1.transport.hellos["n2"].software == Software("0.3.0", 1, 3)

    run(scenario)


def test_a_node_that_refuses_the_newest_protocol_version_is_dialled_in_the_older_one_at_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with OldNode("n1") as old:
            address = old.server.sockets[0].getsockname()[:2]
            patient = {"n1": address}
            async with Node("n2", patient) as n2:
                n2.transport._dialer._reconnect_s = 1e9  # a pause would never end
                await n2.until(lambda: n2.events == ["up n1"])
                assert old.dials == [7, 6]
                assert n2.transport.speaks("n1", 6) and not n2.transport.speaks("n1", 7)
                assert n2.transport.hellos["n1"].software == Software("", 1, 1)
                n2.transport._dialer._reconnect_s = 0.01
                old.peers[-1].writer.close()  # it may be upgraded meanwhile: the newest version comes first again
                await n2.until(lambda: n2.events == ["up n1", "down n1", "up n1"])
                assert old.dials == [7, 6, 7, 6]

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "refuses this node" not in caplog.text


def test_a_node_is_answered_in_the_version_in_which_it_dialled(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1:
            for version in (6, 7):
                async with await Peer.dial(n1, hello("n2", version=version)) as peer:
                    assert await peer.hear() == hello("n1", version=version)
                    assert n1.transport.speaks("n2", version) and not n1.transport.speaks("n2", version + 1)
                await n1.until(lambda: not n1.transport.connected)

    run(scenario)


def test_a_frame_that_the_other_end_does_not_know_is_not_sent(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "SINCE", codec.SINCE | {Wake: PROTOCOL_VERSION})
    monkeypatch.setattr(transport, "SINCE", codec.SINCE)

    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1:
            for version, is_sent in ((PROTOCOL_OLDEST, False), (PROTOCOL_VERSION, True)):
                async with await Peer.dial(n1, hello("n2", version=version)) as peer:
                    await peer.hear_a(Hello)
                    assert n1.transport.send(1, "n2", Wake(1)) is is_sent
                    assert n1.transport.send(1, "n2", TimeoutNow(2))
                    assert await peer.hear() == (Wake(1) if is_sent else TimeoutNow(2))
                await n1.until(lambda: not n1.transport.connected)

    run(scenario)
    assert "n2 at 127.0.0.1 does not know a Wake" in caplog.text


def level(version: int, oldest: int, newest: int) -> Hello:
    return Hello(version, "house", "n2", 0, 0, 0, Software("9.9.9", oldest, newest))


@pytest.mark.parametrize(
    "introduction, why",
    [
        (
            hello("n2", version=6),
            "it speaks version 6 of the protocol, n1 speaks 7: its software is older",
        ),
        (level(7, 1, 1), "its software (9.9.9) supports the feature levels 1 to 1, and the cluster has level 2"),
        (level(7, 3, 4), "its software (9.9.9) supports the feature levels 3 to 4, and the cluster has level 2"),
        (hello("n2", version=8), "it speaks version 8 of the protocol, n1 speaks 7"),
        (level(7, 2, 3), None),
    ],
)
def test_a_raised_level_refuses_software_that_does_not_support_it(
    run: Run, introduction: Hello, why: str | None
) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, software=Software("", 1, 2)) as n1:
            n1.transport.raise_level(2)
            async with await Peer.dial(n1, introduction) as peer:
                answer = await peer.hear()
                if why is None:
                    assert isinstance(answer, Hello)
                else:
                    assert isinstance(answer, Refusal) and answer.reason.startswith(why)

    run(scenario)


def test_a_raised_feature_level_cuts_off_nodes_of_the_older_protocol_version_and_never_dials_in_it_again(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with OldNode("n1") as old:
            address = old.server.sockets[0].getsockname()[:2]
            async with Node("n2", {"n1": address}, software=Software("", 1, 2)) as n2:
                await n2.until(lambda: n2.events == ["up n1"])
                n2.transport.raise_level(2)
                await n2.until(lambda: n2.events == ["up n1", "down n1"])
                await old.until_dialled(5)
                assert old.dials == [7, 6, 7, 7, 7]

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "n1 at 127.0.0.1: its software is too old for feature level 2" in caplog.text
    assert "refuses this node: it speaks version 7 of the protocol, n1 speaks 6" in caplog.text


def test_a_stream_to_an_older_node_opens_in_its_version(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1, await Peer.dial(n1, hello("n2", version=6)) as peer:
            await peer.hear_a(Hello)
            said: asyncio.Future[int] = asyncio.get_running_loop().create_future()

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                message = await Peer(reader, writer).hear()
                assert isinstance(message, OpenStream)
                said.set_result(message.hello.version)
                writer.close()

            server = await asyncio.start_server(accept, *UNSET)
            n1.transport.set_peer("n2", server.sockets[0].getsockname()[:2])
            with pytest.raises(ConnectionError):
                await n1.transport.open_stream("n2", asyncio.Protocol())
            assert await said == 6
            server.close()
            await server.wait_closed()

    run(scenario)
