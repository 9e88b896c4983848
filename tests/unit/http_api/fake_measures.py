"""Numbers of a node in memory: each differs, so that a test sees which went where."""

from stockade.cluster.measures import BalanceMeasures, FenceMeasures, GroupCounts, LogMeasures, Measures, RaftMeasures
from stockade.raft.histogram import Histogram


def fake_measures(node_id: str) -> Measures:
    applies, syncs = Histogram(), Histogram()
    applies.add(0.002)
    syncs.add(0.3)
    syncs.add(9.0)
    counts = {
        "controller": GroupCounts(leaders=1, term_max=7),
        "partition": GroupCounts(leaders=2, followers=3, learners=4, leaderless=5, under_replicated=6, term_max=8),
    }
    return Measures(
        cluster_id="c-1",
        node_id=node_id,
        zone="a",
        version="0.1.0",
        commit="c0ffee",
        raft=RaftMeasures(
            groups=counts,
            follower_lags={"n2": 9},
            apply_lag=10,
            pending=11,
            pending_bytes=12,
            won=13,
            taken=32,
            lost=14,
            applies=applies,
            connected=1,
            away=1,
            certificate_expires_at=None,
        ),
        log=LogMeasures(
            syncs=syncs,
            unsynced_bytes=15,
            wal_bytes=16,
            segment_bytes=17,
            disk_free_bytes=18,
            disk_size_bytes=19,
            disk_state="low",
            quotas={"logs": 0.85},
        ),
        fences=FenceMeasures(20, 21, 22, 23, 24, 31.5, 25, 26, 0.125, BalanceMeasures(26, 27, 28, 29, 30)),
        takeovers=26,
        group_lags={"readers": 27},
        bugs=33,
    )
