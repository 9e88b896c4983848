"""A follower that lacks entries which no log holds copies a checkpoint, and installs it when all of it is verified."""

import asyncio
import errno
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from waiting import until

from stockade.partition.log.modes import open_to_others
from stockade.raft.checkpoint import questions
from stockade.raft.checkpoint import rate_limiter as pacing
from stockade.raft.checkpoint import receiver as receiving
from stockade.raft.checkpoint import sender as sending
from stockade.raft.checkpoint.questions import FetchPiece, NothingHeld, Question, Release, encode
from stockade.raft.checkpoint.rate_limiter import RateLimiter
from stockade.raft.checkpoint.receiver import CheckpointCopy, CheckpointReceiver, CopyFailed, NoRoom
from stockade.raft.checkpoint.sender import CheckpointSender, HeldCheckpoint
from stockade.raft.checkpoint.store import Checkpoint, CheckpointStore
from stockade.raft.core.group import Group
from stockade.raft.log.configuration import NO_MEMBERS
from stockade.raft.machine import ImageDamaged
from stockade.raft.settings import RaftSettings

from ..cluster import FAST, GROUP, Cluster
from ..file_machine import FileMachine, single_node, wal_numbers

SETTINGS = replace(FAST, checkpoint_bytes=2000, wal_bytes_max=1 << 20, wal_file_bytes=4096)


class FileCluster(Cluster):
    """Three nodes with checkpoints and files."""

    async def __aenter__(self) -> "FileCluster":
        await super().__aenter__()
        return self

    def __init__(self, directory: Path, settings: RaftSettings = SETTINGS) -> None:
        super().__init__(directory, settings, FileMachine)

    def data(self, node: str) -> Path:
        return self._data(node)

    async def write(self, count: int) -> list[bytes]:
        commands = [b"%0100d" % number for number in range(count)]
        for command in commands:
            await self.commit(command)
        return commands

    def is_at_end(self, node: str) -> bool:
        leader = self.leader()
        return leader is not None and self.group(node).applied_index >= self.group(leader).commit_index


@asynccontextmanager
async def behind(directory: Path, settings: RaftSettings = SETTINGS) -> AsyncIterator[tuple[FileCluster, str]]:
    """A cluster, and a node of it that is down and lacks entries which are gone on the others."""
    async with FileCluster(directory, settings) as cluster:
        leader = await cluster.led()
        node = next(each for each in cluster.hosts if each != leader)
        await cluster.write(3)
        await until(lambda: cluster.machines[node].count >= 3)
        await cluster.stop(node)
        await cluster.write(100)
        await until(lambda: all(wal_numbers(cluster.data(each))[0] > 2 for each in cluster.hosts))
        yield cluster, node


async def agrees(cluster: FileCluster, node: str) -> None:
    """Wait until the node holds what the leader holds."""
    await until(lambda: cluster.is_at_end(node))
    leader = await cluster.led()
    await until(lambda: cluster.group(node).applied_index == cluster.group(leader).applied_index)
    assert cluster.machines[node].commands() == cluster.machines[leader].commands()
    assert cluster.fatal == []


def test_a_full_disk_takes_no_copy_and_those_under_way_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            receiver, ports = node.host._parts.receiver, node.host._parts.runtime
            ports.fetch_checkpoint(GROUP, "n2", 1000)
            (task,) = receiver._tasks.values()
            node.host.spare_disk(is_low=True, is_full=True)
            await asyncio.wait([task])
            assert task.cancelled()
            ports.fetch_checkpoint(GROUP, "n2", 1000)
            assert not receiver._tasks
            node.host.spare_disk(is_low=True, is_full=False)
            ports.fetch_checkpoint(GROUP, "n2", 1000)
            assert len(receiver._tasks) == 1

    asyncio.run(scenario())


def test_a_copy_that_does_not_fit_on_the_disk_is_not_begun_and_is_made_once_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fill the disk, be given up, and begin again."""
    monkeypatch.setattr(receiving, "NO_ROOM_PAUSE_S", 0.01)
    room, asked = 0, list[int]()

    def take(self: CheckpointReceiver, group_id: int, size: int) -> None:
        asked.append(size)
        self._room = lambda: room
        kept(self, group_id, size)

    kept = CheckpointReceiver._take
    monkeypatch.setattr(CheckpointReceiver, "_take", take)

    async def scenario() -> None:
        nonlocal room
        async with behind(tmp_path) as (cluster, node):
            await cluster.start(node)
            await until(lambda: len(asked) >= 2)
            assert len(list(CheckpointStore(cluster.data(node) / "groups").folder(GROUP).glob("files-*"))) == 1
            room = asked[-1] - 1
            asked.clear()
            await until(lambda: len(asked) >= 2)
            assert cluster.group(node).applied_index <= 50
            room = 1 << 30
            await agrees(cluster, node)

    asyncio.run(scenario())


def test_copies_under_way_have_their_room_and_give_it_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            receiver = node.host._parts.receiver
            receiver._room = lambda: 100
            receiver._take(1, 60)
            with pytest.raises(NoRoom, match="takes 41 bytes, and the disk has room for 40"):
                receiver._take(2, 41)
            receiver._take(2, 40)
            await receiver._fetch(1, "n2", 1000)
            receiver._take(3, 60)

    asyncio.run(scenario())


def test_a_follower_behind_the_leaders_log_installs_a_checkpoint_and_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind(tmp_path) as (cluster, node):
            await cluster.start(node)
            await agrees(cluster, node)
            machine = cluster.machines[node]
            assert min(machine.applied, default=1000) > 50  # the rest came as files
            await cluster.write(30)
            await agrees(cluster, node)
            await cluster.stop(node)
            await cluster.start(node)
            await agrees(cluster, node)
            folder = CheckpointStore(cluster.data(node) / "groups").folder(GROUP)
            assert len(list(folder.glob("files-*"))) == 1

    asyncio.run(scenario())


def test_a_node_with_an_empty_disk_installs_a_checkpoint_into_files_closed_to_other_users(
    tmp_path: Path, umask: Callable[[int], int]
) -> None:
    async def scenario() -> None:
        async with behind(tmp_path) as (cluster, node):
            shutil.rmtree(cluster.data(node))
            await cluster.start(node)
            await agrees(cluster, node)

    asyncio.run(scenario())
    written = [*tmp_path.rglob("wal"), *tmp_path.rglob("groups"), *tmp_path.rglob("checkpoint")]
    assert len(written) >= 9
    theirs = {path for root in written for path, _ in open_to_others(root)}
    assert [path for path in theirs if not path.parent.name.startswith("files-")] == []  # those are the machine's


def test_files_that_are_here_already_are_linked_and_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read_piece = sending.read_piece

    def spy(path: Path, position: int, size: int) -> bytes:
        asked.append(path.name)
        return read_piece(path, position, size)

    monkeypatch.setattr(sending, "read_piece", spy)

    async def scenario() -> None:
        async with FileCluster(tmp_path) as cluster:
            leader = await cluster.led()
            node = next(each for each in cluster.hosts if each != leader)
            await cluster.write(30)
            await until(lambda: cluster.machines[node].count == 30)
            await cluster.stop(node)
            await cluster.write(100)
            await until(lambda: all(wal_numbers(cluster.data(each))[0] > 3 for each in cluster.hosts))
            await cluster.start(node)
            await agrees(cluster, node)
            assert "checkpoint" in asked
            assert "000000" not in asked
            assert "000015" in asked

    asyncio.run(scenario())


STEPS: list[tuple[Any, str]] = [
    (CheckpointCopy, "_fetch_checkpoint"),
    (CheckpointStore, "begin"),
    (CheckpointCopy, "_fetch_file"),
    (CheckpointCopy, "_verify"),
    (CheckpointStore, "write"),
    (Group, "install"),
    (FileMachine, "inspect"),
]


@pytest.mark.parametrize("owner, name", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_dying_at_any_step_of_a_copy_leaves_a_node_that_starts_and_copies_again(
    tmp_path: Path, owner: Any, name: str, when: str
) -> None:
    """The node stands still there for ever, is killed, and lives again with the disk as it was then."""

    async def scenario() -> None:
        async with behind(tmp_path) as (cluster, node):
            reached: list[str] = []
            folder = CheckpointStore(cluster.data(node) / "groups").folder(GROUP)
            own = max((int(path.name.rpartition("-")[2]) for path in folder.glob("files-*")), default=0)
            with pytest.MonkeyPatch.context() as patch:
                real = getattr(owner, name)

                def stop_here(self: Any, *arguments: Any) -> Any:
                    if owner is CheckpointStore and getattr(arguments[-1], "generation", arguments[-1]) <= own:
                        return real(self, *arguments)  # not of a copy
                    if when == "after" and not asyncio.iscoroutinefunction(real):
                        real(self, *arguments)
                    reached.append(name)
                    raise CopyFailed("killed here")

                async def stop_here_later(self: Any, *arguments: Any) -> Any:
                    if when == "after":
                        await real(self, *arguments)
                    reached.append(name)
                    raise CopyFailed("killed here")

                patch.setattr(owner, name, stop_here_later if asyncio.iscoroutinefunction(real) else stop_here)
                remove = shutil.rmtree  # the dead remove nothing
                patch.setattr(shutil, "rmtree", lambda path, **how: None if reached else remove(path, **how))
                patch.setattr(receiving, "PAUSE_S", 60.0)
                await cluster.start(node)
                await until(lambda: bool(reached))
                await cluster.kill(node)
            await cluster.start(node)
            await agrees(cluster, node)
            folder = CheckpointStore(cluster.data(node) / "groups").folder(GROUP)
            assert {path.name for path in folder.glob("offer-*")} == set()

    asyncio.run(scenario())


def test_a_copy_that_came_damaged_does_not_count_and_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged: list[str] = []
    read_piece = sending.read_piece

    def damage(path: Path, position: int, size: int) -> bytes:
        data = read_piece(path, position, size)
        if len(damaged) < 2 and path.name != (damaged[-1] if damaged else ""):
            damaged.append(path.name)
            return bytes([data[0] ^ 1]) + data[1:]
        return data

    async def scenario() -> None:
        async with behind(tmp_path) as (cluster, node):
            monkeypatch.setattr(sending, "read_piece", damage)
            await cluster.start(node)
            await agrees(cluster, node)
            assert damaged[0] == "checkpoint"
            assert len(damaged) == 2

    asyncio.run(scenario())


def test_a_checkpoint_that_is_being_copied_outlives_newer_ones_until_no_node_asks_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "IDLE_S", 0.2)
    copied = asyncio.Event()
    go_on = asyncio.Event()
    real = CheckpointCopy._fetch_file
    held: list[set[str]] = []

    async def scenario() -> None:
        async with behind(tmp_path) as (cluster, node):
            leader = await cluster.led()
            folder = CheckpointStore(cluster.data(leader) / "groups").folder(GROUP)

            async def wait(self: Any, *arguments: Any) -> None:
                copied.set()
                await go_on.wait()
                await real(self, *arguments)

            with monkeypatch.context() as patch:
                patch.setattr(sending, "IDLE_S", 60.0)
                patch.setattr(CheckpointCopy, "_fetch_file", wait)
                await cluster.start(node)
                await copied.wait()
                await cluster.write(60)
                held.append({path.name for path in folder.glob("offer-*")})
                go_on.set()
                await agrees(cluster, node)
            assert len(held[0]) == 1

    asyncio.run(scenario())


async def _is_filled_and_nothing_stays_held(directory: Path) -> None:
    async with behind(directory) as (cluster, node):
        await cluster.start(node)
        await agrees(cluster, node)
        groups = [CheckpointStore(cluster.data(each) / "groups").folder(GROUP) for each in cluster.hosts]
        await until(lambda: not any(list(folder.glob("offer-*")) for folder in groups))


def test_an_unused_offer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = CheckpointReceiver._ask

    async def releases_nothing(receiver: CheckpointReceiver, node_id: str, question: Question) -> bytes:
        return b"" if isinstance(question, Release) else await ask(receiver, node_id, question)

    monkeypatch.setattr(sending, "IDLE_S", 0.1)
    monkeypatch.setattr(CheckpointReceiver, "_ask", releases_nothing)
    asyncio.run(_is_filled_and_nothing_stays_held(tmp_path))


def test_a_copy_that_is_done_makes_room_for_others_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that had lost its disk took 30 s for each eight of its groups: chaos, seed 73 with corrupt-index."""
    monkeypatch.setattr(sending, "IDLE_S", 3600.0)
    asyncio.run(_is_filled_and_nothing_stays_held(tmp_path))


def test_a_checkpoint_is_held_until_every_node_that_copies_it_is_done() -> None:
    discarded: list[Path] = []

    async def scenario() -> None:
        keeper: Any = SimpleNamespace(discard=discarded.append)
        held = CheckpointSender(keeper)
        offer = HeldCheckpoint(Path("offer"), _checkpoint(), 0)
        held._held[GROUP, offer.index] = offer
        offer.nodes = {"n2", "n3"}
        for node, index in (("n2", offer.index - 1), ("n2", offer.index), ("n2", offer.index)):
            assert await held.answer(node, encode(Release(GROUP, index))) == b""
            assert not discarded
        await held.answer("n3", encode(Release(GROUP, offer.index)))
        assert discarded == [Path("offer")]
        with pytest.raises(NothingHeld):
            await held.answer("n3", encode(FetchPiece(GROUP, offer.index, "", 0)))

    asyncio.run(scenario())


def test_a_checkpoint_that_is_not_ahead_of_the_replica_is_not_installed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FileCluster(tmp_path) as cluster:
            leader = await cluster.led()
            node = next(each for each in cluster.hosts if each != leader)
            await cluster.write(100)
            await until(lambda: all(wal_numbers(cluster.data(each))[0] > 2 for each in cluster.hosts))
            await until(lambda: cluster.is_at_end(node))
            host = cluster.hosts[node]
            ask = lambda question: host._parts.receiver._ask(leader, question)  # noqa: E731
            copy = CheckpointCopy(host._parts.storage, cluster.group(node), host._parts.storage.open_groups[GROUP], ask)
            with pytest.raises(CopyFailed, match="went on without it"):
                await copy.run(2)
            assert len(list(host._parts.storage.store.folder(GROUP).glob("files-*"))) <= 2
            await agrees(cluster, node)

    asyncio.run(scenario())


def test_the_files_of_the_checkpoint_on_disk_outlive_a_copy_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first copy counted, and the group went past it meanwhile; the second one took the first one's folder."""

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            await node.commit(3)
            kept, store = node.host._parts.storage.open_groups[GROUP], node.host._parts.storage.store
            group: Any = SimpleNamespace(group_id=GROUP, commit_index=0, install=lambda *_: False)
            copied = Checkpoint(GROUP, 1000, 1, node.group.configuration, 1, msgspec.msgpack.encode((0, 0)), ())
            with monkeypatch.context() as patch:
                patch.setattr(kept, "make_due", lambda: None)
                await CheckpointCopy(node.host._parts.storage, group, kept, unasked).complete(copied)
                damaged = msgspec.structs.replace(copied, state=msgspec.msgpack.encode((1, 1)))
                with pytest.raises(ImageDamaged):
                    await CheckpointCopy(node.host._parts.storage, group, kept, unasked).complete(damaged)
            counting = store.read(GROUP)
            assert counting is not None
            assert (counting.index, store.files(GROUP, counting.generation).exists()) == (1000, True)
            kept.make_due()
            await until(lambda: {path.name for path in store.folder(GROUP).glob("files-*")} == {"files-1"})
            counting = store.read(GROUP)
            assert counting is not None
            assert (counting.index, counting.generation) == (node.group.applied_index, 1)

    asyncio.run(scenario())


def test_a_copy_that_is_given_up_while_it_is_installed_leaves_one_set_of_files(tmp_path: Path) -> None:
    """As long as the disk is full it is given up each second, also while a thread writes for it."""

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            await node.commit(3)
            storage, receiver = node.host._parts.storage, node.host._parts.receiver
            kept, store = storage.open_groups[GROUP], storage.store
            group: Any = SimpleNamespace(group_id=GROUP, commit_index=0, install=lambda *_: True)
            copied = Checkpoint(GROUP, 1000, 1, node.group.configuration, 1, msgspec.msgpack.encode((0, 0)), ())
            is_writing, may_end = asyncio.Event(), threading.Event()
            loop, write = asyncio.get_running_loop(), store.write

            def slow_write(checkpoint: Checkpoint) -> None:
                loop.call_soon_threadsafe(is_writing.set)
                may_end.wait(5)  # a bound for when this test fails
                write(checkpoint)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store, "write", slow_write)
                copy = CheckpointCopy(storage, group, kept, unasked)
                task = receiver._tasks[GROUP] = asyncio.create_task(copy.complete(copied))
                await is_writing.wait()
                give_up = partial(receiver.set_full, is_full=True)
                for cancel in (give_up, give_up, task.cancel, task.cancel):
                    cancel()
                    for _ in range(5):
                        await asyncio.sleep(0)
                    assert (task.done(), storage.lock.locked()) == (False, True), "a thread is writing"
                may_end.set()
                await asyncio.wait([task])
            assert task.cancelled()
            assert not storage.lock.locked()
            del receiver._tasks[GROUP]
            await until(lambda: {path.name for path in store.folder(GROUP).glob("files-*")} == {"files-2"})
            assert (kept.generation, kept.stale) == (2, [])

    asyncio.run(scenario())


def test_a_copy_that_is_given_up_again_while_its_files_are_removed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            await node.commit(3)
            storage, receiver = node.host._parts.storage, node.host._parts.receiver
            kept, store = storage.open_groups[GROUP], storage.store
            copied = Checkpoint(GROUP, 1000, 1, node.group.configuration, 1, msgspec.msgpack.encode((0, 0)), ())
            is_at, may_go_on = asyncio.Event(), threading.Event()
            loop, begin, remove = asyncio.get_running_loop(), store.begin, shutil.rmtree

            def stand_still() -> None:
                loop.call_soon_threadsafe(is_at.set)
                may_go_on.wait(5)  # a bound for when this test fails
                may_go_on.clear()

            def slow_begin(group_id: int, generation: int) -> Path:
                directory = begin(group_id, generation)
                stand_still()
                return directory

            def slow_remove(path: Path, **how: Any) -> None:
                stand_still()
                remove(path, **how)

            copy = CheckpointCopy(storage, node.group, kept, unasked)
            monkeypatch.setattr(store, "begin", slow_begin)
            monkeypatch.setattr(shutil, "rmtree", slow_remove)
            task = receiver._tasks[GROUP] = asyncio.create_task(copy.complete(copied))
            for _ in range(2):
                await is_at.wait()
                is_at.clear()
                receiver.set_full(is_full=True)
                may_go_on.set()
            await asyncio.wait([task])
            assert task.cancelled()
            monkeypatch.undo()
            del receiver._tasks[GROUP]
            assert {path.name for path in store.folder(GROUP).glob("files-*")} == {"files-1"}

    asyncio.run(scenario())


def test_after_a_checkpoint_that_could_not_be_written_one_of_the_group_itself_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            await node.commit(3)
            kept, store = node.host._parts.storage.open_groups[GROUP], node.host._parts.storage.store
            group: Any = SimpleNamespace(group_id=GROUP, commit_index=0)
            copied = Checkpoint(GROUP, 1000, 1, node.group.configuration, 1, msgspec.msgpack.encode((0, 0)), ())

            def fail(_: Checkpoint) -> None:
                raise OSError(28, "No space left on device")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store, "write", fail)
                patch.setattr(kept, "_due", lambda: None)
                with pytest.raises(OSError, match="No space left"):
                    await CheckpointCopy(node.host._parts.storage, group, kept, unasked).complete(copied)
            assert store.files(GROUP, 2).exists(), "the checkpoint on disk may name it"
            kept.make_due()
            await until(lambda: {path.name for path in store.folder(GROUP).glob("files-*")} == {"files-1"})

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EIO])
def test_a_disk_that_fails_while_a_copy_is_written_stops_the_node_whatever_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """ETIMEDOUT is a TimeoutError, as an answer is that does not come. A sync that failed must not be repeated."""

    def sync_directory(directory: Path) -> None:
        raise OSError(number, "the disk")

    async def scenario() -> None:
        async with behind(tmp_path) as (cluster, node):
            monkeypatch.setattr(receiving, "sync_directory", sync_directory)
            await cluster.start(node)
            await until(lambda: bool(cluster.fatal))
            ((failed, error),) = cluster.fatal
            assert (failed, getattr(error, "errno", None)) == (node, number)

    asyncio.run(scenario())


async def unasked(_: Any) -> bytes:
    raise AssertionError("nothing is to be fetched")


def test_a_question_for_a_file_outside_the_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"")
    offer = HeldCheckpoint(tmp_path, _checkpoint(), 0)
    for name in ("../checkpoint", "/etc/passwd", "x"):
        with pytest.raises(NothingHeld):
            offer.path(name)


def _checkpoint() -> Any:
    return Checkpoint(1, 2, 3, NO_MEMBERS, 1, b"", ())


def test_pieces_are_paced_by_their_bytes_and_none_waits_longer_than_an_answer_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds, 3))

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 100.0, raising=False)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        limiter = RateLimiter()
        await limiter.take(questions.PIECE_BYTES)
        assert waits == [], "without a bound"
        limiter.bytes_per_s = 2 * questions.PIECE_BYTES
        for _ in range(4):
            await limiter.take(questions.PIECE_BYTES)
        assert waits == [0.5, 1.0, 1.5]
        limiter.bytes_per_s = questions.PIECE_BYTES // 100
        await limiter.take(questions.PIECE_BYTES)
        await limiter.take(questions.PIECE_BYTES)
        assert waits[-1] == pacing.PACED_S_MAX

    asyncio.run(main())
