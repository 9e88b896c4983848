"""Commands about nodes and about where replicas shall be. Part of the controller's commands (commands.Command)."""

import msgspec

from .timed import Timed


class RegisterNode(Timed, frozen=True, tag="register_node"):
    """A node says at its start where it is reached, and with which disk it came.

    ``controllers``: who holds the controller group as far as this node was configured; counts only while nobody has
    told. Answers Arranged, or NotFound (removed, and not added again), ThrottlingQuotaExceeded.
    """

    node_id: str
    url: str
    raft: str
    zone: str | None
    incarnation: int
    controllers: list[str]


class AddNode(Timed, frozen=True, tag="add_node"):
    """An operator tells of a node before it comes; also one that was removed, or is being removed, may come again.

    Answers Arranged, or ThrottlingQuotaExceeded.
    """

    node_id: str
    url: str
    raft: str
    zone: str | None


class RemoveNode(Timed, frozen=True, tag="remove_node"):
    """Move a node's replicas elsewhere, then forget it. The same again changes nothing.

    Answers Arranged, or NotFound, NotEnoughReplicas (there is no room for what it holds; nothing is changed).
    """

    node_id: str


class Reassign(Timed, frozen=True, tag="reassign"):
    """Move a partition's replicas to these nodes, in place of any move under way. The same again changes nothing.

    Answers Arranged, or UnknownTopicOrPartition, NotFound (a node), InvalidRequest.
    """

    topic: str
    partition: int
    replicas: list[str]


class CheckMove(Timed, frozen=True, tag="check_move"):
    """Whether this move is still wanted. Answers Done, or NotFound."""

    group_id: int
    version: int


class MoveDone(Timed, frozen=True, tag="move_done"):
    """The group consists of the move's target and nobody else. Answers Arranged, or NotFound (not wanted any more)."""

    group_id: int
    version: int


MembershipCommand = RegisterNode | AddNode | RemoveNode | Reassign | CheckMove | MoveDone


class Arranged(msgspec.Struct, frozen=True, tag="arranged"):
    """Noted; the catalog has changed."""
