"""A leader over a simulated log: a test gives it entries and acks, and sees what it sends."""

from typing import Any

from stockade.raft.core.leader import LeaderState
from stockade.raft.core.membership import Membership
from stockade.raft.log.configuration import founding_configuration
from stockade.raft.log.group_log import GroupLog
from stockade.raft.messages import AppendAck, AppendEntries, Commit, Offer, TimeoutNow
from stockade.raft.settings import RaftSettings

from ..simulated_log import SimulatedLog

SETTINGS = RaftSettings(message_bytes_max=4, window_messages_max=2, window_bytes_max=100, entry_bytes_max=50)


DISK = 7


def members(journal: GroupLog, peers: str) -> Membership:
    """The voters, each peer connected."""
    membership = Membership("me", DISK, journal)
    membership.peers.update(dict.fromkeys(peers, DISK))
    return membership


class Leader:
    """A leader of term 1 whose journal ended at index 1 when it began, with followers f and g."""

    def __init__(self, peers: str = "fg", settings: RaftSettings = SETTINGS) -> None:
        self.bench = SimulatedLog(configuration=founding_configuration(dict.fromkeys(["me", *peers], DISK)))
        self.journal = self.bench.log
        self.journal.setCurrentTerm(1, "me")
        self.sent: list[tuple[str, Any]] = []
        self.is_full = False
        self.leading = LeaderState(self.journal, members(self.journal, peers), settings, self._send, 0.0)

    def _send(self, node_id: str, message: AppendEntries | Commit | Offer | TimeoutNow) -> bool:
        if not self.is_full:
            self.sent.append((node_id, message))
        return not self.is_full

    def append(self, count: int) -> None:
        for _ in range(count):
            self.journal.add(b"\x00%d" % (self.journal.last_index % 10), self.journal.last_index + 1, 1)

    def broadcast(self, *, beat: bool = False, to: str = "f") -> list[tuple[int, list[int]]]:
        """(prev_index, indexes) of what it sends to one follower."""
        self.sent.clear()
        self.leading.beat_is_wanted = beat
        self.leading.broadcast(1, 0.0)
        return [
            (message.prev_index, [entry[0] for entry in message.entries])
            for node, message in self.sent
            if node == to and isinstance(message, AppendEntries)
        ]

    def ack(self, next_index: int, *, success: bool = True, node: str = "f", round_: int | None = None) -> None:
        answered = self.leading.round if round_ is None else round_
        self.leading.answered(node, AppendAck(1, success, next_index, answered), 5.0)
