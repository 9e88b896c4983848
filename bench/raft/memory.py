"""Whether a node's memory stays bounded while commands come and go for long."""

from fleet import fleet
from tables import Column, Options, Row, Table

SETTINGS = {"checkpoint_bytes": 16 << 20, "wal_bytes_max": 128 << 20, "wal_file_bytes": 16 << 20}

COLUMNS = (
    Column("commits", "commits"),
    Column("rss_mb", "RSS MB, max", ".1f"),
    Column("commits_per_s", "commits/s"),
)


def memory(options: Options) -> list[Row]:
    """Commit commands of 1 KiB; checkpoints are taken of every 16 MiB, so that they come round often."""
    table = Table("Memory of the largest node over commits, checkpoints every 16 MiB", COLUMNS)
    commits, commits_max = 0, 100_000 if options.short else options.commits
    with fleet(settings=SETTINGS) as nodes:
        nodes.open(1, 1)
        while commits < commits_max:
            result = nodes.load([1], size=1024, in_flight=64, seconds=options.seconds * options.runs, profile=None)
            states = nodes.ask_all("status").values()
            commits += int(result["commits"])
            table.add({**result, "commits": commits, "rss_mb": max(state["rss_mb"] for state in states)})
    return table.rows
