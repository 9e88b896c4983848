"""The nodes that a transport knows may change while it runs: they are added, move and are removed."""

import asyncio
import contextlib
import math
from socket import create_server

import pytest

from stockade.raft.messages import Refusal, TimeoutNow
from stockade.raft.net.handshake import RejectionLog
from stockade.raft.net.liveness import DEFAULT_TIMES, LivenessTimeouts
from stockade.raft.net.transport import Address

from ..transports import UNSET, Node, Peer, Run, hello


def test_both_ends_learn_the_incarnation_of_the_others_disk(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        largest = (1 << 64) - 1
        async with Node("n1", addresses, incarnation=7) as n1, Node("n2", addresses, incarnation=largest) as n2:
            ups: list[tuple[str, int]] = []
            n1.transport.on_up = lambda *up: ups.append(up)
            await n2.until(lambda: n2.transport.incarnations == {"n1": 7})
            await n1.until(lambda: bool(ups) or bool(n1.events))
            assert n1.transport.incarnations == {"n2": largest}
            assert ups in ([], [("n2", largest)])
        assert n1.transport.incarnations == n2.transport.incarnations == {}

    run(scenario)


def test_a_node_that_becomes_known_later_is_dialled_and_admitted(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {}) as n1, Node("n2", {}) as n2:
            async with await Peer.dial(n1, hello("n2")) as early:
                assert isinstance(await early.hear(), Refusal)
            n2.transport.set_peer("n1", n1.transport.address)
            n1.transport.set_peer("n2", n2.transport.address)
            await n2.until(lambda: n2.events == ["up n1"])
            await n1.until(lambda: n1.events == ["up n2"])

    run(scenario)


def test_a_node_that_moves_is_dialled_at_its_new_address_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1, contextlib.AsyncExitStack() as stack:
            mute = await asyncio.start_server(lambda *_: None, *UNSET)  # accepts, and never says anything
            stack.push_async_callback(mute.wait_closed)
            stack.callback(mute.close)
            n2 = await stack.enter_async_context(
                Node("n2", {"n1": mute.sockets[0].getsockname()}, times=LivenessTimeouts(dead_s=3600, reconnect_s=0.01))
            )
            n2.transport.set_peer("n1", n1.transport.address)
            await n2.until(lambda: n2.events == ["up n1"])

    run(scenario)


@pytest.mark.parametrize("there", ["nothing", "another node", "no answer"])
def test_a_node_that_is_back_at_its_former_address_is_found(run: Run, there: str) -> None:
    async def scenario() -> None:
        times = LivenessTimeouts(dead_s=0.5, reconnect_s=0.01)
        async with Node("n1", {"n2": UNSET}) as n1, Node("n0", {}) as n0, Node("n2", {}, times=times) as n2:
            answers = {"another node": n0.transport.address, "no answer": mute.getsockname()}
            address = answers.get(there, ("127.0.0.1", 1))
            n2.transport.set_peer("n1", address)
            n2.transport.set_peer("n1", address, n1.transport.address)
            await n2.until(lambda: n2.events == ["up n1"])
            for _ in range(3):  # it is dialled where it was reached
                n2.events.clear()
                n1.transport.remove_peer("n2")
                n1.transport.set_peer("n2", UNSET)
                await n2.until(lambda: n2.events == ["down n1", "up n1"])
            n2.transport.set_peer("n1", n1.transport.address)
            assert n2.transport.connected == {"n1"}

    with create_server(UNSET) as mute:  # takes connections, and never says anything
        run(scenario)


@pytest.mark.parametrize("is_former", [False, True])
def test_a_node_at_an_address_that_another_one_has_had_stays_connected(
    run: Run, monkeypatch: pytest.MonkeyPatch, is_former: bool
) -> None:
    """It took each dial of the other one for a new connection in the place of its own, and dropped that."""

    async def scenario() -> None:
        async with Node("n2", {"n3": UNSET}) as n2, Node("n3", {"n2": n2.transport.address}) as n3:
            await n3.until_events(1)
            monkeypatch.setattr(RejectionLog, "add", lambda _, why: n3.note(why))
            address = n2.transport.address
            n3.transport.set_peer("n1", ("127.0.0.1", 1) if is_former else address, address if is_former else None)
            await n3.until(lambda: len(n3.events) > 1)
            assert n3.events[:2] == ["up n2", "n1 at 127.0.0.1 is not asked: n2 is connected at this address"]
            assert n3.transport.send(1, "n2", TimeoutNow(1))
            await n2.until(lambda: len(n2.frames) == 1)
            assert n2.events == ["up n3"]

    run(scenario)


def test_a_live_connection_stays_when_an_address_changes(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        async with Node("n1", addresses) as n1, Node("n2", addresses) as n2:
            await n2.until(lambda: n2.events == ["up n1"])
            n2.transport.set_peer("n1", ("127.0.0.1", 1))
            await n1.until(lambda: n1.events == ["up n2"])
            assert n2.transport.send(1, "n1", TimeoutNow(1))
            await n1.until(lambda: len(n1.frames) == 1)
            assert n2.events == ["up n1"]

    run(scenario)


@pytest.mark.parametrize("by", ["the one that dialled", "the one that was dialled"])
def test_a_removed_node_is_disconnected_and_refused_from_then_on(run: Run, by: str) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        async with Node("n1", addresses) as n1, Node("n2", addresses) as n2:
            await n1.until(lambda: n1.events == ["up n2"])
            await n2.until(lambda: n2.events == ["up n1"])
            remover, removed = (n2, n1) if by == "the one that dialled" else (n1, n2)
            remover.transport.remove_peer(removed.node_id)
            await remover.until_events(2)
            await removed.until_events(2)
            assert not remover.transport.send(1, removed.node_id, TimeoutNow(1))
            if remover is n1:
                async with await Peer.dial(n1, hello("n2")) as again:
                    assert isinstance(await again.hear(), Refusal)
            remover.transport.remove_peer("nobody")
            remover.transport.set_peer(removed.node_id, removed.transport.address)
            await removed.until_events(3)
            assert removed.events[-1] == f"up {remover.node_id}"

    run(scenario)


def test_a_lost_connection_is_back_within_half_a_second_as_nodes_are_set_by_default(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, Address] = {}
        async with Node("n1", addresses, DEFAULT_TIMES) as n1, Node("n2", addresses, DEFAULT_TIMES) as n2:
            loop, expected, took_s = asyncio.get_running_loop(), ["up n1"], math.inf
            await n2.until(lambda: n2.events == expected)
            while took_s >= 0.5:  # a busy machine delays some of them
                (connection,) = n1.transport._open
                began = loop.time()
                connection.abort()
                expected.extend(["down n1", "up n1"])
                await n2.until(lambda: n2.events == expected)
                took_s = loop.time() - began

    run(scenario)


def test_a_stopped_transport_dials_no_node(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n2", {}) as n2:
            await n2.transport.stop()
            n2.transport.set_peer("n1", UNSET)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario)


def test_a_stop_in_the_middle_of_a_dial_ends(run: Run) -> None:
    """The change meets every moment of the dial: it comes right after each turn of the loop."""

    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}) as n1:
            for turns in range(12):
                n2 = Node("n2", {"n1": n1.transport.address})
                await n2.transport.start(0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                async with asyncio.timeout(5.0):
                    await n2.transport.stop()

    run(scenario)
