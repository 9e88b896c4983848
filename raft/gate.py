"""Withholds messages until the term and the vote that they speak for are on disk."""

from collections.abc import Callable

from .journal import Journal
from .messages import AppendEntries, RaftMessage

Send = Callable[[str, RaftMessage], bool]


class Gate:
    """Every message but a pre-vote leaves through here.

    Only the latest message of a kind to a node is kept, which bounds what a slow disk can pile up; Raft repeats itself.
    Whoever changes the term clears the gate, so nothing that was withheld leaves in a later term.
    """

    def __init__(self, journal: Journal, send: Send) -> None:
        self._journal = journal
        self._send = send
        self._held: dict[tuple[str, type[RaftMessage]], RaftMessage] = {}

    def post(self, node_id: str, message: RaftMessage) -> bool:
        """Send now, or when the state is on disk. False if it could not be sent."""
        if self._journal.state_is_durable:
            return self._send(node_id, message)
        assert not isinstance(message, AppendEntries), "a leader's vote for itself was not on disk"
        self._held[node_id, type(message)] = message
        return True

    def release(self) -> None:
        """The disk has moved on: send what it makes true."""
        if self._held and self._journal.state_is_durable:
            held, self._held = self._held, {}
            for (node_id, _), message in held.items():
                self._send(node_id, message)

    def clear(self) -> None:
        """Forget what is withheld."""
        self._held.clear()
