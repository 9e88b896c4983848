"""The samples of a node's series other than those of its requests, and their conversion to prometheus_client's form."""

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from ...cluster.measures import FenceMeasures, LogMeasures, Measures, RaftMeasures, TieredMeasures
from ...raft.histogram import SECONDS, Histogram
from .series import Series

DAY_S = 86_400


class Durations(NamedTuple):
    """A histogram. ``counts[i]``: durations of at most ``upper[i]`` seconds, and more than the bound before; the last
    count is of those beyond all bounds.
    """

    upper: Sequence[float]
    counts: Sequence[int]
    total_s: float


Samples = dict[str, Mapping[Any, Any]]
"""The samples by the name of their series: each maps a tuple of label values to a number or Durations."""


def family(series: Series, samples: Mapping[Any, Any]) -> Metric:
    """A series with its samples as a metric family of prometheus_client."""
    if series.kind == "histogram":
        found = HistogramMetricFamily(series.name, series.meaning, labels=series.labels)
        for labels, (upper, counts, total_s) in samples.items():
            # Prometheus wants cumulative buckets.
            ends = list(zip([*map(floatToGoString, upper), "+Inf"], accumulate(counts), strict=True))
            found.add_metric(labels, ends, total_s)
        return found
    made = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
    others = made(series.name, series.meaning, labels=series.labels)
    for labels, value in samples.items():
        others.add_metric(labels, value)
    return others


class Certificate(NamedTuple):
    """A certificate of the node: when it expires, in seconds since 1970, and whether newer files were refused."""

    expires_at: float
    is_refused: bool


def of_node(found: Measures, certificates: Mapping[str, Certificate]) -> Samples:
    """The samples of a node's measures, and of its ``certificates`` by use (``raft``, ``http``)."""
    now = time.time()
    return {
        "stockade_node_info": {(found.cluster_id, found.node_id, found.zone, found.version, found.commit): 1},
        "stockade_certificate_days_left": {
            (use,): (each.expires_at - now) / DAY_S for use, each in certificates.items()
        },
        "stockade_node_doubled": {(): found.doubled_by is not None},
        "stockade_step_bugs": {(): found.bugs},
        "stockade_certificate_refused": {(use,): each.is_refused for use, each in certificates.items()},
        **_of_raft(found.raft),
        **_of_log(found.log),
        **({} if found.fences is None else _of_fences(found.fences)),
        **({} if found.tiered is None else _of_tiered(found.tiered)),
        "stockade_fence_takeovers": {(): found.takeovers},
        "stockade_group_lag_records": {(group,): lag for group, lag in found.group_lags.items()},
    }


def _of_raft(raft: RaftMeasures) -> Samples:
    groups = raft.groups
    return {
        "stockade_raft_groups": {
            (kind, role): count
            for kind, counts in groups.items()
            for role, count in (
                ("leader", counts.leaders),
                ("follower", counts.followers),
                ("learner", counts.learners),
            )
        },
        "stockade_raft_leaderless_groups": {(kind,): counts.leaderless for kind, counts in groups.items()},
        "stockade_raft_under_replicated_groups": {(kind,): counts.under_replicated for kind, counts in groups.items()},
        "stockade_raft_term_max": {(kind,): counts.term_max for kind, counts in groups.items()},
        "stockade_raft_leaderships_won": {(): raft.won},
        "stockade_raft_leaderships_taken": {(): raft.taken},
        "stockade_raft_leaderships_lost": {(): raft.lost},
        "stockade_raft_follower_lag_entries": {(node_id,): lag for node_id, lag in raft.follower_lags.items()},
        "stockade_raft_apply_lag_entries": {(): raft.apply_lag},
        "stockade_raft_apply_seconds": {(): _durations(raft.applies)},
        "stockade_raft_pending_proposals": {(): raft.pending},
        "stockade_raft_pending_bytes": {(): raft.pending_bytes},
        "stockade_raft_nodes": {("connected",): raft.connected, ("away",): raft.away},
    }


def _of_log(log: LogMeasures) -> Samples:
    return {
        "stockade_log_fsync_seconds": {(): _durations(log.syncs)},
        "stockade_log_unsynced_bytes": {(): log.unsynced_bytes},
        "stockade_log_wal_bytes": {(): log.wal_bytes},
        "stockade_log_segment_bytes": {(): log.segment_bytes},
        "stockade_log_disk_free_bytes": {(): log.disk_free_bytes},
        "stockade_log_disk_size_bytes": {(): log.disk_size_bytes},
        "stockade_log_quota_used_ratio": {(topic,): used for topic, used in log.quotas.items()},
        "stockade_log_disk_state": {(state,): state == log.disk_state for state in ("ok", "low", "full")},
    }


def _of_tiered(tiered: TieredMeasures) -> Samples:
    return {
        "stockade_tiered_uploads": {(outcome,): count for outcome, count in tiered.uploads.items()},
        "stockade_tiered_reads": {(outcome,): count for outcome, count in tiered.reads.items()},
        "stockade_tiered_bytes": {(): tiered.bytes},
        "stockade_tiered_waiting_seconds": {(): tiered.waiting_s},
    }


def _of_fences(fences: FenceMeasures) -> Samples:
    return {
        "stockade_fence_sessions": {(): fences.sessions},
        "stockade_fence_grants": {(): fences.grants},
        "stockade_fence_held_partitions": {(): fences.held_partitions},
        "stockade_fence_waiters": {(): fences.waiters},
        "stockade_fence_pending_installs": {(): fences.pending_installs},
        "stockade_fence_pending_seconds": {(): fences.pending_s},
        "stockade_raft_moves": {(): fences.moves},
        "stockade_balance_leaders_away": {(): fences.balance.leaders_away},
        "stockade_balance_planned_moves": {(): fences.balance.planned_moves},
        "stockade_balance_planned_bytes": {(): fences.balance.planned_bytes},
        "stockade_balance_moving_bytes": {(): fences.balance.moving_bytes},
        "stockade_balance_leaderless_partitions": {(): fences.balance.leaderless},
        "stockade_ledger_waiting_entries": {(): fences.ledger_waiting},
        "stockade_ledger_used_ratio": {(): fences.ledger_used},
    }


def _durations(found: Histogram) -> Durations:
    return Durations(SECONDS, list(found.counts), found.total_s)
