"""A disk that was rolled back is noticed by any node that knows what it had promised, and by no other sign."""

import json
from pathlib import Path

import pytest

from stockade.raft.messages import Hello, Ping, RolledBack
from stockade.raft.net.codec import PROTOCOL_VERSION
from stockade.raft.net.liveness import LivenessTimeouts
from stockade.raft.net.peer_positions import PeerPositions

from ..transports import UNSET, Node, Peer, Run

TIMES = LivenessTimeouts(heartbeat_s=0.02, silent_s=0.5, dead_s=30.0)


def hello(session: int, began: int, incarnation: int = 7) -> Hello:
    return Hello(PROTOCOL_VERSION, "house", "n2", incarnation, session, began)


@pytest.mark.parametrize(
    ("again", "lost"),
    [
        (hello(2, 100), None),  # it began where it had been, to the record
        (hello(2, 101), None),
        (hello(2, 99), 100),
        (hello(2, 0), 100),
        (hello(1, 50), None),  # the same process, connected again
        (hello(2, 0, incarnation=8), None),  # another disk promises nothing of the old one
    ],
)
def test_a_log_that_begins_below_its_reported_position_was_rolled_back(again: Hello, lost: int | None) -> None:
    positions = PeerPositions()
    assert positions.check(hello(1, 50)) is None
    positions.note_hello(hello(1, 50))
    positions.note_position("n2", 100)
    positions.note_position("n2", 80)  # a late heartbeat
    positions.note_position("n3", 1000)  # it has not introduced itself
    assert positions.check(again) == lost


def test_each_session_of_a_node_is_judged_by_the_positions_of_the_one_before(tmp_path: Path) -> None:
    positions = PeerPositions()
    positions.note_hello(hello(1, 50))
    positions.note_position("n2", 100)
    positions.note_hello(hello(2, 120))
    positions.note_position("n2", 130)
    assert positions.check(hello(3, 130)) is None
    assert positions.check(hello(3, 125)) == 130


def test_a_disk_that_was_rolled_back_stays_out_however_long_its_log_grows(tmp_path: Path) -> None:
    path = tmp_path / "promises.json"
    positions = PeerPositions(path)
    positions.note_hello(hello(1, 50))
    positions.note_position("n2", 100)
    assert positions.check(hello(2, 99)) == 100
    positions.save()
    for again in (positions, PeerPositions(path)):
        lost = again.check(hello(3, 7 << 32))
        assert lost is not None
        assert lost > 7 << 32, "it learns that, too"
        assert again.check(hello(3, 0, incarnation=8)) is None, "with an empty disk it is another member"
    positions.note_hello(hello(3, 0, incarnation=8))
    assert positions.check(hello(4, 0, incarnation=8)) is None


def test_the_mark_of_a_late_hello_is_lifted_by_the_next_heartbeat_of_a_sound_disk() -> None:
    """Of its process before, from a connection that a partition held up; or of a copy that ran beside it."""
    positions = PeerPositions()
    positions.note_hello(hello(1, 50))
    positions.note_hello(hello(2, 100))
    positions.note_position("n2", 130)
    assert positions.check(hello(1, 50)) == 130
    assert positions.check(hello(2, 100)) is None, "the process that told passes"
    positions.note_position("n2", 140)
    assert positions.check(hello(3, 140)) is None
    assert positions.check(hello(3, 139)) == 140


def test_the_file_of_positions_has_the_form_that_the_previous_release_reads(tmp_path: Path) -> None:
    path = tmp_path / "promises.json"
    positions = PeerPositions(path)
    positions.note_hello(hello(1, 50))
    positions.check(hello(2, 0))
    positions.save()
    ((name, told),) = json.loads(path.read_bytes()).items()
    assert (name, told) == ("n2", [7, 1, (1 << 63) - 1])


def test_reported_positions_survive_a_restart_and_a_damaged_file_of_them_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "promises.json"
    positions = PeerPositions(path)
    positions.save()
    assert not path.exists()
    positions.note_hello(hello(1, 50))
    positions.note_position("n2", 100)
    positions.save()
    assert PeerPositions(path).check(hello(2, 99)) == 100
    path.write_bytes(b"damaged")
    assert PeerPositions(path).check(hello(2, 99)) is None


def test_a_node_that_was_rolled_back_is_told_so_and_never_connected(run: Run) -> None:
    async def scenario() -> None:
        async with Node("n1", {"n2": UNSET}, TIMES) as node:
            node.transport.peer_positions.note_hello(hello(1, 50))
            node.transport.peer_positions.note_position("n2", 100)
            async with await Peer.dial(node, hello(2, 99)) as peer:
                assert await peer.hear_a(RolledBack) == RolledBack(100)
                assert await peer.hear() is None
            async with await Peer.dial(node, hello(3, 101)) as peer:
                assert isinstance(await peer.hear_a(RolledBack), RolledBack)
            assert node.events == []
            async with await Peer.dial(node, hello(4, 0, incarnation=8)):
                await node.until_events(1)

    run(scenario)


def test_heartbeats_report_the_position_of_the_log_and_a_rolled_back_node_is_told(run: Run) -> None:
    async def scenario() -> None:
        addresses: dict[str, tuple[str, int]] = {}
        async with Node("n1", addresses, TIMES) as n1:
            async with Node("n2", addresses, TIMES) as n2:
                n2.transport.position = lambda: 500
                await n1.until(lambda: n1.events == ["up n2"])
                stranger = Hello(PROTOCOL_VERSION, "house", "n99", 0)
                async with Node("n9", {"n99": UNSET}, TIMES) as clock, await Peer.dial(clock, stranger) as beat:
                    while (told := n1.transport.peer_positions.told.get("n2")) is None or told.position < 500:
                        await beat.hear_a(Ping)
            await n1.until(lambda: n1.events == ["up n2", "down n2"])
            again = Node("n2", addresses, TIMES)
            again.transport.on_rolled_back = lambda node, position: again.note(f"lost {position} by {node}")
            addresses["n2"] = UNSET
            await again.transport.start(0, session=2, began=499)
            again.transport.set_peer("n1", n1.transport.address)
            await again.until(lambda: "lost 500 by n1" in again.events)
            assert n1.events == ["up n2", "down n2"]
            await again.transport.stop()

    run(scenario)
