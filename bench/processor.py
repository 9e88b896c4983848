"""Processor time of servers and of this process, read at the same instants as the wall clock."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from figures import Load

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PIDS = "BENCH_PIDS"
"""Environment variable of a load generator: the process ids of the servers, with commas between them."""


def processor_s(pids: Sequence[int]) -> float:
    """Processor time that processes have used until now, in seconds."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


class Watch:
    """A stopwatch of wall clock and processor time, of this process and of the servers in PIDS; it starts when made."""

    def __init__(self) -> None:
        self._pids = [int(pid) for pid in os.environ.get(PIDS, "").split(",") if pid]
        self._servers_s, self._client_s = processor_s(self._pids), time.process_time()
        self.began = time.perf_counter()

    def seconds(self) -> float:
        """Seconds of wall clock since it started."""
        return time.perf_counter() - self.began

    def load(self, count: int) -> Load:
        """The load of ``count`` operations, which took from the start until now."""
        took_s, client_s = self.seconds(), time.process_time() - self._client_s
        return Load(count, took_s, client_s, processor_s(self._pids) - self._servers_s)
