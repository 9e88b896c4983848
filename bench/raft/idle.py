"""The processor time and memory that a node needs for groups in which nothing happens, by the number of groups."""

import time

from fleet import fleet
from tables import Column, Options, Row, Table

GROUPS = (0, 64, 256, 1024)
COLUMNS = (
    Column("groups", "groups"),
    Column("cpu_percent", "CPU % a node", ".2f"),
    Column("cpu_percent_max", "busiest", ".2f"),
    Column("rss_mb", "RSS MB", ".1f"),
    Column("kb_per_group", "KB a group", ".1f"),
    Column("elections", "elections"),
)


def idle(options: Options) -> list[Row]:
    """The cost of groups in which nothing happens; each node leads a third of them. One run, since it is long."""
    seconds = max(options.seconds, 5.0) * 4
    table = Table(f"Idle for {seconds:.0f} s; CPU in percent of one core, means of three nodes", COLUMNS)
    empty_mb = 0.0
    for count in (0, 256) if options.short else GROUPS:
        row = _watch(count, seconds)
        if count == 0:
            empty_mb = row["rss_mb"]
        else:
            row["kb_per_group"] = (row["rss_mb"] - empty_mb) * 1e3 / count
        table.add(row)
    return table.rows


def _watch(count: int, seconds: float) -> Row:
    with fleet() as nodes:
        if count:
            nodes.open(1, count, spread=True)
            nodes.until_resting()
        time.sleep(2.0)
        began, before = time.monotonic(), nodes.ask_all("status")
        time.sleep(seconds)
        after = nodes.ask_all("status")
        took = time.monotonic() - began
        shares = [(after[node]["cpu_s"] - before[node]["cpu_s"]) / took * 100 for node in after]
        return {
            "groups": count,
            "cpu_percent": sum(shares) / len(shares),
            "cpu_percent_max": max(shares),
            "rss_mb": sum(state["rss_mb"] for state in after.values()) / len(after),
            "elections": sum(after[node]["terms"] - before[node]["terms"] for node in after) / len(after),
        }
