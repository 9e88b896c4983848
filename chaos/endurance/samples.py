"""Samples of what a node uses: memory and descriptors from /proc, the rest from its /metrics."""

import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

METRICS_TIMEOUT_S = 2.0
QUANTILE = 0.99
_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)\Z")
_LE = re.compile(r'\ble="([^"]+)"')
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Passes over a proxy that the environment names: that is for other hosts, and the nodes run on this one."""


class Sample(msgspec.Struct, frozen=True):
    """One node at one time (monotonic clock). Counters count from the start of its process, ``pid``. If ``leads`` is
    None, the node did not answer the request for its metrics, and only memory and descriptors are known.
    """

    at_ns: int
    node: str
    pid: int
    memory_bytes: int
    """Resident memory of the process and its children."""
    descriptors: int
    disk_bytes: int | None = None
    """Bytes of the write-ahead log and of the segments."""
    leads: int | None = None
    records: int = 0
    stalled_s: float = 0.0
    """Seconds in which the event loop stood still."""
    appends: tuple[int, ...] = ()
    """Number of appends answered within each bound of ``bounds_s``; the last item counts all of them."""
    bounds_s: tuple[float, ...] = ()
    """Bounds of the histogram of appends. The last one, infinity, is left out: JSON has no such number."""


def used(pid: int) -> tuple[int, int]:
    """Resident bytes of a process and its children, and the number of descriptors of the process itself. Raises OSError
    if it has ended.
    """
    pids = [pid, *_children(pid)]
    return sum(map(_resident, pids)), len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _children(pid: int) -> Sequence[int]:
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in lists for child in text.split()]


def _resident(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def sample(node: str, pid: int, url: str) -> Sample | None:
    """A sample of the node now; None if its process has ended."""
    at_ns = time.monotonic_ns()
    try:
        memory, descriptors = used(pid)
    except OSError:
        return None
    try:
        # A node of this machine, by the address that it was started with.
        with _DIRECT.open(f"{url}/metrics", timeout=METRICS_TIMEOUT_S) as answer:  # nosec B310
            text = answer.read().decode()
    except OSError:
        return Sample(at_ns, node, pid, memory, descriptors)
    return _told(Sample(at_ns, node, pid, memory, descriptors), text)


def _told(found: Sample, text: str) -> Sample:
    """``found``, completed from ``text``, the answer of the node's /metrics."""
    sums: dict[str, float] = {}
    leads, buckets = 0, dict[float, int]()
    for line in text.splitlines():
        if (parts := _LINE.match(line)) is None:
            continue
        name, labels, value = parts[1], parts[2] or "", float(parts[3])
        sums[name] = sums.get(name, 0.0) + value
        if name == "stockade_raft_groups" and 'role="leader"' in labels:
            leads += int(value)
        if name == "stockade_http_request_seconds_bucket" and "/records" in labels and 'method="POST"' in labels:
            bound = float(_LE.findall(labels)[0])
            buckets[bound] = buckets.get(bound, 0) + int(value)
    ordered = sorted(buckets)
    return msgspec.structs.replace(
        found,
        disk_bytes=int(sums.get("stockade_log_wal_bytes", 0) + sums.get("stockade_log_segment_bytes", 0)),
        leads=leads,
        records=int(sums.get("stockade_appended_records_total", 0)),
        stalled_s=sums.get("stockade_loop_stall_seconds_sum", 0.0),
        appends=tuple(buckets[bound] for bound in ordered),
        bounds_s=tuple(ordered[:-1]),
    )


class Rates(msgspec.Struct, frozen=True):
    """Rates between two samples of one process."""

    records_per_s: float
    stalled_share: float
    """The share of the time, 0 to 1, in which the event loop stood still."""
    append_s: float | None
    """The least bound of the histogram within which 99 % of the appends were answered, or its greatest finite one; None
    if none was answered.
    """


def between(before: Sample, after: Sample) -> Rates | None:
    """The rates from ``before`` to ``after``; None if they are of two processes, or one of them has no metrics."""
    if before.pid != after.pid or before.leads is None or after.leads is None:
        return None
    seconds = max(after.at_ns - before.at_ns, 1) / 1e9
    records, stalled = after.records - before.records, after.stalled_s - before.stalled_s
    return Rates(records / seconds, min(stalled / seconds, 1.0), _quantile_s(before, after))


def _quantile_s(before: Sample, after: Sample) -> float | None:
    first = before.appends or (0,) * len(after.appends)
    if len(first) != len(after.appends):
        return None
    counts = [late - early for early, late in zip(first, after.appends, strict=True)]
    if not counts or counts[-1] <= 0:
        return None
    wanted = QUANTILE * counts[-1]
    within = (bound for bound, count in zip(after.bounds_s, counts, strict=False) if count >= wanted)
    return next(within, after.bounds_s[-1] if after.bounds_s else None)


def by_node(samples: Sequence[Sample]) -> Mapping[str, Sequence[Sample]]:
    """The samples of each node, in their order."""
    found: dict[str, list[Sample]] = {}
    for each in samples:
        found.setdefault(each.node, []).append(each)
    return dict(sorted(found.items()))
