"""Times and bounds of the Raft groups of a node."""

from dataclasses import dataclass

from .net.codec import FRAME_BYTES_MAX

OVERHEAD_BYTES = 1 << 20
"""Bytes of a frame that are left for a message's fields besides the payloads of its entries: ample."""


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The settings that all groups of a node share. The nodes of a cluster should agree on the times."""

    election_timeout_ms_min: int = 600
    """A leader that hears from no majority for this long steps down. A follower that has heard its leader votes for no
    other candidate for as long. Below four heartbeats, leaders on a busy machine change without need."""
    election_timeout_ms_max: int = 1200
    """A follower that hears no leader for a time drawn between these two asks for votes."""
    heartbeat_ms: int = 150
    """The longest silence of a leader towards a follower."""
    message_bytes_max: int = 1 << 20
    """Entries are batched up to this size a message; a larger entry travels alone."""
    window_bytes_max: int = 8 << 20
    """Bytes of entries in flight to one follower, not acked yet; the message that exceeds the bound is the last."""
    window_messages_max: int = 64
    """Messages with entries in flight to one follower, not acked yet."""
    entry_bytes_max: int = 17 << 20
    """The longest command."""
    pending_count_max: int = 4096
    """Proposals of one group that wait for an answer; beyond it new ones are Overloaded."""
    pending_bytes_max: int = 64 << 20
    """Bytes of those proposals."""
    unsynced_bytes_max: int = 256 << 20
    """Bytes of the node's log, of all groups, that wait for the disk; beyond it the node takes in no more entries."""

    checkpoint_bytes: int = 64 << 20
    """A group's checkpoint is due when it has applied so many bytes of commands since its last one, or 16 times the
    bytes of its state if that is more; each entry counts 4 KiB besides its commands."""
    wal_bytes_max: int = 512 << 20
    """When the log is longer than this, checkpoints are taken of the groups whose entries pin its oldest file. When the
    groups together have applied more than this since their last checkpoints, the group that has applied most is next;
    groups that have applied less than a sixteenth of ``checkpoint_bytes`` do not count."""
    wal_file_bytes: int = 64 << 20
    """Size of one file of the log."""
    disk_stall_ms: int = 30_000
    """A write of the log that takes longer than this, and a second more for each 64 KiB, stops the node."""

    def __post_init__(self) -> None:
        if not 0 < 3 * self.heartbeat_ms <= self.election_timeout_ms_min < self.election_timeout_ms_max:
            raise ValueError("3 * heartbeat_ms <= election_timeout_ms_min < election_timeout_ms_max must hold")
        if max(self.entry_bytes_max, self.message_bytes_max) > FRAME_BYTES_MAX - OVERHEAD_BYTES:
            raise ValueError(f"entry_bytes_max and message_bytes_max must fit in a frame of {FRAME_BYTES_MAX} bytes")
        if self.entry_bytes_max > self.pending_bytes_max:
            raise ValueError("entry_bytes_max must not exceed pending_bytes_max")
