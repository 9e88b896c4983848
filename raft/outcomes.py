"""The outcomes of a proposal, and why a linearizable read may be refused. Plain values, no behaviour."""

import msgspec


class Committed(msgspec.Struct, frozen=True):
    """Committed at ``index`` and applied on this node; ``result`` is what the machine's apply returned.

    The garbage collector has to track it, since a raised refusal refers back to it through its traceback.
    """

    index: int
    term: int
    result: object


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The command was surely not appended: this node does not lead. ``leader`` is the node id it believes in."""

    leader: str | None
    term: int


class Overloaded(msgspec.Struct, frozen=True, gc=False):
    """The command was surely not appended: too many proposals, or bytes of them, wait for an answer already."""


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """No decision: the command may or may not become committed. ``index`` is its place in the log, if it got one."""

    index: int | None


Outcome = Committed | Rejected | Overloaded | Unknown


class NotLeader(Exception):
    """A linearizable read was asked of a node that does not lead, or no longer. ``leader`` is a node id or None."""

    def __init__(self, leader: str | None, term: int) -> None:
        super().__init__(f"not the leader in term {term}; the leader is {leader or 'unknown'}")
        self.leader = leader
        self.term = term
