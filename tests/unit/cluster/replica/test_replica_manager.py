"""What a node holds follows the newest catalog that it knows, also over restarts and deaths in between."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from disk_calls import recorded

from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.replica import replica_manager
from stockade.cluster.replica.replica import Replica
from stockade.cluster.replica.replica_manager import Assignment, ReplicaManager
from stockade.cluster.rpc import Catalog, Placement
from stockade.partition.api.topics import TopicConfig
from stockade.partition.log.fsutil import write_durably
from stockade.raft.wal.errors import DiskRefused

from .test_replica import replica, scenario

OLDER, YOUNGER = 5, 9
"""Topics, by the index of their creation."""
ORDER = 1000
"""Index of a later change of a topic."""


class Died(Exception):
    """The node, in the middle of something."""


class Life:
    """One life of a node: its manager, and the groups that it closed."""

    def __init__(self, directory: Path) -> None:
        self.closed: list[int] = []
        self.before_close: Callable[[int], None] = lambda group: None
        self.manager = ReplicaManager("n1", directory, self._open, self._close, self._forget)

    def _open(self, assignment: Assignment, directory: Path) -> Replica:
        files = directory / "files"
        files.mkdir(exist_ok=True)
        one = replica(files, assignment.config)
        one.topic, one.topic_id, one.partition = assignment.topic, assignment.topic_id, assignment.partition
        one.group.group_id = assignment.group_id
        return one

    async def _close(self, group: int) -> None:
        self.before_close(group)
        self.closed.append(group)

    async def _forget(self, is_gone: Callable[[int], bool]) -> None:
        pass

    @property
    def held(self) -> list[int]:
        """Topic ids."""
        return sorted(one.topic_id for one in self.manager.all())


def catalog(index: int, *topics: int) -> Catalog:
    """Topics of one partition, each on this node."""
    placed = [Placement(f"t{topic}", topic, TopicConfig(), 1, [["n1"]], [{"n1": 1}]) for topic in topics]
    return Catalog(index, placed, "n1", 1)


def notes(directory: Path) -> list[Assignment]:
    """What a restart opens."""
    return [msgspec.json.decode(path.read_bytes(), type=Assignment) for path in directory.glob("*/replica.json")]


def remembered(directory: Path) -> list[int]:
    """Groups that a restart opens."""
    return sorted(note.group_id for note in notes(directory))


@scenario
async def test_an_older_catalog_is_ignored(tmp_path: Path) -> None:
    """A controller that lags may answer after one that does not."""
    life = Life(tmp_path)
    await life.manager.follow(catalog(YOUNGER, YOUNGER))
    await life.manager.follow(catalog(YOUNGER - 1, OLDER))
    assert (life.held, life.manager.index, list(life.manager.topics)) == ([YOUNGER], YOUNGER, [f"t{YOUNGER}"])
    assert life.closed == []
    await life.manager.follow(catalog(YOUNGER, YOUNGER, OLDER))
    assert life.held == [OLDER, YOUNGER], "it is as new as the last one"


@scenario
async def test_a_restarted_node_knows_which_slot_a_new_partition_installs_first(tmp_path: Path) -> None:
    placed = Placement("t", OLDER, TopicConfig(), 1, [["n1"]] * 2, [{"n1": 1}] * 2, first_slots={1: 88})
    await Life(tmp_path).manager.follow(Catalog(YOUNGER, [placed], "n1", 1))
    restarted = Life(tmp_path)
    await restarted.manager.open_remembered()
    assert {one.partition: one.first_slot for one in restarted.manager.all()} == {0: 0, 1: 88}


@scenario
async def test_a_node_that_stops_waits_for_the_note_of_one_replica_and_not_of_hundreds(tmp_path: Path) -> None:
    """Its HTTP listener was closed, and its groups went on, until it had noted all replicas of a large new topic."""
    is_writing, may_write = threading.Event(), threading.Event()

    def write(path: Path, content: bytes) -> None:
        is_writing.set()
        assert may_write.wait(10)
        write_durably(path, content)

    life = Life(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_manager, "write_durably", write)
        following = asyncio.create_task(life.manager.follow(catalog(YOUNGER, OLDER, YOUNGER)))
        assert await asyncio.to_thread(is_writing.wait, 10)
        following.cancel()
        await asyncio.wait([following], timeout=0.05)
        assert not following.done()
        may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await following
    assert (remembered(tmp_path), life.held) == ([group_id(OLDER, 0)], [])


@scenario
async def test_a_restarted_node_keeps_a_topic_that_is_younger_than_the_first_catalog_it_hears_of(
    tmp_path: Path,
) -> None:
    """A node that starts knows no index, and the first controller that answers may lag."""
    await Life(tmp_path).manager.follow(catalog(YOUNGER, OLDER, YOUNGER))
    life = Life(tmp_path)
    await life.manager.open_remembered()
    assert life.held == [OLDER, YOUNGER]
    await life.manager.follow(catalog(YOUNGER - 1))
    assert life.held == [YOUNGER]
    assert remembered(tmp_path) == [group_id(YOUNGER, 0)]
    await life.manager.follow(catalog(YOUNGER))
    assert (life.held, life.closed) == ([], [group_id(OLDER, 0), group_id(YOUNGER, 0)])


@scenario
async def test_a_replica_is_opened_with_the_founders_that_it_had_first_whatever_the_catalog_says_later(
    tmp_path: Path,
) -> None:
    """Its log begins with them. A disk of another cluster that was founded under the same ids forgot them with the next
    change of the topic; at the start after that its log passed for one that this cluster's leaders had sent.
    """
    await Life(tmp_path).manager.follow(catalog(YOUNGER, YOUNGER))
    changed = Placement(f"t{YOUNGER}", YOUNGER, TopicConfig(), 1, [["n1"]], [{"n1": 8}], config_order=ORDER)
    life = Life(tmp_path)
    await life.manager.open_remembered()
    await life.manager.follow(Catalog(YOUNGER + 1, [changed], "n1", 1))
    assert [(note.founders, note.config_order) for note in notes(tmp_path)] == [({"n1": 1}, ORDER)]


@scenario
async def test_a_damaged_file_of_a_replica_is_named(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "replica.json").write_bytes(b'{"topic": ')
    with pytest.raises(DiskRefused, match=r"replica\.json: damaged"):
        await Life(tmp_path).manager.open_remembered()


def test_the_promise_to_open_a_group_is_gone_from_the_disk_before_its_log_is_and_a_death_between_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened as it was founded, with its log gone, it could vote twice."""
    group = group_id(OLDER, 0)
    folder = tmp_path / f"{group:016x}"
    calls = recorded(monkeypatch)

    def dies(group: int) -> None:
        raise Died

    async def body() -> None:
        life = Life(tmp_path)
        await life.manager.follow(catalog(OLDER, OLDER))
        assert remembered(tmp_path) == [group]
        calls.clear()
        life.before_close = dies
        with pytest.raises(Died):
            await life.manager.follow(catalog(OLDER + 1))
        assert calls == [("remove", folder / "replica.json"), ("sync", folder)]
        assert folder.exists()
        life = Life(tmp_path)
        await life.manager.open_remembered()
        assert (life.held, life.closed, folder.exists()) == ([], [group], False)

    asyncio.run(body())


@scenario
async def test_the_loop_goes_on_while_the_partitions_of_a_new_topic_are_opened(tmp_path: Path) -> None:
    """All groups of the node live on it: opened in one go, a large topic cost others their leaders."""
    life, turns = Life(tmp_path), [0]

    def turn() -> None:
        turns[0] += 1
        asyncio.get_running_loop().call_soon(turn)

    placed = Placement("t", OLDER, TopicConfig(), 1, [["n1"]] * 20, [{"n1": 1}] * 20)
    opened_at: list[int] = []
    opening = life.manager._open_replica

    def noted(assignment: Assignment, directory: Path) -> Replica:
        opened_at.append(turns[0])
        return opening(assignment, directory)

    life.manager._open_replica = noted
    turn()
    await life.manager.follow(Catalog(OLDER, [placed], "n1", 1))
    assert len(set(opened_at)) == 20, "each in a turn of its own"
