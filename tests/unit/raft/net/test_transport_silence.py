"""A connected peer of which nothing arrives is silent: calls to it end, and it is reported once."""

import asyncio
import logging

import pytest
from msgspec import structs

from stockade.raft.messages import Call, Commit, Ping, Refusal, Reply, Software
from stockade.raft.net.codec import encode
from stockade.raft.net.handshake import STRANGER_CHARS_MAX, printable
from stockade.raft.net.liveness import LivenessTimeouts
from stockade.raft.net.transport import CallUnknown

from ..transports import KIND, UNSET, Node, Peer, Run, hello

TIMES = LivenessTimeouts(heartbeat_s=0.02, silent_s=0.1, dead_s=30.0)


def test_calls_to_a_peer_that_falls_silent_end_soon_and_new_ones_are_not_sent(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, TIMES) as n1, await Peer.dial(n1, hello("n2")) as peer:
            n1.transport.on_silent = lambda node: n1.note(f"silent {node}")
            n1.transport.on_heard = lambda node: n1.note(f"heard {node}")
            await n1.until(lambda: n1.events == ["up n2"])
            with pytest.raises(CallUnknown, match="silent"):
                await n1.transport.call("n2", KIND, b"anybody there?", 30.0)
            await n1.until(lambda: n1.events == ["up n2", "silent n2"])
            with pytest.raises(ConnectionError, match="silent"):
                await n1.transport.call("n2", KIND, b"still there?", 30.0)

            first = await peer.hear_a(Call)
            assert isinstance(first, Call)
            peer.say(Reply(first.call_id, b"too late", True))
            await n1.until(lambda: n1.events == ["up n2", "silent n2", "heard n2"])
            peer.say(Ping())
            answer = asyncio.create_task(n1.transport.call("n2", KIND, b"and now?", 30.0))
            second = await peer.hear_a(Call)
            assert second == Call(first.call_id + 1, KIND + b"and now?"), "the other one was never sent"
            peer.say(Reply(first.call_id + 1, b"here", True))
            assert await answer == b"here"

    run(scenario)


def test_a_peer_is_amid_a_frame_from_its_first_byte_to_its_last(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, TIMES) as n1, await Peer.dial(n1, hello("n2")) as peer:
            await n1.until(lambda: n1.events == ["up n2"])
            assert not n1.transport.is_amid_frame("n2")
            frame = encode(1, Commit(1, 2))
            peer.writer.write(frame + frame[:5])
            await n1.until(lambda: len(n1.frames) == 1)
            assert n1.transport.is_amid_frame("n2")
            assert not n1.transport.is_amid_frame("n3")
            peer.writer.write(frame[5:])
            await n1.until(lambda: len(n1.frames) == 2)
            assert not n1.transport.is_amid_frame("n2")

    run(scenario)


def test_a_peer_that_sends_only_heartbeats_is_not_silent(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, tuple[str, int]] = {}
        async with Node("n1", addresses, TIMES) as n1, Node("n2", addresses, TIMES) as n2:
            n1.transport.on_silent = lambda node: n1.note(f"silent {node}")
            await n1.until(lambda: n1.events == ["up n2"])
            await n2.until(lambda: n2.events == ["up n1"])
            since = n1.transport.liveness.heard_at("n2")
            async with Node("n9", {"n99": UNSET}, TIMES) as clock, await Peer.dial(clock, hello("n99")) as mute:
                clock.transport.on_silent = lambda node: clock.note(f"silent {node}")
                await clock.until(lambda: clock.events == ["up n99", "silent n99"])
                mute.writer.close()
            assert n1.transport.liveness.heard_at("n2") > since
            assert n1.transport.liveness.heard_at("n3") == float("-inf")
            assert n1.events == ["up n2"]

    run(scenario)


def test_text_of_a_connection_that_is_not_admitted_is_logged_as_one_plain_line(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Node("n1", {}) as n1, await Peer.dial(n1) as stranger:
            stranger.say(Refusal("no\x1b[2J\nERROR all is lost \u202e" + "x" * 2000))
            while await stranger.hear() is not None:
                pass

    with caplog.at_level(logging.WARNING):
        run(scenario)
    (message,) = [record.message for record in caplog.records if "refuses this node" in record.message]
    assert r"no\x1b[2J\nERROR all is lost \u202exxx" in message
    assert message.isprintable()
    assert len(message) < 2 * STRANGER_CHARS_MAX


def test_the_version_that_a_stranger_claims_forges_no_line_of_the_log(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """It may know the cluster's id and a node's, and has shown no certificate of that node."""

    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, software=Software("", 1, 2)) as n1:
            n1.transport.raise_level(2)
            introduction = structs.replace(hello("n2"), software=Software("1.0)\nERROR all is lost"))
            async with await Peer.dial(n1, introduction) as stranger:
                assert isinstance(await stranger.hear(), Refusal)

    run(scenario)
    (message,) = [record.message for record in caplog.records if "is refused" in record.message]
    assert r"its software (1.0)\nERROR all is lost) supports the feature levels 1 to 1" in message
    assert message.isprintable()


def test_a_text_at_the_bound_is_kept_whole() -> None:
    assert printable("x" * STRANGER_CHARS_MAX) == "x" * STRANGER_CHARS_MAX
    assert printable("x" * (STRANGER_CHARS_MAX + 1)) == "x" * STRANGER_CHARS_MAX + " ..."
