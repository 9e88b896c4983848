"""Moving a group's replicas from node to node: what is wanted, and the next step towards it. Pure.

The controller says what is wanted; each group's leader takes the steps (mover.py). A step changes the membership by
one node. There are never fewer voters than there were at first or are wanted at last, whichever is less: a node is
taken in, and has everything, before another goes.
"""

from collections.abc import Collection, Sequence

import msgspec

from ....raft.log.configuration import Configuration


class Move(msgspec.Struct, frozen=True):
    """A group shall consist of ``target``. ``version`` is the log index of the command that asked for it."""

    group_id: int
    version: int
    target: list[str]


class Add(msgspec.Struct, frozen=True):
    """Take in a node; once it has caught up, the leader makes it a voter by itself."""

    node_id: str


class Remove(msgspec.Struct, frozen=True):
    """Let a member go that is not the leader."""

    node_id: str


class TransferLeadership(msgspec.Struct, frozen=True):
    """The leader is the last one to leave: a voter that stays must lead first."""

    node_id: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until ``node_ids`` have caught up, or are reached."""

    node_ids: tuple[str, ...]


class Arrived(msgspec.Struct, frozen=True):
    """The group is what it shall be."""


Step = Add | Remove | TransferLeadership | Wait | Arrived


def next_step(now: Configuration, leader: str, target: Sequence[str], reached: Collection[str]) -> Step:
    """What the leader does next. ``reached``: the nodes that it is connected to."""
    strays = [node_id for node_id in now.learners if node_id not in target]
    if strays:
        return Remove(strays[0])
    if now.learners:
        return Wait(tuple(now.learners))
    missing = [node_id for node_id in target if node_id not in now.voters]
    if missing and len(now.voters) <= len(target):
        here = [node_id for node_id in missing if node_id in reached]
        if len(now.voters) == 1 and len(target) > 1 and len(here) == 1:
            # Two voters stop when either is lost: worse than one, so the third has to be there, too.
            return Wait(tuple(node_id for node_id in missing if node_id not in reached))
        return Add(here[0]) if here else Wait(tuple(missing))
    return _leave(now, leader, target, reached)


def _leave(now: Configuration, leader: str, target: Sequence[str], reached: Collection[str]) -> Step:
    surplus = [node_id for node_id in now.voters if node_id not in target]
    if not surplus:
        return Arrived()
    away = [node_id for node_id in surplus if node_id not in reached]
    if away:
        return Remove(away[0])  # it serves no quorum
    others = [node_id for node_id in surplus if node_id != leader]
    unwell = [node_id for node_id in now.voters if node_id not in reached]
    if others:
        # While a voter that stays is away, none that is reached leaves.
        return Wait(tuple(unwell)) if unwell else Remove(others[0])
    heirs = [node_id for node_id in target if node_id in now.voters]
    here = [node_id for node_id in heirs if node_id in reached]
    return TransferLeadership(here[0]) if here else Wait(tuple(heirs))
