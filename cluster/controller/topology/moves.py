"""Moving a group's replicas from node to node: the target of a move, and the next step towards it. Pure.

The controller decides the target; each group's leader takes the steps (mover.py). A step changes the membership by one
node. Always ``voters >= min(voters at first, voters of the target)``: a node joins, and has the whole log, before
another leaves.
"""

from collections.abc import Collection, Sequence

import msgspec

from ....raft.log.configuration import Configuration


class Move(msgspec.Struct, frozen=True):
    """A wanted move: the group's replicas are to be on the nodes ``target``. ``version`` is the log index of the
    command that asked for it.
    """

    group_id: int
    version: int
    target: list[str]


class Add(msgspec.Struct, frozen=True):
    """Add a node as a learner; once it has caught up, the leader makes it a voter by itself."""

    node_id: str


class Remove(msgspec.Struct, frozen=True):
    """Remove a member, which is not the leader."""

    node_id: str


class TransferLeadership(msgspec.Struct, frozen=True):
    """Transfer leadership to the voter ``node_id``, which stays: the leader leaves last, and must not lead then."""

    node_id: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until ``node_ids`` have caught up, or are reached."""

    node_ids: tuple[str, ...]


class Arrived(msgspec.Struct, frozen=True):
    """The move is over: the voters are the target."""


Step = Add | Remove | TransferLeadership | Wait | Arrived


def next_step(now: Configuration, leader: str, target: Sequence[str], reached: Collection[str]) -> Step:
    """The next step of the leader towards ``target``. ``reached``: the nodes to which the leader is connected."""
    strays = [node_id for node_id in now.learners if node_id not in target]
    if strays:
        return Remove(strays[0])
    if now.learners:
        return Wait(tuple(now.learners))
    missing = [node_id for node_id in target if node_id not in now.voters]
    if missing and len(now.voters) <= len(target):
        here = [node_id for node_id in missing if node_id in reached]
        if len(now.voters) == 1 and len(target) > 1 and len(here) == 1:
            # A group of two voters stops when either is lost, which is worse than one voter: wait until a third one is
            # reached, too.
            return Wait(tuple(node_id for node_id in missing if node_id not in reached))
        return Add(here[0]) if here else Wait(tuple(missing))
    return _leave(now, leader, target, reached)


def _leave(now: Configuration, leader: str, target: Sequence[str], reached: Collection[str]) -> Step:
    surplus = [node_id for node_id in now.voters if node_id not in target]
    if not surplus:
        return Arrived()
    away = [node_id for node_id in surplus if node_id not in reached]
    if away:
        return Remove(away[0])  # a voter that is not reached serves no quorum
    others = [node_id for node_id in surplus if node_id != leader]
    unwell = [node_id for node_id in now.voters if node_id not in reached]
    if others:
        # While a voter of the target is not reached, no voter that is reached leaves.
        return Wait(tuple(unwell)) if unwell else Remove(others[0])
    heirs = [node_id for node_id in target if node_id in now.voters]
    here = [node_id for node_id in heirs if node_id in reached]
    return TransferLeadership(here[0]) if here else Wait(tuple(heirs))
