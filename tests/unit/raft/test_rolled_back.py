"""A node whose disk is an older copy of itself gives up, and does not vote, once it meets a node that knows better.

Three real hosts with real logs; the copy is made of a running node, as a snapshot of a disk is.
"""

import asyncio
import errno
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import until

from stockade.partition.log.fsutil import write_durably
from stockade.raft.host import RaftHost
from stockade.raft.messages import Hello
from stockade.raft.net.peer_positions import PeerPositions
from stockade.raft.wal.errors import DiskRefused

from .cluster import FAST, Cluster, MemoryMachine, copy_of_a_moment

GROWN_OR_ORIGINAL = r"it, or a copy of it, has lost what this node told .* Only if this is the original"


async def with_image(cluster: Cluster, node: str) -> Path:
    """Commit, copy the disk of a running node, and commit more, which the node acknowledges and tells the others."""
    await cluster.commit(b"before")
    image = cluster.directory / "image"
    copy_of_a_moment(cluster._data(node), image)
    for number in range(5):
        await cluster.commit(b"after %d" % number)
    log = cluster.hosts[node].log
    await until(lambda: len(cluster.machines[node].commands) >= 6)
    end = log.durable_position
    for other in set(cluster.hosts) - {node}:
        positions = cluster.hosts[other]._transport.peer_positions
        await until(lambda positions=positions: positions.told[node].position >= end)  # type: ignore[misc]
    return image


def put_back(cluster: Cluster, node: str, image: Path) -> None:
    shutil.rmtree(cluster._data(node))
    image.rename(cluster._data(node))


async def gives_up(cluster: Cluster, node: str, why: str = "it is older than what this node told") -> None:
    await until(lambda: bool(cluster.fatal))
    ((failed, error),) = cluster.fatal
    assert failed == node
    with pytest.raises(DiskRefused, match=why):
        raise error


def test_a_disk_that_was_rolled_back_stops_its_node_and_the_others_never_meet_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            node = next(each for each in cluster.hosts if each != leader)
            image = await with_image(cluster, node)
            await cluster.stop(node)
            put_back(cluster, node, image)
            await cluster.start(node)
            await gives_up(cluster, node)
            assert all(node not in host.connected for name, host in cluster.hosts.items() if name != node)
            await cluster.commit(b"without it")

    asyncio.run(scenario())


def test_a_node_that_was_killed_or_stopped_is_not_taken_for_rolled_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            node = next(each for each in cluster.hosts if each != cluster.leader())
            await with_image(cluster, node)
            await cluster.kill(node)
            await cluster.start(node)
            await until(lambda: len(cluster.machines[node].commands) >= 6)
            await cluster.stop(node)
            await cluster.commit(b"meanwhile")
            await cluster.start(node)
            await until(lambda: cluster.machines[node].commands[-1:] == [b"meanwhile"])
            assert cluster.fatal == []

    asyncio.run(scenario())


@pytest.mark.parametrize("is_noticed", [True, False])
def test_without_its_leader_a_rolled_back_node_elects_no_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_noticed: bool
) -> None:
    """With the mistake of noticing nothing, it votes as if it had promised nothing."""
    if not is_noticed:
        monkeypatch.setattr(PeerPositions, "check", lambda self, hello: None)

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            node, third = (each for each in cluster.hosts if each != leader)
            image = await with_image(cluster, node)
            await cluster.stop(node)
            await cluster.stop(leader)
            put_back(cluster, node, image)
            await cluster.start(node)
            if is_noticed:
                await gives_up(cluster, node)
                term = cluster.group(third).term
                elections_s = 2 * cluster.settings.election_timeout_ms_max / 1000
                with suppress(TimeoutError):
                    await until(lambda: cluster.group(third).is_leader, elections_s)
                assert (cluster.group(third).is_leader, cluster.group(third).term) == (False, term)
            else:
                await until(lambda: cluster.leader() is not None)
            assert bool(cluster.fatal) == is_noticed

    asyncio.run(scenario())


def test_a_rolled_back_disk_is_detected_after_a_restart_of_all_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            node = next(each for each in cluster.hosts if each != leader)
            image = await with_image(cluster, node)
            names = list(cluster.hosts)
            for each in names:
                await cluster.stop(each)
            put_back(cluster, node, image)
            for each in names:
                await cluster.start(each)
            await gives_up(cluster, node)

    asyncio.run(scenario())


def test_a_node_that_was_rolled_back_stays_out_until_it_has_an_empty_disk(tmp_path: Path) -> None:
    """It ran alone for a while, so its log is longer at the next start than what it had told."""

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            node, other = (each for each in cluster.hosts if each != leader)
            image = await with_image(cluster, node)
            told = cluster.hosts[other]._transport.peer_positions.told[node].position
            others = {leader, other}
            for each in (node, *others):
                await cluster.stop(each)
            put_back(cluster, node, image)
            await cluster.start(node)
            host = cluster.hosts[node]
            host.open_group(9, {node: host.incarnation}, MemoryMachine())
            await until(lambda: host.groups[9].is_leader)
            while host.log.durable_position >> 32 <= told >> 32:
                await host.groups[9].propose(b"alone", 60.0)
            for each in others:
                await cluster.start(each)
            await gives_up(cluster, node)
            await cluster.stop(node)
            cluster.fatal.clear()
            with pytest.raises(DiskRefused, match=r"older than what this node told.*stockade rebuild"):
                await cluster.start(node)
            (cluster._data(node) / "wal" / "rolled-back").unlink()  # as another copy of it, in its place, may lack it
            await cluster.start(node)
            assert cluster.hosts[node]._began > told
            await gives_up(cluster, node, GROWN_OR_ORIGINAL)
            await cluster.stop(node)
            cluster.fatal.clear()
            shutil.rmtree(cluster._data(node) / "wal")
            shutil.rmtree(cluster._data(node) / "groups")
            await cluster.start(node)
            last = await cluster.commit(b"with all three")
            await until(lambda: cluster.group(node).applied_index >= last)
            assert cluster.fatal == []

    asyncio.run(scenario())


def test_the_refusal_of_an_original_disk_after_its_copy_was_refused_says_how_to_rebuild(tmp_path: Path) -> None:
    """It lacks nothing, which no node can tell from a copy that has grown: it was told that it was older than it is."""

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await cluster.led()
            node, other = (each for each in cluster.hosts if each != leader)
            image, original = await with_image(cluster, node), tmp_path / "original"
            await cluster.stop(node)
            shutil.copytree(cluster._data(node), original)
            put_back(cluster, node, image)
            await cluster.start(node)
            await gives_up(cluster, node)
            await cluster.stop(node)
            cluster.fatal.clear()
            put_back(cluster, node, original)
            await cluster.start(node)
            await gives_up(cluster, node, GROWN_OR_ORIGINAL)
            await cluster.stop(node)
            cluster.fatal.clear()
            with pytest.raises(DiskRefused, match=r"remove wal/rolled-back here, and the entry of this node"):
                await cluster.start(node)
            (cluster._data(node) / "wal" / "rolled-back").unlink()
            for each in (leader, other):
                await cluster.stop(each)
                (cluster._data(each) / "promises.json").unlink()
                await cluster.start(each)
            await cluster.start(node)
            last = await cluster.commit(b"with all three")
            await until(lambda: cluster.group(node).applied_index >= last)
            assert cluster.fatal == []

    asyncio.run(scenario())


def test_two_writes_of_the_reported_positions_never_overlap_at_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both writes have one scratch file: at the same time, one renames what the other has cut, and one fails."""
    begun, go_on, seen = threading.Event(), threading.Event(), list[str]()

    def write(path: Path, content: bytes) -> None:
        seen.append("begins")
        if not begun.is_set():
            begun.set()
            go_on.wait(10.0)
        write_durably(path, content)
        seen.append("ends")

    async def scenario() -> None:
        fatal: list[BaseException] = []
        host = RaftHost("n1", "house", ("127.0.0.1", 0), {}, tmp_path, FAST, fatal.append)
        positions = host._transport.peer_positions = PeerPositions(tmp_path / "promises.json")
        positions.note_hello(Hello(7, "house", "n2", 1, 2, 3))
        task = asyncio.create_task(host._remember())
        await until(begun.is_set)
        positions.note_position("n2", 4)
        task.cancel()
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        await asyncio.wait([task])
        await until(lambda: len(seen) == 4)
        assert fatal == []

    monkeypatch.setattr("stockade.raft.host.REMEMBER_S", 0.0)
    monkeypatch.setattr("stockade.raft.net.peer_positions.write_durably", write)
    asyncio.run(scenario())
    assert seen == ["begins", "ends"] * 2
    assert PeerPositions(tmp_path / "promises.json").told == {"n2": (1, 2, 4)}


def test_a_node_whose_disk_takes_no_mark_stops_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space")

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            node, host = next(iter(cluster.hosts.items()))
            monkeypatch.setattr("stockade.raft.host.write_durably", fail)
            host._on_rolled_back("n2", host._began + 1)
            await gives_up(cluster, node)

    asyncio.run(scenario())


def test_a_message_that_claims_less_than_this_disk_has_stops_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.commit(b"x")
            (host, *_) = cluster.hosts.values()
            host._on_rolled_back("n2", host._began)
            assert cluster.fatal == []
            host._on_rolled_back("n2", host._began + 1)
            assert len(cluster.fatal) == 1

    asyncio.run(scenario())
