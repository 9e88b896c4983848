"""What must hold of the controller's machine after every command, restated from SEMANTICS 2. For tests.

``check`` looks at one state; a Ratchet also compares it with the one before.
"""

from ..partition.commands import is_named
from .catalog import PARTITIONS_MAX, TOPICS_MAX, Topic, group_id, topic_partition
from .commands import GroupId
from .controller import ControllerMachine
from .enrolments import PRODUCER_EPOCH_FINAL
from .fences import Grant
from .registry import Row


def check(machine: ControllerMachine) -> None:
    """Raise AssertionError if any invariant is broken."""
    for topic in machine.topics():
        _check_topic(machine, topic)
    _check_nodes(machine)
    assert len(machine.topics()) <= TOPICS_MAX
    assert sum(topic.partitions for topic in machine.topics()) <= PARTITIONS_MAX
    for grant in machine.ownership.grants.values():
        _check_grant(machine, grant)
    _check_holders(machine)
    _check_fences(machine)
    _check_registry(machine)


def _check_topic(machine: ControllerMachine, topic: Topic) -> None:
    assert len(topic.epochs) == len(topic.founders) == topic.partitions > 0
    for group, nodes in zip(topic.groups(), topic.placements, strict=True):
        assert len(set(nodes)) == len(nodes) > 0
        assert group in machine.membership.moves or len(nodes) % 2, "an even number of replicas, and none comes or goes"


def _check_nodes(machine: ControllerMachine) -> None:
    """Whoever holds something is known; what moves is placed at both ends; nothing new goes where all must leave."""
    membership = machine.membership
    assert not set(membership.nodes.rows) & set(membership.nodes.removed)
    for group, move in membership.moves.items():
        placed = machine.replicas(group)
        assert placed is not None, "a move of a group that is gone"
        assert set(move.target) <= set(placed)
        assert not any(membership.nodes.is_draining(node_id) for node_id in move.target)
    for entry in membership.nodes.rows.values():
        assert not entry.draining or any(entry.node_id in placed for placed in _placements(machine))


def _placements(machine: ControllerMachine) -> list[list[str]]:
    return [machine.membership.controllers, *(nodes for topic in machine.topics() for nodes in topic.placements)]


def _check_grant(machine: ControllerMachine, grant: Grant) -> None:
    """I3: a grant's partitions all point back to it, with its epoch; its session is alive."""
    machine.session(grant.session)
    topic = machine.topic_by_id(grant.topic_id)
    assert topic is not None, "a grant on a topic that is gone"
    assert grant.partitions == sorted(set(grant.partitions)) != []
    assert grant.pending <= set(grant.partitions)
    for partition in grant.partitions:
        assert machine.ownership.holders[group_id(grant.topic_id, partition)] is grant
        assert topic.epochs[partition] == grant.epoch, "an epoch was issued over a live grant"


def _check_holders(machine: ControllerMachine) -> None:
    """I2: one grant at most on a partition, which is true of a map; and it is a live one."""
    for group, grant in machine.ownership.holders.items():
        assert machine.ownership.grants[grant.grant_id] is grant
        assert topic_partition(group)[0] == grant.topic_id
        assert topic_partition(group)[1] in grant.partitions


def _check_fences(machine: ControllerMachine) -> None:
    """Installs are of live grants and are what these wait for; clears are of ended ones on free partitions."""
    fences, holders = machine.ownership.fences, machine.ownership.holders
    pending = {
        group_id(grant.topic_id, partition): grant
        for grant in machine.ownership.grants.values()
        for partition in grant.pending
    }
    assert fences.installs == pending
    for group, grant in fences.clears.items():
        assert group not in holders, "a clear beside a live grant"
        assert grant.grant_id not in machine.ownership.grants
        assert machine.replicas(group) is not None
    worked_on = [work.group_id for work in machine.work()]
    assert set(worked_on) >= {*fences.installs, *fences.clears}


def _check_registry(machine: ControllerMachine) -> None:
    rows = machine.registry.rows
    pids = [pid for row in rows.values() for pid in (*row.retired, row.pid)]
    assert len(set(pids)) == len(pids)
    for name, row in rows.items():
        assert row.name == name
        assert all(machine.registry.by_pid(pid) is row and is_named(pid) for pid in (*row.retired, row.pid))
        assert 0 <= row.epoch <= PRODUCER_EPOCH_FINAL
        assert row.nonce is None or row.nonce == row.nonces[-1]
    for group, owed in machine.registry.enrolments.owed.items():
        assert owed, "an empty entry"
        assert machine.replicas(group) is not None
        for pid, epoch in owed.items():
            _check_owed(machine.registry.by_pid(pid), pid, epoch)


def _check_owed(row: Row | None, pid: int, epoch: int) -> None:
    assert row is not None
    assert epoch == (row.epoch if row.pid == pid else PRODUCER_EPOCH_FINAL)


class Ratchet:
    """I1 and I8: the lease clock, fencing epochs, and the epoch of an unchanged producer id never go down."""

    def __init__(self) -> None:
        self._clock_ms = 0
        self._epochs: dict[GroupId, int] = {}
        self._producers: dict[int, int] = {}

    def check(self, machine: ControllerMachine) -> None:
        """Raise AssertionError if something went down since the last time."""
        assert machine.lease_clock_ms >= self._clock_ms, "the lease clock went back"
        self._clock_ms = machine.lease_clock_ms
        for topic in machine.topics():
            for group, epoch in zip(topic.groups(), topic.epochs, strict=True):
                assert epoch >= self._epochs.get(group, 0), "a fencing epoch went down"
                self._epochs[group] = epoch
        for row in machine.registry.rows.values():
            assert row.epoch >= self._producers.get(row.pid, 0), "a producer epoch went down"
            self._producers[row.pid] = row.epoch
