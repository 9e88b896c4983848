"""Heartbeats say how full a node's disk is, and the other nodes forget it with the connection."""

from stockade.raft.messages import Ping, TimeoutNow
from stockade.raft.net.liveness import LivenessTimeouts

from ..transports import UNSET, Node, Peer, Run, hello

TIMES = LivenessTimeouts(heartbeat_s=0.02, silent_s=0.5, dead_s=30.0)


def test_the_others_learn_how_full_a_disk_is_and_that_it_has_room_again(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, tuple[str, int]] = {}
        async with Node("n1", addresses, TIMES) as n1, Node("n2", addresses, TIMES) as n2:
            await n2.until(lambda: n2.events == ["up n1"])
            n1.transport.on_heard = lambda node: n1.note(f"heard {node}")
            async with Node("n9", {"n99": UNSET}, TIMES) as clock, await Peer.dial(clock, hello("n99")) as beat:

                async def until_known(level: int, expected: tuple[dict[str, int], set[str]]) -> None:
                    n2.transport.tell_disk(level)
                    while (n1.transport.disks, n1.transport.full_disks) != expected:
                        await beat.hear()

                await until_known(1, ({"n2": 1}, set()))
                await until_known(2, ({"n2": 2}, {"n2"}))
                assert n1.events == ["up n2"]
                await until_known(1, ({"n2": 1}, set()))
                assert n1.events == ["up n2", "heard n2"]  # what it was not sent is sent now
                await until_known(0, ({}, set()))
                assert n2.transport.disks == {}

    run(scenario)


def test_the_disk_state_of_a_peer_is_forgotten_with_its_connection_and_sent_again_on_the_next(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, TIMES) as n1:
            for level in (2, 3):  # one that this version does not know is worse
                async with await Peer.dial(n1, hello("n2")) as peer:
                    await peer.hear()
                    peer.say(Ping(level))
                    while n1.transport.full_disks != {"n2"}:
                        await peer.hear()
                    events = len(n1.events)
                await n1.until_events(events + 1)
                assert (n1.transport.disks, n1.transport.full_disks) == ({}, set())

    run(scenario)


def test_a_change_of_the_disk_state_is_sent_even_when_other_frames_go_out(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, TIMES) as n1, await Peer.dial(n1, hello("n2")) as peer:
            await peer.hear()
            (connection,) = n1.transport._open
            n1.transport.liveness.stop()
            n1.transport.disk = 1
            connection.send(b"")
            n1.transport.send_heartbeats(0.0)
            while (await peer.hear_a(Ping)) != Ping(1):
                pass
            connection.send(b"")
            n1.transport.send_heartbeats(0.0)
            assert len(connection._queue) == 1  # it was told, and the other frame is a sign of life

    run(scenario)


def test_a_full_disk_is_reported_before_later_messages(run: Run) -> None:
    """So the node that leads next, since the full one hands its groups over, sends it no entries."""

    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, TIMES) as n1, await Peer.dial(n1, hello("n2")) as peer:
            await peer.hear()
            n1.transport.liveness.stop()
            n1.transport.tell_disk(2)
            n1.transport.send(1, "n2", TimeoutNow(7))
            while await peer.hear_a(Ping) != Ping(2):  # which refuses any other message before it
                pass

    run(scenario)
