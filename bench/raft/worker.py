"""One node of a benchmark, in a process of its own: does what lines of JSON on its stdin ask, and answers each."""

# ruff: noqa: T201  # it answers on stdout

import argparse
import asyncio
import cProfile
import gc
import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from stockade.raft.core.group import Committed, Group
from stockade.raft.host import RaftHost, RaftSettings
from stockade.raft.machine import Image, Machine

NODES = ("n1", "n2", "n3")
GARBAGE_THRESHOLD = 50_000
"""As `stockade serve` sets it: the objects of thousands of proposals in flight are no garbage."""


def resident_mb() -> float:
    """Resident memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Nothing(Machine):
    """A machine that does nothing, so that only replication is measured."""

    bundles = True

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Return the index of the entry."""
        return index

    def start(self, directory: Path) -> None:
        """Nothing is kept."""

    def capture(self) -> Image:
        """There is nothing to keep."""
        return Image(b"", (), lambda: None)

    def restore(self, directory: Path, state: bytes, files: object) -> None:
        """Nothing was kept."""

    def inspect(self, directory: Path, state: bytes, files: object) -> None:
        """Nothing can be damaged."""


class Load:
    """A load: proposals that are kept in flight, spread over groups, and how long each took."""

    def __init__(self, groups: list[Group], size: int, in_flight: int, seconds: float) -> None:
        self._groups = groups
        self._command = os.urandom(size)
        self._in_flight = in_flight
        self._seconds = seconds
        self._latencies: list[float] = []

    async def run(self) -> dict[str, float]:
        """Propose for the given time; return rates and latencies. AssertionError if a proposal is not committed."""
        began = time.perf_counter()
        end = began + self._seconds
        targets = [self._groups[number % len(self._groups)] for number in range(self._in_flight)]
        await asyncio.gather(*[self._keep_one(group, end) for group in targets])
        took = time.perf_counter() - began
        self._latencies.sort()
        count = len(self._latencies)
        return {
            "commits": count,
            "commits_per_s": count / took,
            "mb_per_s": count * len(self._command) / took / 1e6,
            "p50_ms": self._latencies[count // 2] * 1e3,
            "p99_ms": self._latencies[count * 99 // 100] * 1e3,
        }

    async def _keep_one(self, group: Group, end: float) -> None:
        while (began := time.perf_counter()) < end:
            outcome = await group.propose(self._command, 30.0)
            assert isinstance(outcome, Committed), outcome
            self._latencies.append(time.perf_counter() - began)


class Worker:
    """The node, and the commands that it carries out."""

    def __init__(self, host: RaftHost) -> None:
        self._host = host
        self._role_changes = 0
        self._changed: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.commands: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "open": self.open,
            "load": self.load,
            "transfer_leadership": self.transfer_leadership,
            "status": self.status,
            "probe": self.probe,
            "trickle": self.trickle,
        }

    async def open(self, first: int, count: int, founders: dict[str, int], *, spread: bool) -> None:
        """Open groups; the first node leads them all, or each its share (``spread``)."""
        for group_id in range(first, first + count):
            turn = group_id % len(NODES) if spread else 0
            turned = {node: founders[node] for node in (*NODES[turn:], *NODES[:turn])}
            group = self._host.open_group(group_id, turned, Nothing())
            group.on_role_change = self._count

    def _count(self, group: Group) -> None:
        self._role_changes += 1
        self._changed.pop(group.group_id, asyncio.Event()).set()

    async def load(self, groups: list[int], size: int, in_flight: int, seconds: float, profile: str | None) -> Any:
        """Load the groups, and return the figures; None if this node does not lead all of them."""
        mine = [self._host.groups[group_id] for group_id in groups]
        if not all(group.is_leader for group in mine):
            return None
        gc.collect()
        profiler = cProfile.Profile()
        if profile:
            profiler.enable()
        result = await Load(mine, size, in_flight, seconds).run()
        if profile:
            profiler.disable()
            profiler.dump_stats(profile)
        return result

    async def transfer_leadership(self, to: str) -> None:
        """Transfer the leadership of all groups led here to another node; transfers that fail are passed over."""
        mine = [group for group in self._host.groups.values() if group.is_leader]
        await asyncio.gather(*[group.transfer(to, 5.0) for group in mine], return_exceptions=True)

    async def status(self) -> dict[str, Any]:
        """The processor time and memory of this process, and counts over its groups: led here, led, quiescent."""
        groups = self._host.groups.values()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss_mb": resident_mb(),
            "leads": sum(group.is_leader for group in groups),
            "led": sum(group.leader is not None for group in groups),
            "resting": sum(group.is_quiescent for group in groups),
            "terms": sum(group.term for group in groups),
            "role_changes": self._role_changes,
        }

    async def probe(self, groups: list[int], dead: str, seconds: float) -> list[float | None]:
        """When, on the machine's monotonic clock, each group first committed here; None if another node leads it,
        or none does in time. ``dead``: the former leader.
        """
        return await asyncio.gather(*[self._probe(self._host.groups[each], dead, seconds) for each in groups])

    async def _probe(self, group: Group, dead: str, seconds: float) -> float | None:
        """As ``probe``, for one group. Awaits a change of role: polling a thousand groups keeps a node busy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if group.is_leader:
                if isinstance(await group.propose(b"first", end - time.monotonic()), Committed):
                    return time.monotonic()
            elif group.leader not in {None, dead}:
                return None
            else:
                changed = self._changed[group.group_id]
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), end - time.monotonic())
        return None

    async def trickle(self, period_s: float, seconds: float) -> int:
        """Propose to each group that is led here, every ``period_s``; return how many proposals were not committed."""
        failed = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            mine = [group for group in self._host.groups.values() if group.is_leader]
            outcomes = await asyncio.gather(*[group.propose(b"trickle", 10.0) for group in mine])
            failed += sum(not isinstance(outcome, Committed) for outcome in outcomes)
            await asyncio.sleep(period_s)
        return failed


async def serve(arguments: argparse.Namespace) -> None:
    """Start the node, and carry out commands until stdin ends."""
    addresses = {name: ("127.0.0.1", port) for name, port in zip(NODES, arguments.ports, strict=True)}
    failed = asyncio.get_running_loop().create_future()
    settings = RaftSettings(**json.loads(arguments.settings))
    directory = arguments.directory / arguments.node
    host = RaftHost(
        arguments.node, "bench", addresses[arguments.node], addresses, directory, settings, failed.set_exception
    )
    await host.start()
    gc.set_threshold(GARBAGE_THRESHOLD)
    worker = Worker(host)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print(host.incarnation, flush=True)
    while line := await reader.readline():
        name, values = json.loads(line)
        print(json.dumps(await worker.commands[name](**values)), flush=True)
    await host.stop()


def main() -> None:
    """Run a node."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("node", choices=NODES)
    parser.add_argument("--ports", type=int, nargs=3, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--settings", default="{}", help="RaftSettings that differ, as JSON")
    parser.add_argument("--without-fsync", action="store_true", help="a node that forgets: for comparison only")
    arguments = parser.parse_args()
    if arguments.without_fsync:
        os.fdatasync = lambda fd: None
    uvloop.run(serve(arguments))


if __name__ == "__main__":
    main()
