"""Commits a second and latencies: by payload and number in flight, by number of groups, with and without fdatasync."""

from fleet import Fleet, fleet
from tables import Column, Options, Row, Table, medians

PAYLOADS = (100, 1 << 10, 16 << 10, 64 << 10, 512 << 10)
IN_FLIGHT = (1, 16, 64, 256)
GROUPS = (1, 16, 64, 256, 1024)
IN_FLIGHT_TOGETHER, IN_FLIGHT_EACH = 256, 64
"""In flight in the section about numbers of groups: in all groups together, and in each of them."""
IN_FLIGHT_MAX = 8192
"""Rows with more in flight on one node are left out: that would be an overload."""
IN_FLIGHT_BYTES_MAX = 64 << 20
"""Rows with more bytes in flight are left out: the groups refuse them."""
COLUMNS = (
    Column("groups", "groups"),
    Column("size", "bytes"),
    Column("in_flight", "in flight"),
    Column("commits_per_s", "commits/s"),
    Column("mb_per_s", "MB/s", ".1f"),
    Column("p50_ms", "p50 ms", ".2f"),
    Column("p99_ms", "p99 ms", ".2f"),
    Column("cpu_us", "CPU us"),
)


def measure(nodes: Fleet, groups: list[int], size: int, in_flight: int, options: Options) -> Row:
    """The row of one load: the medians over its runs."""
    load = {"size": size, "in_flight": in_flight, "seconds": options.seconds, "profile": None}
    figures = medians(options.runs, lambda: nodes.load(groups, **load))
    return {"groups": len(groups), "size": size, "in_flight": in_flight, **figures}


def payloads(options: Options, *, fsync: bool = True) -> list[Row]:
    """One group: every payload with every number in flight."""
    rows = [(size, flight) for size in PAYLOADS for flight in IN_FLIGHT if size * flight <= IN_FLIGHT_BYTES_MAX]
    if options.short:
        rows = [(100, 1), (100, 256), (16 << 10, 64)]
    with fleet(fsync=fsync) as nodes:
        nodes.open(1, 1)
        nodes.load([1], size=100, in_flight=64, seconds=0.5, profile=None)  # warm up
        table = Table(f"One group, {'fdatasync before every ack' if fsync else 'NO fdatasync'}", COLUMNS)
        for size, in_flight in rows:
            table.add(measure(nodes, [1], size, in_flight, options))
    return table.rows


def without_fsync(options: Options) -> list[Row]:
    """The same on nodes that do not wait for their disks, which the product never does: what the disk costs."""
    return payloads(options, fsync=False)


def groups(options: Options) -> list[Row]:
    """One load over ever more groups, all led by one node: with 256 in flight over all groups, and with 64 in each."""
    table = Table("By number of groups, all led by one node; in flight: over all groups together", COLUMNS)
    for count in (1, 64) if options.short else GROUPS:
        with fleet() as nodes:
            nodes.open(1, count)
            everyone = list(range(1, count + 1))
            nodes.load(everyone, size=100, in_flight=max(64, count), seconds=0.5, profile=None)
            for in_flight in (IN_FLIGHT_TOGETHER, IN_FLIGHT_EACH * count):
                if in_flight <= IN_FLIGHT_MAX:
                    table.add(measure(nodes, everyone, 100, in_flight, options))
    return table.rows
