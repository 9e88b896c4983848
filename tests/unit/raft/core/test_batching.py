"""Commands that share an entry: which do, and that they come out as they went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.raft.core import pending
from stockade.raft.core.pending import (
    BUNDLE,
    BYTES_MAX,
    COMMANDS_MAX,
    REGULAR,
    PendingProposal,
    Proposals,
    commands_of,
    entries_of,
)
from stockade.raft.log.group_log import NO_OP
from stockade.raft.settings import RaftSettings

TABLE = Proposals(RaftSettings())


def queue(*commands: bytes) -> list[tuple[bytes, PendingProposal]]:
    """Each command with a proposal of its own."""
    return [(command, PendingProposal(TABLE, 0.0, lambda _: None, size=len(command))) for command in commands]


@given(st.lists(st.binary(max_size=40), max_size=3 * COMMANDS_MAX), st.booleans())
def test_every_command_comes_out_once_in_order_with_its_own_proposal(commands: list[bytes], shared: bool) -> None:
    queued = queue(*commands)
    entries = list(entries_of(queued, bundles=shared))
    found = [pair for payload, proposals in entries for pair in zip(commands_of(payload), proposals, strict=True)]
    assert found == queued
    assert all(payload[:1] in (REGULAR, BUNDLE) for payload, _ in entries)


def test_a_machine_that_does_not_allow_it_gets_an_entry_for_each_command() -> None:
    assert [payload for payload, _ in entries_of(queue(b"a", b"b"), bundles=False)] == [b"\x00a", b"\x00b"]


def test_a_single_command_is_encoded_as_before_bundles() -> None:
    assert [payload for payload, _ in entries_of(queue(b"a"), bundles=True)] == [b"\x00a"]


@pytest.mark.parametrize(("count", "sizes"), [(COMMANDS_MAX, [COMMANDS_MAX]), (COMMANDS_MAX + 1, [COMMANDS_MAX, 1])])
def test_no_more_commands_than_the_bound_share_an_entry(count: int, sizes: list[int]) -> None:
    entries = entries_of(queue(*[b"c"] * count), bundles=True)
    assert [len(commands_of(payload)) for payload, _ in entries] == sizes


@pytest.mark.parametrize(("size", "sizes"), [(BYTES_MAX - 10, [2]), (BYTES_MAX - 9, [1, 1])])
def test_no_more_bytes_than_the_bound_share_an_entry(size: int, sizes: list[int]) -> None:
    entries = entries_of(queue(bytes(size), bytes(10)), bundles=True)
    assert [len(commands_of(payload)) for payload, _ in entries] == sizes


def test_a_command_beyond_the_bound_gets_an_entry_of_its_own() -> None:
    large = bytes(BYTES_MAX + 1)
    entries = [payload for payload, _ in entries_of(queue(b"a", large, b"b"), bundles=True)]
    assert entries == [b"\x00a", b"\x00" + large, b"\x00b"]


def test_a_no_op_has_no_commands() -> None:
    assert commands_of(NO_OP) == []


@given(st.binary(max_size=60).filter(lambda rest: rest))
def test_any_payload_is_decoded_whole_or_refused(rest: bytes) -> None:
    try:
        commands = commands_of(BUNDLE + rest)
    except ValueError:
        return
    lengths = pending._lengths(len(commands))
    assert b"".join([rest[:1], lengths.pack(*map(len, commands)), *commands]) == rest


@pytest.mark.parametrize("payload", [b"", b"\x03", b"\x10", b"\x10\x02\x01\x00", b"\x10\x01\x05\x00\x00\x00abcd"])
def test_a_malformed_entry_of_commands_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="entry"):
        commands_of(payload)
