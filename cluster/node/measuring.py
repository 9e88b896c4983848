"""Reads a node's measures when a monitor asks, so that no append has to keep a counter for the monitor's sake."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from heapq import nlargest
from itertools import islice
from time import monotonic
from typing import TypeVar

from ...partition.version import VERSION
from ...raft.core.group import Group
from ...raft.host import RaftHost
from ..build import commit
from ..config import NodeConfig
from ..controller.commands import GroupId
from ..controller.ownership.slots import FenceInstalls
from ..controller.topology.catalog import CONTROLLER_GROUP
from ..discovery.cluster_view import ClusterView
from ..discovery.registration import Registration
from ..measures import (
    LAGGING_GROUPS_MAX,
    POSITIONS_MAX,
    QUOTAS_MAX,
    FenceMeasures,
    GroupCounts,
    LogMeasures,
    Measures,
    RaftMeasures,
    TieredMeasures,
)
from ..replica.replica import Replica
from ..replica.replica_manager import ReplicaManager
from ..replica.tiering import Tiering
from .controller_member import ControllerMember
from .disk_watch import DiskWatch
from .leadership import Leaderships

GROUPS_A_TURN = 200
"""Groups that are looked at between two turns of the loop: some 2 ms of it."""

_Item = TypeVar("_Item")


class Measuring:
    """Reads the measures from all parts of a node. That takes some ten microseconds for each group, after each
    GROUPS_A_TURN of which the loop goes on with other work; with ``names`` also a microsecond for each position.
    """

    tiering: Tiering | None = None
    """None: the node has no tiered store."""

    def __init__(
        self,
        config: NodeConfig,
        host: RaftHost,
        view: ClusterView,
        replicas: ReplicaManager,
        member: ControllerMember,
        leaderships: Leaderships,
        disk: DiskWatch,
        registration: Registration,
    ) -> None:
        self._config = config
        self._host = host
        self._view = view
        self._replicas = replicas
        self._member = member
        self._registration = registration
        self.leaderships: Leaderships = leaderships
        self.disk: DiskWatch = disk
        """The disk of the data folder."""
        self._commit = commit()
        self._pending = PendingTimes()

    async def look(self, *, names: bool = False) -> Measures:
        """The measures as they are now. ``names``: also those of consumer groups and topics."""
        config, raft, replicas = self._config, await self._raft(), self._replicas.all() if names else ()
        segment_bytes = sum([replica.log.stored_bytes async for replica in _in_turns(list(self._replicas.all()))])
        led = [replica for replica in replicas if replica.group.is_leader]
        return Measures(
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            zone=config.me.zone or "",
            version=VERSION,
            commit=self._commit,
            raft=raft,
            log=self._log(led, segment_bytes),
            fences=self._fences(),
            takeovers=0 if self._member.control is None else self._member.control.takeovers,
            group_lags=group_lags(led),
            tiered=None if self.tiering is None else self._tiered(self.tiering),
            doubled_by=self._registration.double,
            bugs=self._host.bugs,
        )

    def _tiered(self, tiering: Tiering) -> TieredMeasures:
        counts = tiering.store.counts
        return TieredMeasures(
            uploads={"stored": counts.stored, "failed": counts.upload_failed, "refused": counts.refused},
            reads={"cached": counts.cached, "fetched": counts.fetched, "failed": counts.read_failed},
            bytes=sum(each.machine.tier.size for each in self._replicas.all() if each.group.is_leader),
            waiting_s=tiering.waiting_s,
        )

    async def _raft(self) -> RaftMeasures:
        host = self._host
        counts = {"controller": GroupCounts(), "partition": GroupCounts()}
        follower_lags: dict[str, int] = {}
        apply_lag = pending = pending_bytes = 0
        async for group in _in_turns(list(host.groups.values())):
            _count(group, counts["controller" if group.group_id == CONTROLLER_GROUP else "partition"])
            for node_id, lag in group.lags.items():
                follower_lags[node_id] = max(lag, follower_lags.get(node_id, 0))
            apply_lag = max(apply_lag, group.commit_index - group.applied_index)
            waiting, size = group.pending
            pending, pending_bytes = pending + waiting, pending_bytes + size
        others = {entry.node_id for entry in self._view.members()} - {self._config.node_id}
        return RaftMeasures(
            groups=counts,
            follower_lags=follower_lags,
            apply_lag=apply_lag,
            pending=pending,
            pending_bytes=pending_bytes,
            won=self.leaderships.won,
            taken=self.leaderships.taken,
            lost=self.leaderships.lost,
            applies=host.applies,
            connected=len(others & host.connected),
            away=len(others - host.connected),
            certificate_expires_at=None if host.tls is None else host.tls.expires_at,
            is_certificate_refused=host.tls is not None and host.tls.is_refused,
        )

    def _log(self, led: Iterable[Replica], segment_bytes: int) -> LogMeasures:
        log, disk = self._host.log, self.disk
        return LogMeasures(
            syncs=log.syncs,
            unsynced_bytes=log.pending_bytes,
            wal_bytes=log.disk_bytes,
            segment_bytes=segment_bytes,
            disk_free_bytes=disk.free_bytes,
            disk_size_bytes=disk.total_bytes,
            disk_state=disk.state,
            quotas=quotas_used(led),
        )

    def _fences(self) -> FenceMeasures | None:
        services = self._member.services
        if services is None or not services.control.group.is_leader:
            self._pending = PendingTimes()
            return None
        machine = services.control.machine
        return FenceMeasures(
            sessions=machine.sessions.count,
            grants=len(machine.slots.grants.by_id),
            held_partitions=len(machine.slots.grants.holders),
            waiters=len(machine.slots.queue.by_id),
            pending_installs=len(machine.slots.fences.due),
            pending_s=self._pending.longest_s(machine.slots.fences),
            moves=len(self._view.moves),
            ledger_waiting=machine.ledger.waiting,
            ledger_used=machine.ledger.used,
            balance=services.members.balancer.measures,
        )


async def _in_turns(items: Sequence[_Item]) -> AsyncIterator[_Item]:
    """The items, with a turn of the loop for other work after each GROUPS_A_TURN."""
    for place, item in enumerate(items, 1):
        yield item
        if place % GROUPS_A_TURN == 0:
            await asyncio.sleep(0)


class PendingTimes:
    """Since when partitions have confirmed no decision about their slots, as the looks of a monitor see it: one that
    confirmed another decision between two looks does not wait since the first. Appends and acquires note nothing.
    """

    def __init__(self) -> None:
        self._since: dict[GroupId, tuple[int, float]] = {}
        """By partition: what it had confirmed, and when a look first saw it wait with no more than that."""

    def longest_s(self, fences: FenceInstalls) -> float:
        """Look: seconds for which the partition that waits longest has waited; 0: none waits since an earlier look."""
        now, before, self._since = monotonic(), self._since, {}
        for group in fences.due:
            reached = fences.reached(group)
            known, since = before.get(group, (reached, now))
            self._since[group] = reached, since if known == reached else now
        return max((now - since for _, since in self._since.values()), default=0.0)


def _count(group: Group, counts: GroupCounts) -> None:
    if group.is_leader:
        counts.leaders += 1
        counts.under_replicated += bool(group.out_of_sync)
    elif group.is_learner:
        counts.learners += 1
    else:
        counts.followers += 1
    counts.leaderless += group.leader is None
    counts.term_max = max(counts.term_max, group.term)


def quotas_used(led: Iterable[Replica]) -> dict[str, float]:
    """By topic, the used share of its quota on the fullest of these partitions; only the QUOTAS_MAX highest."""
    used: dict[str, float] = {}
    for replica in led:
        if replica.config.quota_bytes > 0:
            part = replica.kept_bytes / replica.config.quota_bytes
            used[replica.topic] = max(part, used.get(replica.topic, 0.0))
    return dict(nlargest(QUOTAS_MAX, used.items(), key=lambda entry: (entry[1], entry[0])))


def group_lags(led: Iterable[Replica]) -> dict[str, int]:
    """By consumer group, the records on these partitions that it has not read yet; only the LAGGING_GROUPS_MAX groups
    that lag most.
    """
    lags: dict[str, int] = {}
    positions = (
        (group, max(0, replica.machine.log_end - position.offset))
        for replica in led
        for group, position in replica.machine.readers.positions.items()
    )
    for group, lag in islice(positions, POSITIONS_MAX):
        lags[group] = lags.get(group, 0) + lag
    return dict(nlargest(LAGGING_GROUPS_MAX, lags.items(), key=lambda entry: (entry[1], entry[0])))
