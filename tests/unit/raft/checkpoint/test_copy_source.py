"""A node believes nothing that another one answers about a checkpoint, and is safe from a power cut while it copies."""

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from disk_calls import beside, recorded
from waiting import until

from stockade.raft.checkpoint import receiver as receiving
from stockade.raft.checkpoint.digests import digest
from stockade.raft.checkpoint.group_storage import GroupStorage
from stockade.raft.checkpoint.questions import (
    CHECKPOINT,
    FetchCheckpoint,
    FetchDigest,
    FetchPiece,
    NothingHeld,
    Offered,
    Question,
    Release,
    decode_offered,
    decode_question,
    encode,
)
from stockade.raft.checkpoint.receiver import STATE_BYTES_MAX, CheckpointCopy, CopyFailed
from stockade.raft.checkpoint.store import Checkpoint, CheckpointStore
from stockade.raft.checkpoint.store import encode as encode_checkpoint
from stockade.raft.checkpoint.tombstones import Tombstones
from stockade.raft.core.group import Group
from stockade.raft.log.origin import GroupTombstone
from stockade.raft.machine import FileExtent, ImageDamaged
from stockade.raft.wal.records import Run
from stockade.raft.wal.writer import WalWriter

from ...partition.log.test_descriptors import no_descriptor_left
from ..cluster import GROUP, copy_of_a_moment
from ..file_machine import SingleNode, single_node

Ask = Callable[[Question], Awaitable[bytes]]


class Source:
    """A node with a checkpoint of seven commands in two files: a full one, and one that grows."""

    def __init__(self, node: SingleNode, checkpoint: Checkpoint) -> None:
        self.node = node
        self.checkpoint = checkpoint

    async def ask(self, question: Question, node_id: str = "n2") -> bytes:
        return await self.node.host._parts.sender.answer(node_id, encode(question))

    async def take_another(self) -> Checkpoint:
        """Commit a command, and take a checkpoint that holds it: the present one from now on."""
        await self.node.commit(1)
        assert await self.node.host._checkpointer._take(GROUP)
        found = storage_of(self.node).store.read(GROUP)
        assert found is not None
        self.checkpoint = found
        return found

    def asking(self, kind: type[Question], lie: Callable[[Any, bytes], bytes]) -> Ask:
        """``ask``, with ``lie`` in place of the answers to this kind of question, which it gets."""

        async def ask(question: Question) -> bytes:
            answer = await self.ask(question)
            return lie(question, answer) if isinstance(question, kind) else answer

        return ask


def storage_of(node: SingleNode) -> GroupStorage:
    return node.host._parts.storage


@asynccontextmanager
async def copying(directory: Path) -> AsyncIterator[tuple[SingleNode, Source]]:
    """A node that joins the group and has nothing, and one to copy from."""
    async with single_node(directory / "there") as there, single_node(directory / "here", groups=()) as here:
        await there.commit(7)
        assert await there.host._checkpointer._take(GROUP)
        checkpoint = storage_of(there).store.read(GROUP)
        assert checkpoint is not None
        assert [extent.is_sealed for extent in checkpoint.files] == [True, False]
        machine = here.machines[GROUP] = type(there.machine)()
        here.host.open_group(GROUP, {}, machine)
        yield here, Source(there, checkpoint)


async def copy(node: SingleNode, source: Source, ask: Ask | None = None) -> None:
    storage = storage_of(node)
    attempt = CheckpointCopy(storage, node.group, storage.open_groups[GROUP], ask or source.ask)
    await attempt.run(source.checkpoint.index)


def folder(directory: Path) -> Path:
    return CheckpointStore(directory / "here" / "groups").folder(GROUP)


def test_the_files_of_a_copy_and_their_names_are_on_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with copying(tmp_path) as (node, source):
            calls = recorded(monkeypatch)
            await copy(node, source)
            assert node.machine.commands() == source.node.machine.commands()
            found = beside(calls, folder(tmp_path))
            files = [("sync", "files-2/000000"), ("sync", "files-2/000001"), ("sync", "files-2")]
            assert found[: found.index(("rename", "checkpoint"))] == [
                *files,
                *(("sync", path) for path in ("files-2", ".", "..", "checkpoint.new")),
            ]

    asyncio.run(scenario())


def test_a_copy_counts_after_all_records_of_the_log_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start refuses a checkpoint beside a log that never held a record."""
    write, sync, may_sync = CheckpointStore.write, os.fdatasync, threading.Event()

    async def scenario() -> None:
        async with copying(tmp_path) as (node, source):
            log, durable_at_write = storage_of(node).log, list[bool]()
            lsn = log.save_vote(8, 1, "n1")

            def written(store: CheckpointStore, checkpoint: Checkpoint) -> None:
                durable_at_write.append(log.durable_lsn >= lsn)
                write(store, checkpoint)

            def held(descriptor: int) -> None:
                may_sync.wait(10)  # a bound for when this test fails
                sync(descriptor)

            monkeypatch.setattr(CheckpointStore, "write", written)
            monkeypatch.setattr(os, "fdatasync", held)
            copied = asyncio.create_task(copy(node, source))
            await until(lambda: bool(durable_at_write) or log._next_flush is not None)
            may_sync.set()
            await copied
            assert durable_at_write == [True]

    asyncio.run(scenario())


def test_a_replica_that_returns_in_the_term_in_which_it_was_erased_keeps_the_copy_that_it_acks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start removes the checkpoint of a group of which the log holds no record."""
    install, write, is_held, may_write = Group.install, WalWriter.write, threading.Event(), threading.Event()

    def held(writer: WalWriter, runs: Sequence[Run]) -> None:
        if is_held.is_set():
            may_write.wait(10)  # a bound for when this test fails
        write(writer, runs)

    def installed(group: Group, *arguments: Any) -> bool:
        is_held.set()
        return install(group, *arguments)

    async def scenario() -> None:
        monkeypatch.setattr(WalWriter, "write", held)
        async with copying(tmp_path) as (node, source):
            await node.host.erase_group(GROUP)
            term = source.checkpoint.term
            Tombstones(tmp_path / "here" / "left").write(GROUP, GroupTombstone(term, term, 1))
            node.open(GROUP, {})
            monkeypatch.setattr(Group, "install", installed)
            try:
                await copy(node, source)
                assert node.group._node.log.durable_index == source.checkpoint.index  # as it acks to its leader
                copy_of_a_moment(tmp_path / "here", tmp_path / "killed")
            finally:
                may_write.set()
        async with single_node(tmp_path / "killed", groups=()) as node:
            assert node.open(GROUP, {}).commit_index == source.checkpoint.index
            assert node.machine.commands() == source.node.machine.commands()

    asyncio.run(scenario())


def test_a_file_of_another_content_and_the_same_name_and_size_is_fetched(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with copying(tmp_path) as (node, source):
            extent = source.checkpoint.files[0]
            (node.machine.directory / extent.name).write_bytes(bytes(extent.size))
            await copy(node, source)
            assert node.machine.commands() == source.node.machine.commands()

    asyncio.run(scenario())


def test_a_file_that_grows_is_never_shared_with_the_running_machine(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with copying(tmp_path) as (node, source):
            here = []
            for extent in source.checkpoint.files:
                path = node.machine.directory / extent.name
                path.write_bytes((source.node.machine.directory / extent.name).read_bytes())
                here.append(path.stat().st_ino)
            await copy(node, source)
            found = [(folder(tmp_path) / "files-2" / extent.name).stat().st_ino for extent in source.checkpoint.files]
            assert [one == other for one, other in zip(here, found, strict=True)] == [True, False]

    asyncio.run(scenario())


def test_a_file_is_hashed_once_on_each_side_however_many_copies_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that reads all of a large group takes longer than the log goes back under writes: the next one would be
    needed, for ever.
    """
    hashed: list[int] = []
    blake2b = hashlib.blake2b

    def counted(**options: Any) -> Any:
        hashed[-1] += 1
        return blake2b(**options)

    async def scenario() -> None:
        async with copying(tmp_path) as (node, source):
            monkeypatch.setattr(hashlib, "blake2b", counted)
            for _ in range(4):
                hashed.append(0)
                await copy(node, source)
                assert node.machine.commands() == source.node.machine.commands()
                await source.take_another()
            assert hashed == [0, 2, 0, 0]

    asyncio.run(scenario())


async def refused(directory: Path, lie: Callable[[Source], Ask], fault: str) -> None:
    """A copy of which these are the answers fails, and leaves nothing behind."""
    async with copying(directory) as (node, source):
        with pytest.raises(CopyFailed, match=fault):
            await copy(node, source, lie(source))
        assert storage_of(node).store.read(GROUP) is None
        assert [path.name for path in folder(directory).iterdir()] == ["files-1"]
        assert list((directory / "here" / "groups").iterdir()) == [folder(directory)]
        assert node.fatal == []


@pytest.mark.parametrize("index, size", [(-1, 0), (0, STATE_BYTES_MAX + 1)])
def test_an_offer_of_an_older_checkpoint_or_of_one_that_is_too_large_is_refused(
    tmp_path: Path, index: int, size: int
) -> None:
    def lie(source: Source) -> Ask:
        offered = Offered(source.checkpoint.index + index, size)
        return source.asking(FetchCheckpoint, lambda *_: encode(offered))

    asyncio.run(refused(tmp_path, lie, f"of {size} bytes was offered"))


@pytest.mark.parametrize("name", ["../stolen", "/dev/null/stolen", "sub/stolen", ".", "..", ""])
def test_a_file_name_that_leads_out_of_the_folder_of_the_copy_is_refused(tmp_path: Path, name: str) -> None:
    """What the disk would answer to it stops the node."""

    def lie(source: Source) -> Ask:
        forged = msgspec.structs.replace(source.checkpoint, files=(FileExtent(name, 3),))
        content = encode_checkpoint(forged)

        async def ask(question: Question) -> bytes:
            if isinstance(question, FetchCheckpoint):
                return encode(Offered(forged.index, len(content)))
            return content if isinstance(question, FetchPiece) and question.name == CHECKPOINT else b"abc"

        return ask

    asyncio.run(refused(tmp_path, lie, "names a file"))


@pytest.mark.parametrize("name", [CHECKPOINT, "000000"])
@pytest.mark.parametrize("more", [-1, 1])
def test_an_answer_of_fewer_or_more_bytes_than_were_asked_for_is_refused(tmp_path: Path, name: str, more: int) -> None:
    def lie(source: Source) -> Ask:
        def other(question: FetchPiece, answer: bytes) -> bytes:
            return (answer + b"?")[: len(answer) + more] if question.name == name else answer

        return source.asking(FetchPiece, other)

    asyncio.run(refused(tmp_path, lie, f"bytes of {name!r} came at 0"))


@pytest.mark.parametrize("name", [CHECKPOINT, "000000"])
def test_the_sender_of_a_damaged_checkpoint_is_told_and_logs_it(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with copying(tmp_path) as (node, source):
            sender = source.node.host._parts.sender

            async def ask(question: Question) -> bytes:
                answer = await source.ask(question)
                if isinstance(question, FetchCheckpoint):
                    (held,) = sender._held.values()
                    content = held.path(name).read_bytes()
                    held.path(name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
                return answer

            with pytest.raises(ImageDamaged):
                await copy(node, source, ask)
            assert sender._held == {}
            told = f"group {GROUP}: the checkpoint at {source.checkpoint.index} came damaged to n2"
            assert told in caplog.text
            await source.ask(Release(GROUP, source.checkpoint.index))
            assert caplog.text.count(told) == 1

    asyncio.run(scenario())


def test_a_release_question_of_the_previous_release_has_no_is_damaged_and_the_previous_release_reads_ours(
    tmp_path: Path,
) -> None:
    class Before(msgspec.Struct, frozen=True, tag=3, array_like=True):
        group_id: int
        index: int

    assert decode_question(msgspec.msgpack.encode(Before(7, 9))) == Release(7, 9)
    assert msgspec.msgpack.decode(encode(Release(7, 9, is_damaged=True)), type=Before) == Before(7, 9)


def test_copies_that_come_damaged_from_one_node_become_rare_and_another_node_is_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint of many gigabytes was copied for ever, as fast as the disks allowed."""
    begun: list[int] = []

    async def run(attempt: CheckpointCopy, index: int) -> None:
        begun.append(index)
        if index < 5:
            raise ImageDamaged("the files are not as written")

    monkeypatch.setattr(CheckpointCopy, "run", run)
    monkeypatch.setattr(receiving, "PAUSE_S", 50.0)

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            receiver = node.host._parts.receiver

            async def offers(node_id: str, index: int) -> None:
                receiver.fetch(GROUP, node_id, index)
                await asyncio.gather(*receiver._tasks.values())

            await offers("n2", 1)
            await offers("n2", 2)
            await offers("n3", 3)
            assert begun == [1, 3]
            assert "is damaged: the files are not as written. The next one from there begins in 50 s" in caplog.text
            assert [receiver._came_damaged(GROUP, "n3") for _ in range(4)] == [100.0, 200.0, 300.0, 300.0]
            await offers("n3", 4)
            await offers("n2", 5)
            await offers("n3", 6)
            assert begun == [1, 3, 5, 6], "a copy that came whole makes an end of it"

    asyncio.run(scenario())


def test_a_group_that_went_on_while_its_copy_was_written_takes_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    """The one on disk names the copy's files, and the group works on its own."""

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            await node.commit(3)
            storage = storage_of(node)
            group: Any = SimpleNamespace(group_id=GROUP, commit_index=0, install=lambda *_: False)
            copied = Checkpoint(GROUP, 1000, 1, node.group.configuration, 1, msgspec.msgpack.encode((0, 0)), ())
            await CheckpointCopy(storage, group, storage.open_groups[GROUP], _unasked).complete(copied)
            await until(lambda: node.machine.captures == 1, 10.0)

    asyncio.run(scenario())


def test_a_node_that_begins_to_copy_a_newer_checkpoint_ends_no_copy_of_another_node(tmp_path: Path) -> None:
    """It began again from nothing, and perhaps ended the other one in its turn."""

    async def scenario() -> None:
        async with copying(tmp_path) as (_, source):
            older, newer = source.checkpoint, await source.take_another()
            name = older.files[0].name
            folder = CheckpointStore(tmp_path / "there" / "groups").folder(GROUP)
            first = FetchCheckpoint(GROUP, older.index)
            assert decode_offered(await source.ask(first, "n2")).index == newer.index
            newest = await source.take_another()
            await source.ask(FetchCheckpoint(GROUP, newest.index), "n3")
            for node, index in (("n2", newer.index), ("n3", newest.index)):
                assert await source.ask(FetchPiece(GROUP, index, name, 0), node)
            assert len(list(folder.glob("offer-*"))) == 2
            await source.ask(FetchCheckpoint(GROUP, newest.index), "n2")
            with pytest.raises(NothingHeld):
                await source.ask(FetchPiece(GROUP, newer.index, name, 0), "n2")
            await until(lambda: len(list(folder.glob("offer-*"))) == 1)
            assert await source.ask(FetchPiece(GROUP, newest.index, name, 0), "n3")

    asyncio.run(scenario())


def test_a_checkpoint_is_held_and_answered_for_without_a_free_descriptor(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with copying(tmp_path) as (_, source):
            at, name = source.checkpoint.index, source.checkpoint.files[0].name
            with no_descriptor_left(16) as use_up:
                for question in (
                    FetchCheckpoint(GROUP, at),
                    FetchDigest(GROUP, at, name),
                    FetchPiece(GROUP, at, name, 0),
                ):
                    assert await source.ask(question)
                    use_up()
                assert digest(storage_of(source.node).store.path(GROUP), 1 << 20)

    asyncio.run(scenario())


def test_an_offer_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its links would keep the bytes of segments that are gone."""
    link = os.link

    def failing(there: Path, here: Path) -> None:
        if here.name == "000001":
            raise OSError(errno.ENOSPC, "No space left on device")
        link(there, here)

    async def scenario() -> None:
        async with copying(tmp_path) as (_, source):
            monkeypatch.setattr(os, "link", failing)
            with pytest.raises(OSError, match="No space"):
                await source.ask(FetchCheckpoint(GROUP, source.checkpoint.index))
            assert list(storage_of(source.node).store.folder(GROUP).glob("offer-*")) == []

    asyncio.run(scenario())


async def _unasked(_: Question) -> bytes:
    raise AssertionError("nothing is to be fetched")


def test_a_node_that_stops_begins_no_copy_while_it_ends_those_under_way(tmp_path: Path) -> None:
    """Leaders go on to offer. A copy that began then met closed threads, and the node ended as if it had failed."""

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            receiver, offer = node.host._parts.receiver, node.host._parts.runtime.fetch_checkpoint
            is_leaving, may_end = asyncio.Event(), asyncio.Event()

            async def copying() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    is_leaving.set()
                    await may_end.wait()

            receiver._tasks[GROUP] = asyncio.create_task(copying())
            stopping = asyncio.create_task(node.host.stop())
            await is_leaving.wait()
            offer(GROUP + 1, "n2", 1000)
            assert list(receiver._tasks) == [GROUP]
            may_end.set()
            await stopping
            assert node.fatal == []

    asyncio.run(scenario())
