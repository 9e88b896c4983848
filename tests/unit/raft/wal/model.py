"""A model of the log: steps to perform, the state that they must leave, and the bytes of its files to tamper with."""

import asyncio
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st

from stockade.raft.wal.file_set import WalIdentity
from stockade.raft.wal.records import FileHeader, Record, encode_file_header, encode_record
from stockade.raft.wal.recovery import recover
from stockade.raft.wal.wal import Wal

FIRST, SECOND = "0000000001.wal", "0000000002.wal"
MARK = 77

State = dict[int, tuple[int, str | None, list[tuple[int, int, bytes]]]]
"""Group id to (term, voted for, entries as (index, term, payload))."""


class Step(NamedTuple):
    """One thing to do; what index an append or a truncate gets depends on what the group holds then."""

    kind: str
    group_id: int
    term: int
    payload: bytes
    back: int


STEPS = st.builds(
    Step,
    st.sampled_from(["append", "append", "append", "append", "truncate", "vote", "reset", "erase", "flush"]),
    st.sampled_from([0, 1, 2, 5 << 32 | 1]),
    st.integers(0, 5),
    st.binary(max_size=60),
    st.integers(0, 3),
)


def model_after(state: State, step: Step) -> State:
    """What the log holds after a step, by the interface's words alone."""
    state = dict(state)
    if step.kind == "erase":
        state.pop(step.group_id, None)
    if step.kind in ("erase", "flush"):
        return state
    term, voted_for, entries = state.get(step.group_id, (0, None, []))
    if step.kind == "append":
        entries = [*entries, (next_index(entries), step.term, step.payload)]
        if step.term > term:
            term, voted_for = step.term, None
    elif step.kind == "truncate":
        entries = entries[: max(0, len(entries) - step.back)]
    elif step.kind == "reset":
        entries = []
    else:
        term, voted_for = step.term, f"n{step.back}" if step.back else None
    state[step.group_id] = term, voted_for, entries
    return state


def next_index(entries: list[tuple[int, int, bytes]]) -> int:
    return entries[-1][0] + 1 if entries else 11


def perform(wal: Wal, state: State, step: Step) -> None:
    entries = state.get(step.group_id, (0, None, []))[2]
    if step.kind == "append":
        wal.append(step.group_id, next_index(entries), step.term, step.payload)
    elif step.kind == "truncate":
        wal.truncate(step.group_id, next_index(entries) - step.back)
    elif step.kind == "vote":
        wal.save_vote(step.group_id, step.term, f"n{step.back}" if step.back else None)
    elif step.kind == "reset":
        wal.reset(step.group_id, 10, step.term)
    else:
        wal.erase(step.group_id)


def fail(error: BaseException) -> None:
    raise AssertionError("the log failed") from error


def opened(directory: Path, file_bytes: int) -> Wal:
    return Wal(directory, asyncio.get_running_loop(), fail, file_bytes, cache_bytes_max=0)


async def flushed(wal: Wal, lsn: int) -> None:
    done = asyncio.Event()
    wal.on_durable = done.set
    while wal.durable_lsn < lsn:
        done.clear()
        await done.wait()


def remembered(directory: Path, file_bytes: int) -> State:
    """What a log opened here holds, with every payload read. Recovery done again must not find anything else."""

    async def read() -> State:
        wal = opened(directory, file_bytes)
        assert recover(directory).groups == wal.recovered
        state: State = {
            group_id: (
                group.term,
                group.voted_for,
                [(entry.index, entry.term, wal.read(entry.location)) for entry in group.entries],
            )
            for group_id, group in wal.recovered.items()
        }
        await wal.close()
        return state

    return asyncio.run(read())


class Written(NamedTuple):
    """States after 0, 1, 2… records; how many records each flush completed; the files before the last flush."""

    states: list[State]
    flushes: list[int]
    before_last_flush: dict[str, bytes]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.wal"))}


def write(directory: Path, steps: list[Step], file_bytes: int, state: State | None = None) -> Written:
    """Perform the steps, one flush for each run of them between two "flush" steps."""

    async def scenario() -> Written:
        wal = opened(directory, file_bytes)
        states = [state or {}]
        flushes = [0]
        before: dict[str, bytes] = contents(directory)
        for step in [*steps, Step("flush", 0, 0, b"", 0)]:
            if step.kind != "flush":
                perform(wal, states[-1], step)
                states.append(model_after(states[-1], step))
            elif len(states) - 1 > flushes[-1]:
                before = contents(directory)
                await flushed(wal, len(states) - 1)
                flushes.append(len(states) - 1)
        await wal.close()
        return Written(states, flushes, before)

    return asyncio.run(scenario())


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "wal"


@contextmanager
def markers_repeat() -> Iterator[None]:
    """Chance gives every file the same marker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbelow", lambda _: MARK - 1)
        yield


def a_spare(directory: Path, steps: list[Step], file_bytes: int) -> None:
    """The log in this directory will have the room of a file that held these steps, at the very same places."""
    with scratch() as another:
        state = write(another, [Step("vote", 3, 1, b"", 1)], file_bytes).states[-1]
        write(another, steps, file_bytes, state)
        directory.mkdir()
        recover(directory)
        (directory / "0000000000.spare").write_bytes(contents(another)[SECOND])


def restore(directory: Path, files: dict[str, bytes]) -> None:
    """Make these the log's files. In place where they exist already: removing is slow on a real disk.

    The identity forgets where the records of the last file end.
    """
    identity = WalIdentity.read(directory)
    if identity is not None and identity.last_end:
        identity.grow(identity.last, 0)
    for path in directory.glob("*.wal"):
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        (directory / name).write_bytes(data)


FLUSH = Step("flush", 0, 0, b"", 0)
APPEND = Step("append", 1, 1, b"x" * 100, 0)


def a_log_of_two_files(directory: Path) -> dict[str, bytes]:
    steps = [APPEND, FLUSH] * 4
    write(directory, steps, 400)
    files = contents(directory)
    assert list(files) == ["0000000001.wal", "0000000002.wal"]
    return files


def encoded(header: FileHeader, record: Record, payload: bytes = b"") -> bytes:
    """The bytes of a record of this file."""
    place = (record.kind, record.group_id, record.index, record.term, record.synced)
    return b"".join(encode_record(header.marker, header.seed, *place, payload)) + payload


def a_log_of(directory: Path, *records: Record) -> None:
    """A file with these records, which no Wal would write."""
    header = FileHeader(MARK, 1, 0)
    data = encode_file_header(header)
    data += b"".join(encoded(header, record) for record in records)
    directory.mkdir()
    recover(directory).identity.grow(1, 0)
    restore(directory, {FIRST: data})
