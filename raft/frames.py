"""The codec of everything that nodes say to each other over the Raft port: length-capped binary frames, no pickle.

A frame is: length of what follows (u32), kind (u8), group id (u32), body; all little-endian. Frames of calls, hellos and
pings carry group 0. A frame that is not exactly what encode() produces raises FrameError, never another exception.
"""

from collections.abc import Iterator

import msgspec

FRAME_BYTES_MAX = 32 << 20
"""Longest frame, length field included."""
ENTRIES_MAX = 65_536
"""Most entries in one AppendEntries."""


class FrameError(Exception):
    """Not a frame of this protocol, or a message that does not fit in one."""


class AppendEntries(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: the entries after (``prev_index``, ``prev_term``), consecutive; none for a heartbeat.

    Each entry is (index, term, payload). ``round`` is echoed by the ack and tells it apart from earlier ones (ReadIndex).
    """

    term: int
    commit_index: int
    prev_index: int
    prev_term: int
    round: int
    entries: list[tuple[int, int, bytes]]


class AppendAck(msgspec.Struct, frozen=True, gc=False):
    """Follower to leader: ``next_index`` is the first index the leader should send next."""

    term: int
    success: bool
    next_index: int
    round: int


class PreVote(msgspec.Struct, frozen=True, gc=False):
    """Would you vote for me in ``term``, given that my log ends at (``last_index``, ``last_term``)?"""

    term: int
    last_index: int
    last_term: int


class PreVoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to PreVote. If granted, ``term`` is the term asked about, otherwise the answering node's own."""

    term: int
    granted: bool


class RequestVote(msgspec.Struct, frozen=True, gc=False):
    """Vote for me in ``term``: my log ends at (``last_index``, ``last_term``)."""

    term: int
    last_index: int
    last_term: int


class VoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to RequestVote, in the answering node's term."""

    term: int
    granted: bool


class TimeoutNow(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: start an election at once; the leadership of ``term`` is handed over."""

    term: int


class Call(msgspec.Struct, frozen=True, gc=False):
    """A request outside Raft; the reply carries the same ``call_id``."""

    call_id: int
    payload: bytes


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Answer to a Call. If not ``ok``, the payload is the failure's text in UTF-8."""

    call_id: int
    payload: bytes
    ok: bool


RaftMessage = AppendEntries | AppendAck | PreVote | PreVoteReply | RequestVote | VoteReply | TimeoutNow
Message = RaftMessage | Call | Reply


def encode(group_id: int, message: Message) -> bytes:
    """The frame of a message. Raises FrameError if it exceeds FRAME_BYTES_MAX or ENTRIES_MAX, or if a number is no u64."""
    raise NotImplementedError


class FrameReader:
    """Cuts a stream of bytes into frames; copies each byte a bounded number of times."""

    def feed(self, data: bytes) -> Iterator[tuple[int, Message]]:
        """Yield (group id, message) for each frame completed by ``data``."""
        raise NotImplementedError
