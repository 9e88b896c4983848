"""One Raft group on this node, as the floors above use it: propose, read barrier, step down, and who leads."""

from collections.abc import Callable

from .outcomes import Committed, NotLeader, Outcome, Overloaded, Rejected, Unknown

__all__ = ["Committed", "Group", "NotLeader", "Outcome", "Overloaded", "Rejected", "Unknown"]


class Group:
    """A replica of one group. Everything happens on the node's event loop; nothing here is thread-safe."""

    group_id: int
    voters: tuple[str, ...]
    on_role_change: Callable[["Group"], None] | None
    """Called on the loop after the leader, the term or the role of this node changed. An exception in it is logged."""
    on_applied: Callable[["Group"], None] | None
    """Called on the loop after a run of applies: ``applied_index`` has grown. An exception in it is logged."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows. Only ``read_barrier`` and a commit prove it."""
        raise NotImplementedError

    @property
    def leader(self) -> str | None:
        """Node id of the leader of ``term``, None while unknown."""
        raise NotImplementedError

    @property
    def term(self) -> int:
        """The current term of this node."""
        raise NotImplementedError

    @property
    def commit_index(self) -> int:
        """The highest index that this node knows to be committed."""
        raise NotImplementedError

    @property
    def applied_index(self) -> int:
        """The highest index that the machine has applied. Index 1 is empty and counts as applied from the start."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """True from the moment this node has heard of a leader and applied what was committed at that moment."""
        raise NotImplementedError

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        """Append ``command`` to the replicated log and wait until it is applied here.

        Proposals that arrive in one turn of the loop share one message a follower and one disk sync. Returns:

        - Committed: durable on a majority, applied here; its result is the machine's answer (a refusal, too).
        - Rejected: this node does not lead; surely not appended.
        - Overloaded: beyond ``pending_count_max`` or ``pending_bytes_max``; surely not appended.
        - Unknown: the deadline passed, leadership was lost or the group closed while the command was under way.

        Raises ValueError for a command longer than ``entry_bytes_max``. Cancelling the wait does not withdraw the command.
        """
        raise NotImplementedError

    async def read_barrier(self, timeout_s: float) -> None:
        """Return when a read of the machine here is linearizable.

        That is: a round of messages begun after the call proved to a majority that this node leads its term, and everything
        committed at the call, including an entry of this term, is applied here. Barriers called in one turn of the loop
        share a round. Raises NotLeader (at once, or when leadership is lost meanwhile) or TimeoutError.
        """
        raise NotImplementedError

    def step_down(self) -> None:
        """Stop leading, and ask the follower that is furthest to take over. Does nothing on a node that does not lead.

        Proposals under way end as Unknown, barriers as NotLeader.
        """
        raise NotImplementedError
