"""Encrypted connections between nodes over real sockets: which nodes are admitted, and what each end logs."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.raft.messages import AppendEntries, Hello, Message, Ping, RaftMessage, Refusal, TimeoutNow
from stockade.raft.net.codec import encode
from stockade.raft.net.connection import Connection
from stockade.raft.net.liveness import LivenessTimeouts
from stockade.raft.net.tls import TlsFiles
from stockade.raft.net.transport import Address, Transport

from ..transports import KIND, UNSET, Node, Peer, Run, hello
from .certificates import Issuer, trusting_context

ATTEMPTS = 3
"""A refused node dials so often while the test counts log lines."""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer.make(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer.make(tmp_path_factory.mktemp("tls") / "theirs")


class Attempts:
    """Counts the connections of a node that ended."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.node = node
        self._lost = node.transport.lost
        monkeypatch.setattr(node.transport, "lost", self.lost)

    def lost(self, connection: Connection) -> None:
        self.count += 1
        self._lost(connection)
        self.node.changed.set()

    async def enough(self) -> None:
        await self.node.until(lambda: self.count >= ATTEMPTS)


def logged(caplog: pytest.LogCaptureFixture, what: str) -> int:
    return sum(what in record.message for record in caplog.records)


def test_frames_and_calls_go_both_ways_and_a_restarted_peer_is_connected_again(run: Run, issuer: Issuer) -> None:
    sent: list[RaftMessage] = [AppendEntries(1, 0, 0, 0, 1, [(1, 1, bytes(20 << 20))]), *map(TimeoutNow, range(100))]

    async def answer(node_id: str, payload: bytes) -> bytes:
        return f"{node_id} said ".encode() + payload

    async def scenario() -> None:
        addresses: dict[str, Address] = {"n1": UNSET, "n2": UNSET}
        async with Node("n2", addresses, tls=issuer.tls("n2")) as n2:
            for round_ in range(1, 4):
                n2.frames.clear()
                async with Node("n1", addresses, tls=issuer.tls("n1")) as n1:
                    n1.transport.handlers[KIND] = answer
                    await n1.until_events(1)
                    await n2.until(lambda: n2.transport.connected == {"n1"})
                    for message in sent:
                        assert n1.transport.send(7, "n2", message)
                        assert n2.transport.send(8, "n1", message)
                    await n1.until(lambda: len(n1.frames) == len(sent))
                    await n2.until(lambda: len(n2.frames) == len(sent))
                    assert n1.frames == [("n2", 8, message) for message in sent]
                    assert n2.frames == [("n1", 7, message) for message in sent]
                    assert await n2.transport.call("n1", KIND, b"hi", 30) == b"n2 said hi"
                assert n1.events == ["up n2", "down n2"]
                await n2.until(lambda: not n2.transport.connected)
                assert n2.events == ["up n1", "down n1"] * round_

    run(scenario)


def test_tls_may_listen_wherever_others_can_reach(issuer: Issuer) -> None:
    Transport("n1", "house", ("0.0.0.0", 0), {}, tls=issuer.tls("n1"))


def test_a_dialler_shows_its_certificate_in_tls_1_3_and_is_admitted(run: Run, issuer: Issuer) -> None:
    async def scenario() -> None:
        tls = trusting_context(issuer.files("n2"))
        async with (
            Node("n1", {"n2": UNSET}, tls=issuer.tls("n1")) as n1,
            await Peer.dial(n1, hello("n2"), tls) as peer,
        ):
            assert await peer.hear() == hello("n1")
            assert n1.events == ["up n2"]
            assert peer.writer.get_extra_info("ssl_object").version() == "TLSv1.3"

    run(scenario)


@pytest.mark.parametrize(
    "show, why",
    [
        (lambda ours, theirs: theirs.files("n2"), "its certificate cannot be trusted: unable to get local issuer"),
        (lambda ours, theirs: ours.files("n2", expired=True), "its certificate cannot be trusted: certificate has exp"),
        (lambda ours, theirs: None, "peer did not return a certificate"),
    ],
    ids=["wrong authority", "expired", "none"],
)
def test_a_dialler_without_an_accepted_certificate_is_dropped_and_logged_once(
    run: Run,
    caplog: pytest.LogCaptureFixture,
    issuer: Issuer,
    stranger: Issuer,
    show: Callable[[Issuer, Issuer], TlsFiles | None],
    why: str,
) -> None:
    tls = trusting_context(show(issuer, stranger))

    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, tls=issuer.tls("n1")) as n1:
            for _ in range(ATTEMPTS):
                async with await Peer.dial(n1, hello("n2"), tls) as peer:
                    assert await peer.hear() is None
            assert n1.events == []

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert logged(caplog, why) == len(caplog.records) == 1


@pytest.mark.parametrize(
    "node_id, cluster_id, names",
    [("n3", "house", "stockade://house/n3"), ("n2", "barn", "stockade://barn/n2")],
    ids=["another node", "another cluster"],
)
def test_a_dialler_with_another_nodes_certificate_is_told_why_and_logged_once(
    run: Run, caplog: pytest.LogCaptureFixture, issuer: Issuer, node_id: str, cluster_id: str, names: str
) -> None:
    tls = trusting_context(issuer.files(node_id, cluster_id=cluster_id))
    why = f"it says that it is node 'n2' of 'house', but its certificate names {names}"

    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET, "n3": UNSET}, tls=issuer.tls("n1")) as n1:
            for _ in range(ATTEMPTS):
                async with await Peer.dial(n1, hello("n2"), tls) as peer:
                    assert await peer.hear() == Refusal(why)
                    assert await peer.hear() is None
            assert n1.events == []

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert logged(caplog, why) == len(caplog.records) == 1


@pytest.mark.parametrize(
    "show, why",
    [
        (lambda ours, theirs: theirs.files("n1"), "cannot be trusted: unable to get local issuer"),
        (lambda ours, theirs: ours.files("n1", expired=True), "cannot be trusted: certificate has expired"),
        (lambda ours, theirs: ours.files("n3"), "but its certificate names stockade://house/n3"),
        (lambda ours, theirs: ours.files("n1", cluster_id="barn"), "but its certificate names stockade://barn/n1"),
    ],
    ids=["wrong authority", "expired", "another node", "another cluster"],
)
def test_a_node_that_was_dialled_and_proves_to_be_another_is_not_connected_to(
    run: Run,
    caplog: pytest.LogCaptureFixture,
    issuer: Issuer,
    stranger: Issuer,
    show: Callable[[Issuer, Issuer], TlsFiles],
    why: str,
) -> None:
    tls = trusting_context(show(issuer, stranger), server=True)
    heard: list[Message | None] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        peer.say(hello("n1"))
        while message := await peer.hear():
            heard.append(message)
        writer.transport.abort()

    async def scenario() -> None:
        impostor = await asyncio.start_server(accept, *UNSET, ssl=tls)
        host, port = impostor.sockets[0].getsockname()
        with pytest.MonkeyPatch.context() as monkeypatch:
            async with Node("n2", {"n1": (host, port), "n3": UNSET}, tls=issuer.tls("n2")) as n2:
                await Attempts(n2, monkeypatch).enough()
                assert n2.events == []
        impostor.close()
        await impostor.wait_closed()
        impostors = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*impostors, return_exceptions=True)

    with caplog.at_level(logging.WARNING, "stockade"):
        run(scenario)
    assert logged(caplog, why) == 1
    assert {type(message) for message in heard} <= {Hello, Refusal}


def test_nodes_of_two_authorities_each_log_the_fault_once(
    run: Run, caplog: pytest.LogCaptureFixture, issuer: Issuer, stranger: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        async with (
            Node("n1", addresses, tls=issuer.tls("n1")) as n1,
            Node("n2", addresses, tls=stranger.tls("n2")) as n2,
        ):
            await Attempts(n1, monkeypatch).enough()
            assert (n1.events, n2.events) == ([], [])

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert logged(caplog, "n1 at 127.0.0.1: its certificate cannot be trusted") == 1
    assert logged(caplog, "a stranger at 127.0.0.1: it refuses TLS with this node: unknown ca") == 1
    assert len(caplog.records) == 2


@pytest.mark.parametrize("encrypted", ["n1", "n2"])
def test_plaintext_and_tls_do_not_meet_and_both_tell_once(
    run: Run,
    caplog: pytest.LogCaptureFixture,
    issuer: Issuer,
    monkeypatch: pytest.MonkeyPatch,
    encrypted: str,
) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        tls = {encrypted: issuer.tls(encrypted)}
        async with (
            Node("n1", addresses, tls=tls.get("n1")) as n1,
            Node("n2", addresses, tls=tls.get("n2")) as n2,
        ):
            await Attempts(n2, monkeypatch).enough()
            assert (n1.events, n2.events) == ([], [])

    with caplog.at_level(logging.WARNING):
        run(scenario)
    if encrypted == "n1":
        assert logged(caplog, "a stranger at 127.0.0.1: it does not speak TLS") == 1
        assert logged(caplog, "n1 at 127.0.0.1 refuses this node: it speaks TLS only") == 1
    else:
        assert logged(caplog, "a stranger at 127.0.0.1: it speaks TLS, and this node has no [raft.tls]") == 1
        assert logged(caplog, "n1 at 127.0.0.1: it ended the connection before it was encrypted") == 1
    assert len(caplog.records) == 2


def test_nothing_older_than_tls_1_3_is_spoken(run: Run, issuer: Issuer) -> None:
    tls = trusting_context(issuer.files("n2"))
    tls.maximum_version = ssl.TLSVersion.TLSv1_2

    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, tls=issuer.tls("n1")) as n1:
            with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                await Peer.dial(n1, hello("n2"), tls)

    run(scenario)


@pytest.mark.parametrize("drip", [b"", b"\x16\x03\x01\x40\x00\x01" + bytes(10_000)], ids=["silent", "byte by byte"])
def test_a_dialler_that_does_not_finish_the_handshake_in_time_is_dropped_however_busy(
    run: Run, issuer: Issuer, drip: bytes
) -> None:
    async def scenario() -> None:
        async with (
            Node("n1", {"n2": UNSET}, tls=issuer.tls("n1"), times=LivenessTimeouts(heartbeat_s=0.02, dead_s=0.2)) as n1,
            await Peer.dial(n1) as slow,
        ):
            ended = asyncio.create_task(slow.reader.read())
            for byte in drip:
                if (await asyncio.wait([ended], timeout=0.005))[0]:
                    break
                slow.writer.write(bytes([byte]))
            assert isinstance(await asyncio.gather(ended, return_exceptions=True), list)
            assert n1.events == []

    run(scenario)


def test_handshakes_under_way_count_as_strangers(run: Run, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.raft.net.transport.STRANGERS_MAX", 2)

    async def scenario() -> None:
        async with (
            Node("n1", {"n2": UNSET}, tls=issuer.tls("n1")) as n1,
            await Peer.dial(n1) as first,
            await Peer.dial(n1),
            await Peer.dial(n1, None, trusting_context(issuer.files("n2"))) as third,
        ):
            assert await first.hear() is None
            third.say(hello("n2"))
            assert await third.hear() == hello("n1")

    run(scenario)


def test_frames_beyond_the_buffer_bound_are_dropped_until_the_peer_reads(run: Run, issuer: Issuer) -> None:
    bound = 1 << 20
    message = AppendEntries(1, 0, 0, 0, 0, [(1, 1, bytes(100_000))])

    async def scenario() -> None:
        tls = trusting_context(issuer.files("n2"))
        async with (
            Node("n1", {"n2": UNSET}, tls=issuer.tls("n1"), peer_buffer_bytes_max=bound) as n1,
            await Peer.dial(n1, hello("n2"), tls) as peer,
        ):
            await n1.until(lambda: n1.events == ["up n2"])
            accepted = 0
            while n1.transport.send(1, "n2", message):
                accepted += 1
            assert accepted == bound // len(encode(1, message))
            while True:  # until the sockets' buffers are full as well
                await asyncio.sleep(0)
                if not n1.transport.send(1, "n2", message):
                    break
                accepted += 1
            heard = [message for message in [await peer.hear() for _ in range(accepted + 1)] if message != Ping()]
            assert heard[0] == hello("n1")
            assert n1.transport.send(1, "n2", TimeoutNow(1))

    run(scenario)


def test_a_silent_peer_is_dropped(run: Run, issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tls = trusting_context(issuer.files("n2"))
        async with (
            Node("n1", {"n2": UNSET}, tls=issuer.tls("n1"), times=LivenessTimeouts(heartbeat_s=0.02, dead_s=0.3)) as n1,
            await Peer.dial(n1, hello("n2"), tls),
        ):
            await n1.until(lambda: n1.events == ["up n2", "down n2"])

    run(scenario)
    assert "n2 at 127.0.0.1: silent for" in caplog.text


def test_the_key_of_a_node_is_read_once_at_the_start(run: Run, tmp_path: Path) -> None:
    issuer = Issuer.make(tmp_path / "ca")
    tls = {node_id: issuer.tls(node_id) for node_id in ("n1", "n2")}
    for path in list(tmp_path.rglob("*.key")):
        path.unlink()

    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        async with Node("n1", addresses, tls=tls["n1"]) as n1, Node("n2", addresses, tls=tls["n2"]):
            await n1.until_events(1)

    run(scenario)
