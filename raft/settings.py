"""Times and bounds of the Raft groups of a node."""

from dataclasses import dataclass

from .net.codec import FRAME_BYTES_MAX

OVERHEAD_BYTES = 1 << 20
"""Ample for what a message holds besides the bytes of its entries."""


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Every group of a node has the same; nodes of a cluster should agree on the times."""

    election_timeout_ms_min: int = 600
    """A leader that hears from no majority for this long steps down. For as long a follower that has heard its leader
    votes for no other candidate. Below four heartbeats, a busy machine flaps."""
    election_timeout_ms_max: int = 1200
    """A follower that hears nothing for a time drawn between the two asks for an election."""
    heartbeat_ms: int = 150
    """The longest silence of a leader towards a follower."""
    message_bytes_max: int = 1 << 20
    """Entries are batched up to this size a message; a larger entry travels alone."""
    window_bytes_max: int = 8 << 20
    """Unacknowledged bytes of entries in flight to one follower; the message that passes it is the last."""
    window_messages_max: int = 64
    """Unacknowledged messages with entries in flight to one follower."""
    entry_bytes_max: int = 17 << 20
    """The longest command."""
    pending_count_max: int = 4096
    """Proposals of one group that wait for an answer."""
    pending_bytes_max: int = 64 << 20
    """Their bytes."""
    unsynced_bytes_max: int = 256 << 20
    """Bytes of all groups of the node that wait for the disk: beyond it, nothing more is taken in."""

    checkpoint_bytes: int = 64 << 20
    """A checkpoint of a group is taken when it has applied so many bytes of commands since the last one; each entry
    counts 4 KiB more. Of a group with a large state, when it has applied 16 times as much."""
    wal_bytes_max: int = 512 << 20
    """Beyond this size of the log, checkpoints are taken of the groups that keep its oldest files; and when groups
    together have applied so much since their last checkpoints, of those that have applied most. Groups below a
    sixteenth of ``checkpoint_bytes`` do not count."""
    wal_file_bytes: int = 64 << 20
    """Size of one file of the log."""
    disk_stall_ms: int = 30_000
    """A write of the log that takes so long, and a second more for each 64 KiB, stops the node."""

    def __post_init__(self) -> None:
        if not 0 < 3 * self.heartbeat_ms <= self.election_timeout_ms_min < self.election_timeout_ms_max:
            raise ValueError("3 * heartbeat_ms <= election_timeout_ms_min < election_timeout_ms_max must hold")
        if max(self.entry_bytes_max, self.message_bytes_max) > FRAME_BYTES_MAX - OVERHEAD_BYTES:
            raise ValueError(f"entry_bytes_max and message_bytes_max must fit in a frame of {FRAME_BYTES_MAX} bytes")
        if self.entry_bytes_max > self.pending_bytes_max:
            raise ValueError("entry_bytes_max must not exceed pending_bytes_max")
