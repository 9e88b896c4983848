"""The configuration of a group (its voters and learners), and the changes between two of them.

Pure values. A member is a node *with the disk that it had when it joined the group*: a node whose disk was wiped comes
back with another incarnation and is another member to every count of copies or votes. So a wiped disk never passes for
one that keeps its promises, and Raft's argument holds as it stands: a wiped member is a member that never comes back.

Every change adds or removes one voter at most, so every majority of a configuration intersects every majority of the
next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

MEMBERS_MAX = 64
"""Voters and learners of one group."""
CONFIGURATION = b"\x02"
"""The first byte of a log entry that holds a configuration (pysyncobj's MEMBERSHIP)."""


class InvalidChange(Exception):
    """The change cannot be applied to this configuration; the text says why."""


class Configuration(msgspec.Struct, frozen=True):
    """The members of a group: node ids with the incarnations of their disks. Learners receive the log; neither their
    votes nor their acks count for a majority.
    """

    voters: dict[str, int] = msgspec.field(default_factory=dict)
    learners: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def members(self) -> dict[str, int]:
        return self.voters | self.learners

    def entry(self) -> bytes:
        """The payload of the log entry that brings this configuration into force."""
        return CONFIGURATION + msgspec.msgpack.encode(self)

    @classmethod
    def of_entry(cls, payload: bytes) -> "Configuration":
        """The configuration in the payload of an entry. Raises msgspec.DecodeError for anything else."""
        return msgspec.msgpack.decode(payload[len(CONFIGURATION) :], type=cls)


NO_MEMBERS = Configuration()
"""The configuration of a joining node, without members: with it a node neither votes nor campaigns."""


def founding_configuration(founders: Mapping[str, int]) -> Configuration:
    """The first configuration of a group: the same on each founder, and empty on a node that joins later."""
    return Configuration(dict(founders))


@dataclass(frozen=True, slots=True)
class AddLearner:
    """Add a node. The leader promotes it to voter once it has caught up."""

    node_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Remove a voter or learner. A leader may remove itself: it steps down when the change is committed."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Demote:
    """Make a voter whose disk was wiped a learner with its new disk. Leaders propose this by themselves."""

    node_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Promote:
    """Make a learner that has caught up a voter. Leaders propose this by themselves."""

    node_id: str


Change = AddLearner | RemoveMember | Demote | Promote


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """The change was surely not appended: ``reason`` says why, in words for people."""

    reason: str


def apply_change(configuration: Configuration, change: Change) -> Configuration:
    """The configuration after ``change``. Raises InvalidChange, with the reason, if the change does not apply to it."""
    voters, learners = dict(configuration.voters), dict(configuration.learners)
    node_id = change.node_id
    match change:
        case AddLearner(_, incarnation):
            if node_id in voters:
                raise InvalidChange(f"{node_id} is a voter already")
            if learners.get(node_id) == incarnation:
                raise InvalidChange(f"{node_id} is a learner already")
            if len(voters) + len({*learners, node_id}) > MEMBERS_MAX:
                raise InvalidChange(f"a group has {MEMBERS_MAX} members at most")
            learners[node_id] = incarnation
        case RemoveMember():
            if node_id not in configuration.members:
                raise InvalidChange(f"{node_id} is no member")
            if [*voters] == [node_id]:
                raise InvalidChange(f"{node_id} is the only voter")
            voters.pop(node_id, None)
            learners.pop(node_id, None)
        case Demote(_, incarnation):
            if voters.pop(node_id, incarnation) == incarnation:
                raise InvalidChange(f"{node_id} is no voter with another disk")
            if not voters:
                raise InvalidChange(f"{node_id} is the only voter")
            learners[node_id] = incarnation
        case Promote():
            if node_id not in learners:
                raise InvalidChange(f"{node_id} is no learner")
            voters[node_id] = learners.pop(node_id)
    return Configuration(voters, learners)
