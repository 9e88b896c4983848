"""The invariants of the controller's machine, restated from SEMANTICS 2: they hold after every command. For tests.

``check`` judges one state; a MonotonicityCheck compares each state with the one before.
"""

from itertools import chain

import msgspec

from ...partition.api.ledger import LedgerEntry, entry_hash
from ...partition.commands import is_named
from .commands import FenceRef, GroupId
from .ledger import chained
from .machine import ControllerMachine
from .ownership.grants import Grant, Ticket
from .ownership.slots import DEPARTED_MAX
from .producers import PRODUCER_EPOCH_FINAL, ProducerRow
from .topology.catalog import PARTITIONS_MAX, TOPICS_MAX, Topic, group_id, topic_partition
from .topology.placement import measure

LEDGER_BYTES_MAX = 1 << 40


def check(machine: ControllerMachine) -> None:
    """Raise AssertionError if any invariant is broken."""
    for topic in machine.catalog.topics():
        _check_topic(machine, topic)
    _check_nodes(machine)
    _check_holdings(machine)
    assert len(machine.catalog.topics()) <= TOPICS_MAX
    assert sum(topic.partitions for topic in machine.catalog.topics()) <= PARTITIONS_MAX
    for grant in machine.slots.grants.by_id.values():
        _check_grant(machine, grant)
    _check_holders(machine)
    _check_queue(machine)
    _check_fences(machine)
    _check_resources(machine)
    _check_registry(machine)
    _check_ledger(machine)


def _check_ledger(machine: ControllerMachine) -> None:
    """Entries that wait to be copied form a hash chain that ends at the ledger's head."""
    ledger = machine.ledger
    first, waiting = ledger.oldest(ledger.waiting, LEDGER_BYTES_MAX)
    assert first + len(waiting) == ledger.next
    if waiting:
        previous = msgspec.json.decode(waiting[0], type=LedgerEntry).previous
        assert chained(first, waiting, previous)
        assert entry_hash(waiting[-1]) == ledger.head


def _check_topic(machine: ControllerMachine, topic: Topic) -> None:
    assert len(topic.epochs) == len(topic.founders) == topic.partitions > 0
    for group, nodes in zip(topic.groups(), topic.placements, strict=True):
        assert len(set(nodes)) == len(nodes) > 0
        assert group in machine.assignment.moves or len(nodes) % 2, "an even number of replicas, and none comes or goes"


def _check_nodes(machine: ControllerMachine) -> None:
    """No node is both known and removed; a moving group is placed on its whole target, and no node of that drains;
    a draining node still has a replica: without one it is forgotten.
    """
    membership = machine.assignment
    assert not set(membership.nodes.rows) & set(membership.nodes.removed)
    for group, move in membership.moves.items():
        placed = machine.assignment.replicas(group)
        assert placed is not None, "a move of a group that is gone"
        assert set(move.target) <= set(placed)
        assert not any(membership.nodes.is_draining(node_id) for node_id in move.target)
    for entry in membership.nodes.rows.values():
        assert not entry.draining or any(entry.node_id in placed for placed in _placements(machine))


def _check_holdings(machine: ControllerMachine) -> None:
    """The counts and groups by node, which are kept incrementally, equal those recomputed from the placements."""
    topics = machine.catalog.topics()
    holdings = machine.catalog.holdings
    assert holdings.loads() == measure(nodes for topic in topics for nodes in topic.placements)
    here = {
        (node_id, group)
        for topic in topics
        for group, nodes in zip(topic.groups(), topic.placements, strict=True)
        for node_id in nodes
    }
    assert {(node_id, group) for node_id in holdings.loads() for group in holdings.groups(node_id)} == here


def _placements(machine: ControllerMachine) -> list[list[str]]:
    return [
        machine.assignment.controllers,
        *(nodes for topic in machine.catalog.topics() for nodes in topic.placements),
    ]


def _check_grant(machine: ControllerMachine, grant: Grant) -> None:
    """I3: a grant's partitions all point back to it, with its epoch; its session is alive."""
    machine.sessions.find(grant.session)
    topic = machine.catalog.by_id.get(grant.topic_id)
    assert topic is not None, "a grant on a topic that is gone"
    assert grant.partitions == sorted(set(grant.partitions)) != []
    assert grant.pending <= set(grant.partitions)
    assert not grant.all_partitions or len(grant.partitions) == topic.partitions, "a grant did not grow"
    assert (grant.epoch is None) == (grant.mode == "Shared")
    for partition, group in zip(grant.partitions, grant.groups(), strict=True):
        assert any(here is grant for here in machine.slots.grants.on(group))
        assert grant.epoch in (None, topic.epochs[partition]), "an epoch was issued over a live grant"
        assert partition not in grant.pending or group in machine.slots.fences.due


def _check_holders(machine: ControllerMachine) -> None:
    """I2: at most one exclusive grant on a partition (``holders`` is a map), and then no Shared one."""
    grants = machine.slots.grants
    assert not set(grants.holders) & set(grants.sharers), "a Shared grant beside an exclusive one"
    here = [(group, grant) for group, grant in grants.holders.items()]
    here += [(group, grant) for group, seats in grants.sharers.items() for grant in seats.values()]
    for group, grant in here:
        assert grants.by_id[grant.grant_id] is grant
        assert topic_partition(group)[0] == grant.topic_id
        assert topic_partition(group)[1] in grant.partitions


def _check_queue(machine: ControllerMachine) -> None:
    """I7: a grant, or an earlier ticket, is in the way of every queued ticket."""
    queue, grants = machine.slots.queue, machine.slots.grants
    for topic in machine.catalog.topics():
        before: list[Ticket] = []
        for ticket in queue.of_topic(topic.topic_id):
            assert queue.by_session.get(ticket.session) is ticket
            assert not grants.of_session(ticket.session), "a session waits while it holds"
            machine.sessions.find(ticket.session)
            assert not ticket.all_partitions or len(ticket.partitions) == topic.partitions, "a ticket did not grow"
            wanted = set(ticket.partitions)
            taken = any(grants.on(group_id(topic.topic_id, partition)) for partition in wanted)
            assert taken or any(wanted & set(other.partitions) for other in before), "waits for what is free"
            before.append(ticket)


def _check_fences(machine: ControllerMachine) -> None:
    """Due entries cover pending grants: ``due.epoch`` is the partition's epoch, and ``grant_index <= due.order``."""
    fences = machine.slots.fences
    for group, decision in fences.due.items():
        located = machine.catalog.locate(group)
        assert located is not None
        assert decision.epoch == located[0].epochs[located[1]], "an older epoch is due"
        assert all(grant.grant_index <= decision.order for grant in machine.slots.grants.on(group))
        assert not fences.is_over(FenceRef(group, decision.order))
        for grant, session in decision.departed:
            assert FenceRef(group, decision.order) in fences.uncleared(grants=[grant])
            assert FenceRef(group, decision.order) in fences.uncleared(sessions=[session])
    full = {group for group, decision in fences.due.items() if len(decision.departed) >= DEPARTED_MAX}
    assert {fence.group_id for fence in fences.full(lambda topic_id: True)} == full
    assert fences.departed_names() == {name for decision in fences.due.values() for name in chain(*decision.departed)}
    worked_on = [work.group_id for work in machine.work()]
    assert set(worked_on) >= {*fences.due, *machine.reader_fences.owed}


def _check_resources(machine: ControllerMachine) -> None:
    """Owners are live sessions; the count by group and the index by owner agree with the rows."""
    for group, rows in machine.resources.rows.items():
        assert machine.resources.owned_in[group] == sum(row.owner is not None for row in rows.values())
        for resource, row in rows.items():
            assert row.generation > 0 < row.fence_epoch
            if row.owner is not None:
                machine.sessions.find(row.owner)
                assert (group, resource) in machine.resources.owned_by(row.owner)


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
        assert machine.assignment.replicas(group) is not None
        for pid, epoch in owed.items():
            _check_owed(machine.registry.by_pid(pid), pid, epoch)


def _check_owed(row: ProducerRow | None, pid: int, epoch: int) -> None:
    assert row is not None
    assert epoch == (row.epoch if row.pid == pid else PRODUCER_EPOCH_FINAL)


class MonotonicityCheck:
    """I1 and I8: the lease clock, the epochs of partitions, the fence_epochs of resources, and the epoch of an
    unchanged producer id never go down.
    """

    def __init__(self) -> None:
        self._clock_ms = 0
        self._epochs: dict[GroupId, int] = {}
        self._producers: dict[int, int] = {}
        self._fence_epochs: dict[tuple[str, str], int] = {}

    def check(self, machine: ControllerMachine) -> None:
        """Raise AssertionError if one of these went down since the last call."""
        assert machine.lease_clock_ms >= self._clock_ms, "the lease clock went back"
        self._clock_ms = machine.lease_clock_ms
        for topic in machine.catalog.topics():
            for group, epoch in zip(topic.groups(), topic.epochs, strict=True):
                assert epoch >= self._epochs.get(group, 0), "a fencing epoch went down"
                self._epochs[group] = epoch
        for name, rows in machine.resources.rows.items():
            for resource, owned in rows.items():
                assert owned.fence_epoch >= self._fence_epochs.get((name, resource), 0), "a fence_epoch went down"
                self._fence_epochs[name, resource] = owned.fence_epoch
        for row in machine.registry.rows.values():
            assert row.epoch >= self._producers.get(row.pid, 0), "a producer epoch went down"
            self._producers[row.pid] = row.epoch
