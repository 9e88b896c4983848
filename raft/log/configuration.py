"""Who belongs to a group: voters and learners, each with the incarnation of its disk, and the steps between two such.

Pure values. A member is a node *with the disk that it had when it was taken in*: a node whose disk was wiped comes back
with another incarnation and is, to every count of copies or votes, somebody else. So what a disk forgot can never be
taken for what it promised, and Raft's argument holds as it stands: a wiped member is one that never comes back.

Every step changes the set of voters by one at most, so any majority of the one configuration meets any of the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

MEMBERS_MAX = 64
"""Voters and learners of one group."""
CONFIGURATION = b"\x02"
"""The first byte of a log entry that holds a configuration (pysyncobj's MEMBERSHIP)."""


class Refused(Exception):
    """A change that makes no sense for this configuration. The text says why."""


class Configuration(msgspec.Struct, frozen=True):
    """Node ids with the incarnations of their disks. Learners get the log, and count for nothing until promoted."""

    voters: dict[str, int] = msgspec.field(default_factory=dict)
    learners: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def members(self) -> dict[str, int]:
        """Voters and learners."""
        return self.voters | self.learners

    def entry(self) -> bytes:
        """The payload of the log entry that puts this configuration in force."""
        return CONFIGURATION + msgspec.msgpack.encode(self)

    @classmethod
    def of_entry(cls, payload: bytes) -> "Configuration":
        """The configuration in the payload of an entry. Raises msgspec.DecodeError for anything else."""
        return msgspec.msgpack.decode(payload[len(CONFIGURATION) :], type=cls)


FOUNDING = Configuration()
"""What a joining node knows: nothing. With it a node neither votes nor campaigns."""


def founded_by(founders: Mapping[str, int]) -> Configuration:
    """The first configuration of a group. All founders must be told the same one; empty for whoever joins later."""
    return Configuration(dict(founders))


@dataclass(frozen=True, slots=True)
class AddLearner:
    """Take in a node. Its leader promotes it to voter by itself once it has caught up."""

    node_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Let a voter or learner go. A leader may name itself: it steps down when that is committed."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Demote:
    """A voter's disk was wiped: it becomes a learner with its new disk. Leaders do this by themselves."""

    node_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Promote:
    """A learner has caught up: it becomes a voter. Leaders do this by themselves."""

    node_id: str


Change = AddLearner | RemoveMember | Demote | Promote


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """The change was surely not begun: ``reason`` says why, in words for people."""

    reason: str


def changed(configuration: Configuration, change: Change) -> Configuration:
    """The configuration after a change. Raises Refused with the reason if it does not apply."""
    voters, learners = dict(configuration.voters), dict(configuration.learners)
    node_id = change.node_id
    match change:
        case AddLearner(_, incarnation):
            if node_id in voters:
                raise Refused(f"{node_id} is a voter already")
            if learners.get(node_id) == incarnation:
                raise Refused(f"{node_id} is a learner already")
            if len(voters) + len({*learners, node_id}) > MEMBERS_MAX:
                raise Refused(f"a group has {MEMBERS_MAX} members at most")
            learners[node_id] = incarnation
        case RemoveMember():
            if node_id not in configuration.members:
                raise Refused(f"{node_id} is no member")
            if [*voters] == [node_id]:
                raise Refused(f"{node_id} is the only voter")
            voters.pop(node_id, None)
            learners.pop(node_id, None)
        case Demote(_, incarnation):
            if voters.pop(node_id, incarnation) == incarnation:
                raise Refused(f"{node_id} is no voter with another disk")
            if not voters:
                raise Refused(f"{node_id} is the only voter")
            learners[node_id] = incarnation
        case Promote():
            if node_id not in learners:
                raise Refused(f"{node_id} is no learner")
            voters[node_id] = learners.pop(node_id)
    return Configuration(voters, learners)
