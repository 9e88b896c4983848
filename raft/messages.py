"""The messages between nodes, as values; codec.py turns them into bytes and back.

Terms, indexes, rounds and call ids are u64. Only values live here: no bytes, no sockets.
"""

import msgspec

APPENDS_MAX = 256
"""Most messages in one AppendMany."""


class AppendEntries(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: the entries that follow (``prev_index``, ``prev_term``); none in a heartbeat.

    Each entry is (index, term, payload), with consecutive indexes from ``prev_index + 1``. The ack echoes
    ``round``, so the leader knows which message it answers (ReadIndex).
    """

    term: int
    commit_index: int
    prev_index: int
    prev_term: int
    round: int
    entries: list[tuple[int, int, bytes]]


class AppendAck(msgspec.Struct, frozen=True, gc=False):
    """Follower to leader: ``next_index`` is the index that the leader should send next. With ``success`` all entries
    before it are verified and on the follower's disk.
    """

    term: int
    success: bool
    next_index: int
    round: int


class AppendMany(msgspec.Struct, frozen=True, gc=False):
    """The AppendEntries that a node has for another in one turn of its loop, as (group id, message), no group twice.
    Each message has one entry, of the message's own term. ``number`` counts the AppendMany of the sending node.
    """

    number: int
    appends: list[tuple[int, AppendEntries]]


class AckMany(msgspec.Struct, frozen=True, gc=False):
    """Answer to the AppendMany of this number. It stands for a successful AppendAck of each message's entry, except of
    the messages at the positions in ``silent``: their groups answer by themselves, or not at all.
    """

    number: int
    silent: list[int]


class Offer(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower, in place of AppendEntries: the entries that you lack are gone, and a checkpoint at ``index``,
    of term ``index_term``, covers them. Fetch it. An AppendAck answers the offer at once, as it does a heartbeat.
    """

    term: int
    commit_index: int
    index: int
    index_term: int
    round: int


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: all entries up to ``commit_index`` are committed. Not answered; if one is lost, any later
    message of the leader tells the same.
    """

    term: int
    commit_index: int


class Quiesce(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: your log ends at ``commit_index``, as mine does, and all of it is committed. There will be no
    heartbeats until something happens. Answered by an AppendAck only if the follower finds otherwise.
    """

    term: int
    commit_index: int


class Wake(msgspec.Struct, frozen=True, gc=False):
    """Leader to quiescent followers: I lead ``term`` no longer."""

    term: int


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
    """Vote for me in ``term``: my log ends at (``last_index``, ``last_term``).

    ``is_transfer``: the leader itself asked for this election, so voters need not wait until it falls silent.
    """

    term: int
    last_index: int
    last_term: int
    is_transfer: bool = False


class VoteReply(msgspec.Struct, frozen=True, gc=False):
    """Answer to RequestVote, in the answering node's term."""

    term: int
    granted: bool


class TimeoutNow(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: start an election at once; the leadership of ``term`` is transferred."""

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


class Software(msgspec.Struct, frozen=True, gc=False):
    """The software of a node: its version, as text for people, and the oldest and newest feature level (u16) of a
    cluster that it can be a member of.
    """

    version: str = ""
    oldest: int = 1
    newest: int = 1

    def supports(self, level: int) -> bool:
        """Whether a node with this software can be a member of a cluster of feature level ``level``."""
        return self.oldest <= level <= self.newest


class Hello(msgspec.Struct, frozen=True, gc=False):
    """First frame in each direction. If codec.py does not know its version, only ``version`` is read; the other fields
    stay empty.

    ``incarnation`` (u64) tells the sender's disk from any that the node had before. ``session`` (u64), drawn at each
    start, tells this run of its process from others. ``began`` (u64) is the position (Ping) where its log ended at that
    start. A hello of version 6 has no ``software``: such software knows feature level 1 alone.
    """

    version: int
    cluster_id: str
    node_id: str
    incarnation: int
    session: int = 0
    began: int = 0
    software: Software = Software()


class OpenStream(msgspec.Struct, frozen=True, gc=False):
    """First frame, in place of a hello, of a connection that is to carry another protocol's bytes (streams.py). The
    other node answers with its hello, and the stream is open.
    """

    hello: Hello


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Answer in place of a hello: why this node does not admit the other end of the connection."""

    reason: str


class Ping(msgspec.Struct, frozen=True, gc=False):
    """A node's heartbeat. ``disk`` (u8) says how full the sender's disk is: 0 it has room, 1 little, 2 only for small
    writes. ``position`` (u64) is where its log on that disk ends; it grows as long as the disk keeps what it has.
    """

    disk: int = 0
    position: int = 0


class RolledBack(msgspec.Struct, frozen=True, gc=False):
    """Answer to a hello, before the connection is closed: your log was on your disk up to this position, and this run
    of your process began below it. The disk has lost what you promised, and you must not go on with it.
    """

    position: int


RaftMessage = (
    AppendEntries
    | AppendAck
    | Commit
    | Offer
    | Quiesce
    | Wake
    | PreVote
    | PreVoteReply
    | RequestVote
    | VoteReply
    | TimeoutNow
)
Message = RaftMessage | AppendMany | AckMany | Call | Reply | Hello | OpenStream | Refusal | Ping | RolledBack
