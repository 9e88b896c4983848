"""Recovery after a stop at any byte finds a prefix of what was written, with every record that was reported durable."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.raft.wal.errors import WalCorrupt
from stockade.raft.wal.files import WalReader
from stockade.raft.wal.records import ENTRY, FILE_HEADER_BYTES, Record
from stockade.raft.wal.recovery import recover

from .model import (
    APPEND,
    FIRST,
    FLUSH,
    SECOND,
    STEPS,
    Step,
    a_log_of,
    a_log_of_two_files,
    a_spare,
    contents,
    markers_repeat,
    remembered,
    restore,
    scratch,
    write,
)


@pytest.fixture(autouse=True, scope="module")
def quick_disk() -> Iterator[None]:
    """The crashes here are made of file contents, so nothing depends on what the disk really holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        patch.setattr(os, "posix_fadvise", lambda *_: None)
        yield


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30), st.sampled_from([64, 300, 1000, 1 << 16]))
def test_every_record_is_recovered_for_any_file_size(steps: list[Step], file_bytes: int) -> None:
    with scratch() as directory:
        written = write(directory, steps, file_bytes)
        assert remembered(directory, file_bytes) == written.states[-1]


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=12), st.lists(STEPS, max_size=12), st.sampled_from([64, 1000]))
def test_records_written_after_a_restart_follow_the_recovered_ones(
    first: list[Step], second: list[Step], file_bytes: int
) -> None:
    with scratch() as directory:
        state = write(directory, first, file_bytes).states[-1]
        state = write(directory, second, file_bytes, state).states[-1]
        assert remembered(directory, file_bytes) == state


@settings(max_examples=6, deadline=None)
@given(
    st.lists(STEPS, min_size=1, max_size=6),
    st.sampled_from([200, 700]),
    st.sampled_from([b"", bytes(200), b"\xa5" * 200]),
)
def test_a_file_cut_at_any_length_gives_a_prefix(steps: list[Step], file_bytes: int, trailing: bytes) -> None:
    """As kill -9 leaves it: cut anywhere, followed by preallocated zeros, and perhaps by anything before them."""
    with scratch() as directory:
        written = write(directory, [*steps, Step("vote", 0, 9, b"", 1)], file_bytes)
        files = contents(directory)
        name, data = max(files.items())
        reached = 0
        for length in range(FILE_HEADER_BYTES, len(data.rstrip(b"\0")) + 4):
            restore(directory, files | {name: (data[:length] + trailing).ljust(len(data), b"\0")})
            reached = written.states.index(remembered(directory, file_bytes), reached)
        assert reached == len(written.states) - 1


@settings(max_examples=20, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=8), st.integers(0, FILE_HEADER_BYTES - 1), st.sampled_from([0, 300]))
def test_a_file_whose_creation_was_interrupted_holds_nothing(steps: list[Step], length: int, zeros: int) -> None:
    with scratch() as directory:
        written = write(directory, steps, 1 << 16)
        files = contents(directory)
        header = next(iter(files.values()), bytes(FILE_HEADER_BYTES))[:length]
        restore(directory, files | {f"{len(files) + 1:010d}.wal": header + bytes(zeros)})
        assert remembered(directory, 1 << 16) == written.states[-1]
        assert contents(directory).keys() == files.keys()


SOME = st.lists(STEPS, min_size=1, max_size=8)
TOGETHER = st.lists(STEPS.filter(lambda step: step.kind != "flush"), min_size=2, max_size=8)


@settings(max_examples=60, deadline=None)
@given(SOME, TOGETHER, st.sampled_from([8, 64, 512]), st.booleans(), st.data())
def test_a_power_cut_within_a_flush_keeps_all_that_was_durable_before(
    steps: list[Step], last_flush: list[Step], sector_bytes: int, has_spare: bool, data: st.DataObject
) -> None:
    """The disk may have written any of the sectors of the last flush, in any order; so, too, into used room."""
    with scratch() as directory, markers_repeat():
        first = Step("vote", 0, 1, b"", 1)  # creates the file
        if has_spare:
            a_spare(directory, [first, *steps, *last_flush, *steps, *last_flush], 1 << 13)
        written = write(directory, [first, *steps, FLUSH, *last_flush], 1 << 13)
        after = contents(directory)
        [(name, old)] = written.before_last_flush.items()
        sectors = []
        for start in range(0, len(old), sector_bytes):
            versions = [old[start : start + sector_bytes], after[name][start : start + sector_bytes]]
            sectors.append(versions[data.draw(st.integers(0, 1)) if versions[0] != versions[1] else 0])
        restore(directory, {name: b"".join(sectors)})
        assert remembered(directory, 1 << 13) in written.states[written.flushes[-2] :]


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=16), st.sampled_from([300, 1 << 13]), st.data())
def test_a_flipped_bit_is_refused_unless_the_last_flush_may_have_been_cut_there(
    steps: list[Step], file_bytes: int, data: st.DataObject
) -> None:
    with scratch() as directory:
        written = write(directory, steps, file_bytes)
        files = contents(directory)
        if not files:
            return
        name = data.draw(st.sampled_from(sorted(files)))
        bit = data.draw(st.integers(0, 8 * len(files[name].rstrip(b"\0")) - 1))
        damaged = bytearray(files[name])
        damaged[bit // 8] ^= 1 << bit % 8
        restore(directory, files | {name: bytes(damaged)})
        try:
            state = remembered(directory, file_bytes)
        except WalCorrupt:
            return
        assert state in written.states[written.flushes[-2] :]


def patched(data: bytes, position: int, replacement: bytes) -> bytes:
    return data[:position] + replacement + data[position + len(replacement) :]


RECORD_BYTES = 140


@pytest.mark.parametrize(
    "name, position, why",
    [
        (FIRST, 0, "header of the file is damaged"),
        (FIRST, FILE_HEADER_BYTES + 50, "a record is damaged"),
        (FIRST, FILE_HEADER_BYTES + RECORD_BYTES + 50, "a record is damaged"),
        (SECOND, 20, "header of the file is damaged"),
        (SECOND, FILE_HEADER_BYTES + 50, "on disk before later ones"),
        (SECOND, FILE_HEADER_BYTES, "on disk before later ones"),
    ],
)
def test_damage_to_durable_records_is_refused_with_file_position_and_advice(
    tmp_path: Path, name: str, position: int, why: str
) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    restore(tmp_path / "wal", files | {name: patched(files[name], position, b"\0\xff\0\xff")})
    with pytest.raises(WalCorrupt, match=why) as caught:
        remembered(tmp_path / "wal", 400)
    assert caught.value.path == tmp_path / "wal" / name
    assert caught.value.position <= position < caught.value.position + RECORD_BYTES
    assert "`stockade rebuild --data DIR`" in str(caught.value)


@pytest.mark.parametrize(
    "name, position, records",
    [
        (FIRST, 0, 0),
        (FIRST, FILE_HEADER_BYTES + 50, 0),
        (FIRST, FILE_HEADER_BYTES + RECORD_BYTES + 50, 1),
        (SECOND, 20, 2),
        (SECOND, FILE_HEADER_BYTES + 50, 2),
    ],
)
def test_a_reader_of_a_stopped_nodes_disk_gets_what_is_before_a_damage(
    tmp_path: Path, name: str, position: int, records: int
) -> None:
    """One flipped bit hid all partitions of the last disk that was left."""
    files = a_log_of_two_files(tmp_path / "wal")
    damaged = files | {name: patched(files[name], position, b"\0\xff\0\xff")}
    restore(tmp_path / "wal", damaged)
    found = recover(tmp_path / "wal", changes=False)
    assert isinstance(found.fault, WalCorrupt)
    assert found.fault.path == tmp_path / "wal" / name
    assert [entry.index for group in found.groups.values() for entry in group.entries] == [11, 12, 13, 14][:records]
    assert contents(tmp_path / "wal") == damaged


@pytest.mark.parametrize("opens", [False, True])
def test_a_reader_of_a_stopped_nodes_disk_gets_what_is_before_a_file_that_cannot_be_read(
    tmp_path: Path, *, opens: bool
) -> None:
    """A read that failed (EIO) did not say of which file."""
    a_log_of_two_files(tmp_path / "wal")
    whole = recover(tmp_path / "wal", changes=False)
    assert (whole.fault, len(whole.groups[1].entries)) == (None, 4)
    second = tmp_path / "wal" / SECOND
    second.unlink()
    if opens:
        second.symlink_to("/proc/self/mem")  # whose first bytes cannot be read
    else:
        second.mkdir()
    found = recover(tmp_path / "wal", changes=False)
    assert (isinstance(found.fault, OSError), len(found.groups[1].entries)) == (True, 2)
    assert str(second) in str(found.fault)
    with pytest.raises(OSError, match=SECOND):
        recover(tmp_path / "wal")
    with pytest.raises(OSError, match=SECOND):
        WalReader(tmp_path / "wal").read(whole.groups[1].entries[-1].location)


def test_a_reader_of_a_stopped_nodes_disk_reads_one_that_an_error_made_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an ext4 refuses fsync, and the reader had no record of the log: `backup rescue` showed empty partitions."""
    a_log_of_two_files(tmp_path / "wal")

    def refused(descriptor: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", refused)
    found = recover(tmp_path / "wal", changes=False)
    assert (found.fault, len(found.groups[1].entries)) == (None, 4)


def test_a_refusal_changes_no_file_and_leaves_no_lock(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    damaged = files | {SECOND: patched(files[SECOND], FILE_HEADER_BYTES + 9, b"damage")}
    restore(tmp_path / "wal", damaged)
    for _ in range(2):
        with pytest.raises(WalCorrupt):
            remembered(tmp_path / "wal", 400)
    assert contents(tmp_path / "wal") == damaged
    restore(tmp_path / "wal", files)
    assert len(remembered(tmp_path / "wal", 400)[1][2]) == 4


def test_damage_to_the_very_last_flush_counts_as_cut(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    restore(tmp_path / "wal", files | {SECOND: patched(files[SECOND], FILE_HEADER_BYTES + RECORD_BYTES + 9, b"cut")})
    assert len(remembered(tmp_path / "wal", 400)[1][2]) == 3


def test_records_of_the_flush_that_was_cut_do_not_vouch_for_each_other(tmp_path: Path) -> None:
    written = write(tmp_path / "wal", [APPEND, FLUSH, APPEND, APPEND, APPEND], 1 << 13)
    data = contents(tmp_path / "wal")[FIRST]
    restore(tmp_path / "wal", {FIRST: patched(data, FILE_HEADER_BYTES + RECORD_BYTES, bytes(RECORD_BYTES))})
    assert remembered(tmp_path / "wal", 1 << 13) == written.states[1]


def test_a_file_that_was_cut_ends_with_its_records(tmp_path: Path) -> None:
    write(tmp_path / "wal", [APPEND, FLUSH, APPEND, APPEND], 1 << 13)
    data = contents(tmp_path / "wal")[FIRST]
    restore(tmp_path / "wal", {FIRST: patched(data, FILE_HEADER_BYTES + RECORD_BYTES, b"torn")})
    remembered(tmp_path / "wal", 1 << 13)
    assert contents(tmp_path / "wal") == {FIRST: data[: FILE_HEADER_BYTES + RECORD_BYTES]}


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    restore(tmp_path / "wal", {SECOND: files[SECOND]})
    with pytest.raises(WalCorrupt, match=f"{FIRST}: position 0: the file is missing"):
        remembered(tmp_path / "wal", 400)


def test_a_last_file_that_was_cut_is_refused_and_not_taken_for_one_whose_end_was_never_written(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    restore(tmp_path / "wal", files | {SECOND: files[SECOND][: FILE_HEADER_BYTES + RECORD_BYTES]})
    with pytest.raises(WalCorrupt, match="the file is cut: it had 400 bytes"):
        remembered(tmp_path / "wal", 400)


def test_a_last_file_whose_end_is_known_must_end_there(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    remembered(tmp_path / "wal", 400)
    data = contents(tmp_path / "wal")[SECOND]
    (tmp_path / "wal" / SECOND).write_bytes(patched(data, len(data) - 5, b"torn"))
    with pytest.raises(WalCorrupt, match=f"records ended at byte {len(data)}"):
        remembered(tmp_path / "wal", 400)
    assert len(data) < len(files[SECOND])


def test_a_missing_last_file_is_refused_though_those_before_it_are_whole(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    restore(tmp_path / "wal", {FIRST: files[FIRST]})
    with pytest.raises(WalCorrupt, match=f"{SECOND}: position 0: the file is missing"):
        remembered(tmp_path / "wal", 400)


def test_a_file_under_another_files_name_is_refused(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    restore(tmp_path / "wal", {FIRST: files[SECOND], SECOND: files[FIRST]})
    with pytest.raises(WalCorrupt, match="header of the file is damaged"):
        remembered(tmp_path / "wal", 400)


def test_a_file_with_records_that_the_identity_does_not_know_is_refused(tmp_path: Path) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    restore(tmp_path / "wal", files | {"0000000003.wal": files[SECOND]})
    with pytest.raises(WalCorrupt, match="the log should end with file 2: its identity is older"):
        remembered(tmp_path / "wal", 400)


def test_records_that_an_older_identity_does_not_know_are_refused_though_a_new_file_follows_them(
    tmp_path: Path,
) -> None:
    """As after a restore of the identity alone, while the log had just begun a further file."""
    files = a_log_of_two_files(tmp_path / "wal")
    begun = bytes(len(files[SECOND]))
    restore(tmp_path / "wal", files | {"0000000003.wal": files[SECOND], "0000000004.wal": begun})
    with pytest.raises(WalCorrupt, match="the log should end with file 2: its identity is older"):
        recover(tmp_path / "wal")


def test_files_that_are_not_the_logs_are_left_alone(tmp_path: Path) -> None:
    a_log_of_two_files(tmp_path / "wal")
    (tmp_path / "wal" / "notes.wal").write_text("mine")
    (tmp_path / "wal" / "readme.txt").write_text("yours")
    assert len(remembered(tmp_path / "wal", 400)[1][2]) == 4
    assert (tmp_path / "wal" / "notes.wal").read_text() == "mine"


def test_entries_that_cannot_follow_each_other_are_refused(tmp_path: Path) -> None:
    first, third = Record(ENTRY, 1, 1, 1, 44, 0), Record(ENTRY, 1, 3, 1, 44, 0)
    a_log_of(tmp_path / "wal", first, third)
    with pytest.raises(WalCorrupt, match="entry 3 of group 1 follows entry 1"):
        remembered(tmp_path / "wal", 400)


def test_records_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    a_log_of(tmp_path / "wal", Record(9, 1, 1, 1, 44, 0))
    with pytest.raises(WalCorrupt, match="unknown kind 9: a newer version"):
        remembered(tmp_path / "wal", 400)


def test_a_payload_that_looks_like_a_record_is_no_proof_of_damage(tmp_path: Path) -> None:
    """Otherwise a producer could keep a node from starting after a power cut."""
    steps = [APPEND, FLUSH] * 2
    written = write(tmp_path / "wal", steps, 1 << 13)
    of_another_log = contents(tmp_path / "wal")[FIRST][FILE_HEADER_BYTES:][: 2 * RECORD_BYTES]
    shutil.rmtree(tmp_path / "wal")
    written = write(tmp_path / "wal", [*steps, Step("append", 1, 1, of_another_log, 0)], 1 << 13)
    data = contents(tmp_path / "wal")[FIRST]
    restore(tmp_path / "wal", {FIRST: patched(data, FILE_HEADER_BYTES + 2 * RECORD_BYTES + 10, b"torn")})
    assert remembered(tmp_path / "wal", 1 << 13) == written.states[2]
