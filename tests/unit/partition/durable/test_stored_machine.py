"""Checkpoints of a partition: captured, cut, damaged, restored (SEMANTICS 10 and 11, 84 to 87)."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_log import MemoryLog
from msgspec.structs import replace

from stockade.partition.commands import (
    AddTierObject,
    Append,
    Appended,
    AppendStage,
    BeginAt,
    BeginTier,
    ChangeStages,
    ClearFence,
    Command,
    CommitPosition,
    Configure,
    InstallFence,
    InstallProducer,
    InstallReader,
    InstallSeats,
    PutStage,
    Retain,
    SharedHolder,
    Stamp,
    TierObject,
    Token,
    Trim,
    encode_command,
)
from stockade.partition.durable.stored_machine import StoredMachine
from stockade.partition.errors import PermissionDenied
from stockade.partition.log import segment_files
from stockade.partition.log.image import FileExtent, Image, ImageDamaged
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import batch_from_columns
from stockade.partition.state import snapshot
from stockade.partition.state.invariants import check
from stockade.partition.state.machine import PartitionConfig, PartitionMachine

from ..driver import ANONYMOUS, NAMED, TOPIC_ID, grant

CONFIG = PartitionConfig(topic_id=TOPIC_ID, max_producers=3, producer_ttl_ms=100, dedupe_window_ms=50)
SEGMENT_BYTES_MAX = 2000


class Partition:
    """A stored machine and the log that its group would keep."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.stored = new_machine()
        self.stored.start(directory)
        self.commands: list[bytes] = []

    @property
    def machine(self) -> PartitionMachine:
        return self.stored.machine

    def apply(self, command: Command) -> object:
        self.commands.append(encode_command(command))
        return self.stored.apply(len(self.commands), 1, self.commands[-1])

    def append(self, stamp: Stamp | None = None, value: bytes = b"v", count: int = 1) -> object:
        return self.apply(append(stamp, value, count, len(self.commands)))

    def checkpoint(self) -> Image:
        image = self.stored.capture()
        image.sync()
        image.stored()
        return image

    def restarted_at(self, image: Image) -> StoredMachine:
        """What a restart makes of the files alone."""
        self.stored.log.close()
        again = new_machine()
        again.restore(self.directory, image.state, image.files)
        return again

    def restarted(self, image: Image, applied: int) -> StoredMachine:
        """What a restart makes of the files and the log's entries behind the checkpoint."""
        self.stored.log.close()
        again = new_machine()
        again.restore(self.directory, image.state, image.files)
        check(again.machine)
        for index, command in enumerate(self.commands[applied:], applied + 1):
            again.apply(index, 1, command)
        return again


def new_machine() -> StoredMachine:
    log = SegmentLog(SEGMENT_BYTES_MAX)
    return StoredMachine(CONFIG, log)


def append(stamp: Stamp | None, value: bytes, count: int, number: int) -> Append:
    now = 1000 + number
    batch = batch_from_columns([None] * count, [value] * count, None, None, now_ms=now, batch_bytes_max=1 << 20)
    return Append(batch.message, count, batch.crc, now, batch.max_timestamp_ms, stamp=stamp)


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """Seven batches of a named producer in four segments, a grant in the slot, an entry without batches."""
    found = Partition(tmp_path / "files")
    for pid in (NAMED, ANONYMOUS):
        found.apply(InstallProducer(pid, 0))
    for number in range(7):
        found.append(Stamp(NAMED, 0, number), b"%d" % number)
    found.apply(InstallFence(grant(1), 1, "s1", "loader", "Exclusive", 40))
    yield found
    found.stored.log.close()


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_086_a_restored_state_equals_the_captured_one_with_producers_without_batches(partition: Partition) -> None:
    image, before = partition.checkpoint(), content(partition.directory)
    again = partition.restarted(image, len(partition.commands))
    assert again.capture().state == image.state
    assert again.capture().files == image.files
    assert content(partition.directory) == before
    assert again.machine.producers.entries == partition.machine.producers.entries
    assert (again.machine.slot, again.machine.log_end) == (partition.machine.slot, 7)
    entry = again.machine.producer(ANONYMOUS)
    assert entry is not None
    assert (entry.run.cache, entry.run.last_seq) == ((), -1)


def test_a_restored_partition_knows_whose_tokens_producers_and_resources_are(partition: Partition) -> None:
    partition.apply(InstallFence(grant(2), 2, "s2", "loader", "Exclusive", 41, principal="p"))
    partition.apply(InstallProducer(NAMED, 5, principal="p"))
    partition.apply(InstallReader("g", 1, principal="p"))
    again = partition.restarted(partition.checkpoint(), len(partition.commands))
    for refused in (
        Trim(None, token=Token(grant(2), 2, "s2"), principal="q"),
        ChangeStages([], [], NAMED, 5, principal="q"),
        CommitPosition("g", 0, None, 1, principal="q"),
    ):
        assert isinstance(again.apply(0, 1, encode_command(refused)), PermissionDenied)


def test_086_an_empty_partition_is_restored_empty(tmp_path: Path) -> None:
    empty = Partition(tmp_path / "files")
    image = empty.checkpoint()
    assert image.files == ()
    again = empty.restarted(image, 0)
    assert (again.machine.log_start, again.machine.log_end, again.capture().state) == (0, 0, image.state)


def test_084_after_a_restore_the_five_newest_batches_are_still_duplicates_at_their_offsets(
    partition: Partition,
) -> None:
    again = partition.restarted(partition.checkpoint(), len(partition.commands))
    again.apply(20, 1, encode_command(ClearFence(grant(1), 1, 41)))
    for number in range(2, 7):
        command = append(Stamp(NAMED, 0, number), b"%d" % number, 1, 99)
        result = again.apply(21 + number, 1, encode_command(command))
        assert isinstance(result, Appended)
        assert (result.base_offset, result.last_offset, result.duplicate) == (number, number, True)
    assert again.machine.log_end == 7


def test_all_but_the_last_segment_are_sealed(partition: Partition) -> None:
    files = partition.checkpoint().files
    assert [file.is_sealed for file in files] == [True] * (len(files) - 2) + [False] * 2


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 40, -1])
def test_085_a_cut_state_is_refused(partition: Partition, cut: int) -> None:
    image = partition.checkpoint()
    assert_damaged(partition, image.state[:cut], image.files)


def test_085_a_state_with_any_bit_flipped_is_refused(partition: Partition) -> None:
    image = partition.checkpoint()
    for place in range(len(image.state)):
        flipped = bytearray(image.state)
        flipped[place] ^= 1 << place % 8
        if 6 <= place < 8:
            continue  # padding of the header
        with pytest.raises(ImageDamaged):
            snapshot.decode(bytes(flipped))


def test_085_the_state_of_another_topic_is_refused(partition: Partition) -> None:
    image = partition.checkpoint()
    log = SegmentLog()
    stranger = StoredMachine(PartitionConfig(topic_id=TOPIC_ID + 1), log)
    with pytest.raises(ImageDamaged, match="of topic 812"):
        stranger.restore(partition.directory, image.state, image.files)


def assert_damaged(partition: Partition, captured: bytes, files: tuple[FileExtent, ...]) -> None:
    for check_it in (new_machine().inspect, new_machine().restore):
        with pytest.raises(ImageDamaged):
            check_it(partition.directory, captured, files)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 4
    path.write_bytes(whole)


@pytest.mark.parametrize("harm", [cut_short, Path.unlink, flip])
def test_085_a_damaged_index_is_refused(partition: Partition, harm: Callable[[Path], None]) -> None:
    image = partition.checkpoint()
    harm(sorted(partition.directory.glob("*.index"))[1])
    assert_damaged(partition, image.state, image.files)


@pytest.mark.parametrize("harm", [cut_short, Path.unlink])
def test_085_a_segment_that_is_short_or_gone_is_refused(partition: Partition, harm: Callable[[Path], None]) -> None:
    image = partition.checkpoint()
    harm(sorted(partition.directory.glob("*.arrow"))[0])
    assert_damaged(partition, image.state, image.files)


def test_085_files_that_do_not_fit_the_state_are_refused(partition: Partition) -> None:
    image = partition.checkpoint()
    for files in (image.files[:-2], image.files[2:], image.files[:1], image.files[:2] + image.files[4:], ()):
        assert_damaged(partition, image.state, files)
    assert_damaged(partition, image.state, (FileExtent("../notes", 0), FileExtent("../notes", 0)))


def test_085_an_inspection_finds_any_damaged_byte_of_a_batch_and_changes_nothing(partition: Partition) -> None:
    image = partition.checkpoint()
    new_machine().inspect(partition.directory, image.state, image.files)
    path = sorted(partition.directory.glob("*.arrow"))[1]
    whole = path.read_bytes()
    for place in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        before = content(partition.directory)
        with pytest.raises(ImageDamaged):
            new_machine().inspect(partition.directory, image.state, image.files)
        assert content(partition.directory) == before


def test_indexes_that_inspect_verified_in_a_thread_are_not_read_again_by_restore(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a large partition is installed on the loop, which must not stand still for its size."""
    image, again = partition.checkpoint(), new_machine()
    again.inspect(partition.directory, image.state, image.files)

    def refuse(path: Path, _: int) -> bytes:
        raise AssertionError(f"{path} is read")

    with monkeypatch.context() as patch:
        patch.setattr(segment_files, "_read_file", refuse)
        again.restore(partition.directory, image.state, image.files)
    assert again.capture().state == image.state
    assert values(partition.directory) == [b"%d" % number for number in range(7)]
    again.apply(9, 1, encode_command(ClearFence(grant(1), 1, 41)))
    again.apply(10, 1, encode_command(append(None, b"7", 1, 10)))
    assert (again.log.log_end, again.log.read(0, 1 << 20).next_offset) == (8, 8)
    again.log.close()


def test_a_segment_that_was_found_sound_is_read_again_only_if_a_file_of_it_is_another(partition: Partition) -> None:
    """Each further copy of a large partition that takes records has all segments of the one before."""
    image, again, index = partition.checkpoint(), new_machine(), min(partition.directory.glob("*.index"))
    with patch.object(segment_files, "inspected", wraps=segment_files.inspected) as read:
        again.inspect(partition.directory, image.state, image.files)
        once = read.call_count
        again.restore(partition.directory, image.state, image.files)
        again.inspect(partition.directory, image.state, image.files)
        assert (once > 1, read.call_count) == (True, once)
        os.utime(index, ns=(0, 0))
        again.inspect(partition.directory, image.state, image.files)
    assert read.call_count == once + 1
    again.log.close()


def test_an_inspection_of_other_files_does_not_count_for_those_that_are_restored(partition: Partition) -> None:
    image, again = partition.checkpoint(), new_machine()
    again.inspect(partition.directory, image.state, image.files)
    partition.apply(ClearFence(grant(1), 1, 41))
    partition.append(None, b"7")
    later = partition.checkpoint()
    again.restore(partition.directory, later.state, later.files)
    assert (again.log.log_end, again.log.read(7, 1).next_offset) == (8, 8)
    again.log.close()


def test_087_a_checkpoint_when_nothing_changed_is_the_same_and_syncs_nothing(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def counted(descriptor: int) -> None:
        synced.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    first = partition.checkpoint()
    assert len(synced) == 2 * 4 + 1  # two files a segment, and their folder
    again = partition.checkpoint()
    assert ((again.state, again.files), len(synced)) == ((first.state, first.files), 9)
    partition.apply(ClearFence(grant(1), 1, 41))
    partition.append()
    partition.checkpoint()
    assert len(synced) == 9 + 3, "only the last segment has grown"


def test_a_sync_that_was_given_up_keeps_no_file_open(partition: Partition) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    image: Image | None = partition.stored.capture()
    assert image is not None
    image = None
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_sync_of_an_image_covers_its_files_after_their_removal_and_further_appends(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    image = partition.stored.capture()
    captured = {(partition.directory / file.name).stat().st_ino for file in image.files}
    partition.append(Stamp(NAMED, 0, 7))
    shutil.rmtree(partition.directory)
    image.sync()
    assert len(captured) == len(image.files) > 0
    assert captured <= synced


@pytest.mark.parametrize("torn", [1, 100, 5000])
def test_a_restore_truncates_files_to_the_extents_of_the_checkpoint(partition: Partition, torn: int) -> None:
    image, applied = partition.checkpoint(), len(partition.commands)
    before = content(partition.directory)
    partition.apply(ClearFence(grant(1), 1, 41))
    for number in range(7, 12):
        partition.append(Stamp(NAMED, 0, number))
    for path in partition.directory.glob("*"):
        with path.open("ab") as file:
            file.write(b"\x5a" * torn)
    again = partition.restarted(image, applied)
    assert again.capture().state == partition.stored.capture().state
    assert again.machine.log_end == 12
    restored = content(partition.directory)
    assert all(restored[name].startswith(whole) for name, whole in before.items())
    check(again.machine)


def test_segments_stay_readable_for_arrow_while_they_are_captured_cut_and_continued(partition: Partition) -> None:
    image, applied = partition.checkpoint(), len(partition.commands)
    partition.apply(ClearFence(grant(1), 1, 41))
    partition.append(Stamp(NAMED, 0, 7), b"7")
    partition.stored.log.flush()
    assert values(partition.directory) == [b"%d" % number for number in range(8)]
    again = partition.restarted(image, applied)
    again.log.flush()
    assert values(partition.directory) == [b"%d" % number for number in range(8)]
    again.log.close()


def values(directory: Path) -> list[bytes]:
    tables = [pa.ipc.open_stream(path).read_all() for path in sorted(directory.glob("*.arrow"))]
    return [value for table in tables for value in table.column("value").to_pylist()]


def test_files_of_other_names_are_removed_by_a_restore(partition: Partition) -> None:
    image = partition.checkpoint()
    (partition.directory / "notes").write_text("left over")
    partition.restarted(image, len(partition.commands))
    assert sorted(content(partition.directory)) == sorted(file.name for file in image.files)


def test_a_running_machine_can_be_replaced_by_an_image(partition: Partition, tmp_path: Path) -> None:
    """As when a follower that is too far behind is given its leader's checkpoint."""
    image = partition.checkpoint()
    shutil.copytree(partition.directory, tmp_path / "received")
    follower = Partition(tmp_path / "follower")
    follower.apply(InstallProducer(ANONYMOUS, 3))
    follower.append(Stamp(ANONYMOUS, 3, 0))
    follower.stored.restore(tmp_path / "received", image.state, image.files)
    assert follower.stored.capture().state == image.state
    follower.append(None)
    assert (follower.machine.log_end, follower.stored.log.read(6, 1 << 20).next_offset) == (7, 7)
    follower.apply(ClearFence(grant(1), 1, 41))
    follower.append(None)
    follower.stored.log.flush()
    assert values(tmp_path / "received") == [*(b"%d" % number for number in range(7)), b"v"]
    assert follower.machine.log_end == 8
    follower.stored.log.close()


HARMLESS = ("log", "_handlers", "files", "due_ms")
"""What is not state: where bytes are, and the earliest moment at which something may have to be forgotten."""


def everything(value: object) -> object:
    """Every attribute of a machine's parts, found without knowing them: whatever the state's bytes forget is here."""
    if isinstance(value, msgspec.Struct):
        return [type(value).__name__, *map(everything, msgspec.structs.astuple(value))]
    if isinstance(value, dict):
        return [(key, everything(item)) for key, item in value.items()]
    if hasattr(value, "__dict__"):
        return {name: everything(item) for name, item in vars(value).items() if name not in HARMLESS}
    assert value is None or isinstance(value, int | str | bytes | tuple | list), value
    return list(map(everything, value)) if isinstance(value, tuple | list) else value


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from([b"", b"x" * 300])),
    st.tuples(st.just("send"), st.sampled_from([7, 8, 9, 10]), st.integers(1, 3)),
    st.tuples(st.just("bump"), st.sampled_from([7, 8, 9, 10])),
    st.tuples(st.just("seat")),
    st.tuples(st.just("clear")),
    st.tuples(st.just("share"), st.integers(0, 2)),
    st.tuples(st.just("named"), st.sampled_from("abc")),
    st.tuples(st.just("own"), st.sampled_from("gh"), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("commit"), st.sampled_from("gh"), st.integers(0, 30)),
    st.tuples(st.just("retain"), st.integers(0, 60)),
    st.tuples(st.just("trim"), st.none() | st.integers(0, 60)),
    st.tuples(st.just("begin"), st.integers(0, 20)),
    st.tuples(st.just("configure"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("stage"), st.sampled_from("abc"), st.integers(1, 3)),
    st.tuples(st.just("stages"), st.sampled_from(["", "a", "bc"]), st.sampled_from(["", "b", "ac"])),
    st.tuples(st.just("refer"), st.sampled_from("abc"), st.sampled_from([None, 8])),
    st.tuples(st.just("folder"), st.sampled_from("ab")),
    st.tuples(st.just("list"), st.integers(1, 3), st.integers(1, 2)),
)


class Maker:
    """Makes commands that mostly fit together of arbitrary steps."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.next_seq: dict[int, int] = {}
        self.grants = 0
        self.number = 0
        self.listed = 0

    def make(self, step: tuple[object, ...]) -> Command:
        """Time goes on by 10 a command; producers are forgotten after 100, names after 50."""
        self.number += 1
        command = self._of_writers(step) or self._of_stages(step) or self._of_others(step)
        assert command is not None
        timed = any(field == "now_ms" for field in command.__struct_fields__)
        return replace(command, now_ms=10 * self.number) if timed else command

    def _of_stages(self, step: tuple[object, ...]) -> Command | None:
        match step:
            case ("stage", str(name), int(count)):
                batch = append(None, b"staged", count, self.number)
                return PutStage(name, f"{count}", batch.message, count, batch.crc, batch.max_timestamp_ms, 60)
            case ("stages", str(keep), str(delete)):
                return ChangeStages(list(keep), list(delete), 8, self.epochs.get(8, 0))
            case ("refer", str(name), (int() | None) as pid):
                stamp = None if pid is None else Stamp(pid, self.epochs.get(pid, 0), self.next_seq.get(pid, 0))
                return AppendStage(name, self.number, stamp=stamp)
            case _:
                return None

    def _of_others(self, step: tuple[object, ...]) -> Command | None:  # noqa: PLR0911 (a case for each step)
        match step:
            case ("share", int(seats)):
                self.grants += 1
                shared = [SharedHolder(grant(1000 + number), "s", "loader") for number in range(seats)]
                return InstallSeats(self.grants, self.grants, shared)
            case ("own", str(group), int(fence_epoch), bool(is_owned)):
                return InstallReader(group, fence_epoch, is_owned)
            case ("commit", str(group), int(offset)):
                return CommitPosition(group, offset, "note", offset % 5)
            case ("retain", int(before)):
                return Retain(before, 0)
            case ("trim", (int() | None) as before):
                return Trim(before)
            case ("begin", int(offset)):
                return BeginAt(offset)
            case ("folder", str(folder)):
                return BeginTier(folder)
            case ("list", int(count), int(term)):
                first, self.listed = self.listed, self.listed + count
                return AddTierObject("a", TierObject(first, self.listed, term, "n", 9, b"s" * 32, 90, 7, 8))
            case ("configure", int(max_producers), bool(strict)):
                config = replace(CONFIG, max_producers=max_producers, strict_sequence=strict)
                return Configure(self.number, config)
            case _:
                return None

    def _of_writers(self, step: tuple[object, ...]) -> Command | None:  # noqa: PLR0911 (a case for each step)
        match step:
            case ("append", int(count), bytes(value)):
                return append(None, value, count, self.number)
            case ("send", int(pid), int(count)):
                first_seq = self.next_seq.get(pid, 0)
                self.next_seq[pid] = first_seq + count
                return append(Stamp(pid, self.epochs.get(pid, 0), first_seq), b"", count, self.number)
            case ("bump", int(pid)):
                self.epochs[pid] = self.epochs.get(pid, -1) + 1
                self.next_seq[pid] = 0
                return InstallProducer(pid, self.epochs[pid])
            case ("named", str(name)):
                return replace(append(None, b"", 1, self.number), message_id=name)
            case ("seat",):
                self.grants += 1
                return InstallFence(grant(self.grants), self.grants, "s", "loader", "Exclusive", self.grants)
            case ("clear",):
                return ClearFence(grant(self.grants), self.grants, self.grants)
            case _:
                return None


@settings(max_examples=80, deadline=None)
@given(st.data(), st.lists(STEPS, max_size=40))
def test_a_replica_that_was_restored_and_replayed_is_byte_equal(
    data: st.DataObject, steps: list[tuple[object]]
) -> None:
    maker = Maker()
    commands = [maker.make(step) for step in steps]
    captured_at = data.draw(st.integers(0, len(commands)))
    killed_at = data.draw(st.integers(captured_at, len(commands)))
    untouched = PartitionMachine(CONFIG, MemoryLog())
    with tempfile.TemporaryDirectory() as directory:
        partition = Partition(Path(directory) / "files")
        image = partition.checkpoint()
        for number, command in enumerate(commands, 1):
            untouched.apply(number, 1, encode_command(command))
            if number <= killed_at:
                partition.apply(command)
            if number == captured_at:
                image = partition.checkpoint()
        partition.commands += [encode_command(command) for command in commands[killed_at:]]
        again = partition.restarted(image, captured_at)
        check(again.machine)
        assert snapshot.encode(again.machine) == snapshot.encode(untouched)
        assert everything(again.machine) == everything(untouched)
        final = again.capture()
        again.inspect(partition.directory, final.state, final.files)
        again.log.close()


def tiered(partition: Partition, end: int) -> None:
    """The records below ``end`` are in the store, too."""
    partition.apply(BeginTier("folder"))
    partition.apply(AddTierObject("folder", TierObject(0, end, 1, "n", 9, b"s" * 32, 90, 7, 8)))


def test_files_that_are_in_the_store_go_with_a_checkpoint_and_the_log_begins_where_it_did(
    partition: Partition, tmp_path: Path
) -> None:
    before = partition.checkpoint()
    first, second = partition.stored.log.full_segments[:2]
    tiered(partition, second.next_offset)
    partition.stored.log.drop_local(second.next_offset - 1)
    assert partition.stored.log.local_start == second.base_offset
    shutil.copytree(partition.directory, tmp_path / "crashed")
    of_before = new_machine()
    of_before.restore(tmp_path / "crashed", before.state, before.files)  # a crash before the next checkpoint
    assert of_before.log.local_start == 0
    of_before.log.close()
    after = partition.checkpoint()
    assert not Path(first.segment).exists()
    again = partition.restarted_at(after)
    assert (again.machine.log_start, again.log.local_start) == (0, second.base_offset)
    again.inspect(partition.directory, after.state, after.files)
    again.log.close()


def test_segments_that_are_in_the_tiered_store_may_be_missing_here_and_no_others(partition: Partition) -> None:
    tiered(partition, partition.stored.log.full_segments[0].next_offset)
    image = partition.checkpoint()
    with pytest.raises(ImageDamaged):
        partition.stored.inspect(partition.directory, image.state, image.files[4:])
    partition.stored.inspect(partition.directory, image.state, image.files[2:])
    with pytest.raises(ImageDamaged, match="is not in the first segment"):
        new_machine().restore(partition.directory, image.state, image.files[4:])
