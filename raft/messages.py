"""What nodes say to each other: the values that codec.py turns into bytes and back.

Terms, indexes, rounds and call ids are u64. Only values live here: no bytes, no sockets.
"""

import msgspec

APPENDS_MAX = 256
"""Most messages in one AppendMany."""


class AppendEntries(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: the entries that follow (``prev_index``, ``prev_term``); none in a heartbeat.

    Each entry is (index, term, payload), with consecutive indexes from ``prev_index + 1``. The ack echoes
    ``round``, so the leader knows which request it answers (ReadIndex).
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


class AppendMany(msgspec.Struct, frozen=True, gc=False):
    """What a node sends to another one in a turn of its loop, for many groups together: (group, its message), no group
    twice. Each message has one entry, of its own term. ``number`` counts such messages of a node.
    """

    number: int
    appends: list[tuple[int, AppendEntries]]


class AckMany(msgspec.Struct, frozen=True, gc=False):
    """Answer to the AppendMany of this number: an AppendAck of success to each of its messages, up to its entry. The
    positions in ``silent`` are not answered by this: their groups answer by themselves, or do not.
    """

    number: int
    silent: list[int]


class Offer(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower, in place of AppendEntries: the entries that you lack are gone, and a checkpoint at ``index``,
    of ``index_term``, holds what they did. Fetch it; it is answered by an AppendAck as a heartbeat is.
    """

    term: int
    commit_index: int
    index: int
    index_term: int
    round: int


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: all entries up to ``commit_index`` are committed. It is not answered, and one that is lost is
    made good by any later message of the leader.
    """

    term: int
    commit_index: int


class Quiesce(msgspec.Struct, frozen=True, gc=False):
    """Leader to follower: you have all there is, up to ``commit_index``, and all of it is committed. There will be no
    heartbeats until something happens. Answered, by an AppendAck, only if that is not so.
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
    """What a node runs: its version, for people, and the feature levels (u16) of the clusters that it can be a member
    of, the oldest and the newest.
    """

    version: str = ""
    oldest: int = 1
    newest: int = 1

    def supports(self, level: int) -> bool:
        """Whether a node with this software can be a member of a cluster of feature level ``level``."""
        return self.oldest <= level <= self.newest


class Hello(msgspec.Struct, frozen=True, gc=False):
    """First frame in each direction. Of a version that codec.py does not know, only ``version`` is read; the rest stays
    empty.

    ``incarnation`` (u64) tells the sender's disk from any that it had before; ``session`` (u64), drawn at each start,
    this run of its process from others; ``began`` (u64) is where its log ended at that start, as a position (Ping).
    ``software`` is the sender's. A hello of version 6 does not have it: that software knows level 1 alone.
    """

    version: int
    cluster_id: str
    node_id: str
    incarnation: int
    session: int = 0
    began: int = 0
    software: Software = Software()


class OpenStream(msgspec.Struct, frozen=True, gc=False):
    """First frame of a connection that carries no Raft but another protocol, once the other node has sent its hello."""

    hello: Hello


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Instead of a hello: why this node will not talk to the one that dialled."""

    reason: str


class Ping(msgspec.Struct, frozen=True, gc=False):
    """A sign of life, and how full the sender's disk is (u8): 0 it has room, 1 little, 2 none but for what is small;
    and up to which ``position`` (u64) its log is on that disk. Positions grow as long as the disk keeps what it has.
    """

    disk: int = 0
    position: int = 0


class RolledBack(msgspec.Struct, frozen=True, gc=False):
    """In place of everything else, after the hellos: your log was on your disk up to this position, and now it begins
    below it. The disk has lost what you promised, and you must not go on with it.
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
