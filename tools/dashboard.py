"""Writes ops/grafana/stockade.json, a dashboard for Grafana: ``python tools/dashboard.py``. A test compares the two.

Rows of panels, each with its queries. A query is PromQL; ``$S`` in it is the selection of job and node.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

OUT = Path(__file__).resolve().parents[1] / "ops" / "grafana" / "stockade.json"
SELECTION = 'job=~"$job", instance=~"$instance"'
GRID, HEIGHT, ACROSS = 24, 7, 3


class Panel(NamedTuple):
    """A panel of the dashboard. ``queries``: pairs of PromQL and legend; ``unit``: Grafana's name of the unit."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _quantiles(name: str, by: str = "instance") -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({share}, sum by ({by}, le) (rate({name}_bucket{{$S}}[$__rate_interval])))", legend)
        for share, legend in ((0.5, f"{{{{{by}}}}} half"), (0.99, f"{{{{{by}}}}} 99 of 100"))
    )


def _rate(name: str, by: str, legend: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) (rate({name}{{$S}}[$__rate_interval]))", legend),)


def _sum(name: str, by: str, legend: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) ({name}{{$S}})", legend),)


APPEND = 'method="POST", route=~"/v1/append|/v1/topics/[{]topic[}]/(partitions/[{]partition[}]/)?records", $S'
ROWS: dict[str, tuple[Panel, ...]] = {
    "At a glance": (
        Panel("Nodes that serve", "short", (("sum by (what) (stockade_ready{$S})", "{{what}}"),)),
        Panel(
            "Groups without a leader",
            "short",
            (
                ("max by (kind) (stockade_raft_leaderless_groups{$S})", "{{kind}}"),
                ("max(stockade_balance_leaderless_partitions{$S})", "partition, by the controller's leader"),
            ),
        ),
        Panel("Under-replicated groups", "short", _sum("stockade_raft_under_replicated_groups", "kind", "{{kind}}")),
        Panel("Records stored", "cps", _rate("stockade_appended_records_total", "instance", "{{instance}}")),
        Panel("Bytes stored", "Bps", _rate("stockade_appended_bytes_total", "instance", "{{instance}}")),
        Panel("Refused writes", "cps", _rate("stockade_refused_writes_total", "code, reason", "{{code}} {{reason}}")),
    ),
    "Requests": (
        Panel(
            "Time of an append",
            "s",
            tuple(
                (q.replace("{$S}", "{" + APPEND + "}"), name) for q, name in _quantiles("stockade_http_request_seconds")
            ),
        ),
        Panel("Requests", "reqps", _rate("stockade_http_requests_total", "route", "{{route}}")),
        Panel("Problems", "reqps", _rate("stockade_http_refusals_total", "code", "{{code}}")),
        Panel("Requests in flight", "short", _sum("stockade_http_in_flight_requests", "instance", "{{instance}}")),
        Panel(
            "Bytes in flight", "bytes", _sum("stockade_http_in_flight_bytes", "instance, what", "{{instance}} {{what}}")
        ),
        Panel("Waiting for a leader", "short", _sum("stockade_http_waiting_for_leader", "instance", "{{instance}}")),
        Panel("Connections", "short", _sum("stockade_http_connections", "instance", "{{instance}}")),
        Panel("Connections ended", "cps", _rate("stockade_http_ended_connections_total", "reason", "{{reason}}")),
        Panel("Followed streams", "short", _sum("stockade_http_followers", "instance", "{{instance}}")),
    ),
    "Raft": (
        Panel(
            "Groups led",
            "short",
            (('sum by (instance, kind) (stockade_raft_groups{role="leader", $S})', "{{instance}} {{kind}}"),),
        ),
        Panel(
            "Leaderships won and lost",
            "cps",
            (
                *_rate("stockade_raft_leaderships_won_total", "instance", "{{instance}} won"),
                *_rate("stockade_raft_leaderships_lost_total", "instance", "{{instance}} lost"),
            ),
        ),
        Panel("Highest term", "short", (("max by (kind) (stockade_raft_term_max{$S})", "{{kind}}"),)),
        Panel("Lag of followers", "short", (("max by (node) (stockade_raft_follower_lag_entries{$S})", "{{node}}"),)),
        Panel("Committed, not applied", "short", _sum("stockade_raft_apply_lag_entries", "instance", "{{instance}}")),
        Panel("Time of a run of applies", "s", _quantiles("stockade_raft_apply_seconds")),
        Panel("Proposals that wait", "short", _sum("stockade_raft_pending_proposals", "instance", "{{instance}}")),
        Panel("Bytes of proposals that wait", "bytes", _sum("stockade_raft_pending_bytes", "instance", "{{instance}}")),
        Panel(
            "Nodes that a node misses",
            "short",
            (('sum by (instance) (stockade_raft_nodes{state="away", $S})', "{{instance}}"),),
        ),
        Panel("Groups that move", "short", (("max(stockade_raft_moves{$S})", "groups"),)),
        Panel(
            "Out of balance",
            "short",
            (
                ("max(stockade_balance_leaders_away{$S})", "leaders that are not at home"),
                ("max(stockade_balance_planned_moves{$S})", "partitions that shall move"),
            ),
        ),
        Panel(
            "Bytes to copy for balance",
            "bytes",
            (
                ("max(stockade_balance_planned_bytes{$S})", "of the plan"),
                ("max(stockade_balance_moving_bytes{$S})", "of moves under way"),
            ),
        ),
    ),
    "The log on disk": (
        Panel("Time of an fsync", "s", _quantiles("stockade_log_fsync_seconds")),
        Panel("Syncs", "iops", _rate("stockade_log_fsync_seconds_count", "instance", "{{instance}}")),
        Panel("Bytes not on disk yet", "bytes", _sum("stockade_log_unsynced_bytes", "instance", "{{instance}}")),
        Panel(
            "Free disk",
            "percentunit",
            (("stockade_log_disk_free_bytes{$S} / stockade_log_disk_size_bytes{$S}", "{{instance}}"),),
        ),
        Panel("Write-ahead log", "bytes", _sum("stockade_log_wal_bytes", "instance", "{{instance}}")),
        Panel("Segments", "bytes", _sum("stockade_log_segment_bytes", "instance", "{{instance}}")),
        Panel(
            "Used of topics' quotas",
            "percentunit",
            (("max by (topic) (stockade_log_quota_used_ratio{$S})", "{{topic}}"),),
        ),
    ),
    "The tiered store": (
        Panel("In the store", "bytes", _sum("stockade_tiered_bytes", "instance", "{{instance}}")),
        Panel("Longest wait for an upload", "s", (("stockade_tiered_waiting_seconds{$S}", "{{instance}}"),)),
        Panel("Uploads", "short", _rate("stockade_tiered_uploads_total", "outcome", "{{outcome}}")),
        Panel("Objects read", "short", _rate("stockade_tiered_reads_total", "outcome", "{{outcome}}")),
    ),
    "Writers and consumer groups": (
        Panel("Sessions", "short", (("max(stockade_fence_sessions{$S})", "sessions"),)),
        Panel(
            "Grants and waiters",
            "short",
            (
                ("max(stockade_fence_grants{$S})", "grants"),
                ("max(stockade_fence_held_partitions{$S})", "partitions with an exclusive writer"),
                ("max(stockade_fence_waiters{$S})", "tickets that wait"),
            ),
        ),
        Panel(
            "Takeovers, and decisions that are not in force yet",
            "short",
            (
                ("sum(increase(stockade_fence_takeovers_total{$S}[$__rate_interval]))", "takeovers"),
                ("max(stockade_fence_pending_installs{$S})", "not in force yet"),
                ("max(stockade_ledger_waiting_entries{$S})", "entries that wait for the ledger"),
            ),
        ),
        Panel(
            "The canary: since the last proof",
            "s",
            (("stockade_canary_seconds_since_proof", "{{instance}} since the last proof"),),
        ),
        Panel(
            "The canary: rounds",
            "short",
            (
                ("sum(increase(stockade_canary_proofs_total[1h]))", "proofs in an hour"),
                ("sum by (reason) (increase(stockade_canary_unproven_total[1h]))", "unproven in an hour: {{reason}}"),
                ("sum(stockade_canary_violations_total)", "violations"),
            ),
        ),
        Panel(
            "The canary: time of a takeover",
            "s",
            tuple((query.replace("{$S}", ""), name) for query, name in _quantiles("stockade_canary_takeover_seconds")),
        ),
        Panel("Lag of consumer groups", "short", _sum("stockade_group_lag_records", "group", "{{group}}")),
    ),
    "The process": (
        Panel("Processor", "percentunit", _rate("process_cpu_seconds_total", "instance", "{{instance}}")),
        Panel("Memory", "bytes", _sum("process_resident_memory_bytes", "instance", "{{instance}}")),
        Panel("Descriptors", "percentunit", (("process_open_fds{$S} / process_max_fds{$S}", "{{instance}}"),)),
        Panel(
            "The event loop stood still",
            "percentunit",
            (
                (
                    "sum by (instance, cause) (rate(stockade_loop_stall_seconds_sum{$S}[$__rate_interval]))",
                    "{{instance}} {{cause}}",
                ),
            ),
        ),
        Panel(
            "Days that certificates have left",
            "short",
            (("stockade_certificate_days_left{$S}", "{{instance}} {{use}}"),),
        ),
        Panel(
            "Certificates whose files are refused",
            "short",
            (("stockade_certificate_refused{$S}", "{{instance}} {{use}}"),),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": _place(0, top, GRID, 1)}
        )
        top += 1
        for number, panel in enumerate(row):
            width = GRID // ACROSS
            place = _place(number % ACROSS * width, top + number // ACROSS * HEIGHT, width, HEIGHT)
            panels.append(_panel(panel, place))
        top += (len(row) + ACROSS - 1) // ACROSS * HEIGHT
    return {
        "uid": "stockade",
        "title": "Stockade",
        "tags": ["stockade"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": [{**panel, "id": number} for number, panel in enumerate(panels, 1)],
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + k),
                "datasource": source,
                "expr": query.replace("$S", SELECTION),
                "legendFormat": legend,
            }
            for k, (query, legend) in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    many = {"type": "query", "datasource": {"type": "prometheus", "uid": "${source}"}, "refresh": 2, "multi": True}
    many |= {"includeAll": True, "current": {"text": ["All"], "value": ["$__all"]}}
    return [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {"name": "job", "label": "Job", "query": "label_values(stockade_node_info, job)", **many},
        {
            "name": "instance",
            "label": "Node",
            "query": 'label_values(stockade_node_info{job=~"$job"}, instance)',
            **many,
        },
    ]


def text() -> str:
    """The content of ops/grafana/stockade.json."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    OUT.write_text(text(), encoding="utf-8")
