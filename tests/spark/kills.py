"""Kills what copies a topic by Spark, at every step of it, with SIGKILL; then counts what is missing or there twice.

python -m tests.spark.kills [--first N] [--last N] [--executors]

Each point gets a driver of its own, a process group with its JVM, which goes on from the checkpoint that the one before
it left behind; the query is computed differently each time. ``--executors`` kills an executor of a local cluster too,
and has a slow task run twice. Prints a table, and exits with 1 if the copy is not exact, or a point was not reached.
The whole takes about 10 minutes on two cores.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
PATHS = [str(ROOT / folder) for folder in ("src", "tests", "tools", "")]
sys.path[:0] = PATHS

from integration.api import Topic, eventually  # noqa: E402 (run as a script)

from stockade.cli.local_cluster.cluster import LocalCluster  # noqa: E402

from .standalone import standalone  # noqa: E402
from .surroundings import environment, spark_home  # noqa: E402
from .topics import append, numbered  # noqa: E402

ROWS_PER_BATCH = 40
LIMIT_S = 600
SOURCE, TARGET, PARTITIONS = "kills-in", "kills-out", 2


class Point(NamedTuple):
    """``plan`` is the file of the plan that says so, and ``text`` what it says."""

    name: str
    plan: str
    text: str
    victim: str = "driver"


POINTS = [
    Point("before a task stages", "task-kill", "before"),
    Point("after a task has staged", "task-kill", "after"),
    Point("before the first request of a commit", "commit", "any 1 before"),
    Point("before it enters as the present run", "commit", "enter 1 before"),
    Point("entered, not announced", "commit", "enter 1 after"),
    Point("announced", "commit", "run 1 after"),
    Point("before stages are kept", "commit", "keep 1 before"),
    Point("some stages are kept", "commit", "keep 1 after"),
    Point("all kept, not decided", "commit", "manifest 1 before"),
    Point("decided", "commit", "manifest 1 after"),
    Point("before the first append", "commit", "append 1 before"),
    Point("first append, answer lost", "commit", "append 1 after"),
    Point("in the middle of the appends", "commit", "append 2 before"),
    Point("second append, answer lost", "commit", "append 2 after"),
    Point("all appended, not done", "commit", "done 1 before"),
    Point("done, nothing deleted", "commit", "done 1 after"),
    Point("some stages are deleted", "commit", "delete 1 after"),
    Point("committed, Spark has not noted it", "commit", "returned"),
    Point("leader of the target is killed before a keep", "commit", "keep 1 before", "leader"),
    Point("leader of the target is killed after the decision", "commit", "manifest 1 after", "leader"),
    Point("leader of the target is killed amid the appends", "commit", "append 1 after", "leader"),
]
EXECUTORS = [
    Point("an executor is lost after a task has staged", "task-kill", "after", "executor"),
    Point("a slow task is run a second time, and both attempts stage", "slow", "", "nobody"),
]


class Kills:
    """One copy, and everything that happens to it."""

    def __init__(self, cluster: LocalCluster, folder: Path, points: list[Point]) -> None:
        self._cluster, self._folder, self._points = cluster, folder, points
        self._node = cluster.nodes[0].url
        self._runs = self._missed = 0
        self._home = spark_home(folder / "spark")
        for name in (SOURCE, TARGET):
            Topic(self._node, name).create(partitions=PARTITIONS)

    def _grow(self) -> None:
        """Rows for two more micro-batches."""
        start = ROWS_PER_BATCH * self._runs
        for partition in range(PARTITIONS):
            append(Topic(self._node, SOURCE), partition, numbered(partition, start, start + ROWS_PER_BATCH))

    def run(self) -> bool:
        """Whether every point was reached, and the copy is exact."""
        for point in self._points:
            began = time.monotonic()
            outcome = self._one(point)
            tell(f"| {point.victim} | {point.name} | {outcome} | {time.monotonic() - began:.0f} s |")
        assert self._driver("local[2]", "no-plan") == 0
        self._cluster.wait_ready()
        want, got = self._values(SOURCE), self._values(TARGET)
        lost, doubled = (want - got).total(), (got - want).total()
        tell(
            f"{self._runs} runs, {got.total()} rows, {doubled} duplicates, {lost} losses, {self._missed} points missed"
        )
        return not lost and not doubled and not self._missed

    def _one(self, point: Point) -> str:
        plan = self._folder / f"plan-{self._runs}"  # tasks of a driver that was killed may still look into theirs
        plan.mkdir()
        if point.victim == "leader":
            (plan / "leader").write_text(str(self._leader()))
        if point.victim == "executor":
            (plan / "executor").touch()
        (plan / point.plan).write_text(point.text)
        self._cluster.wait_ready()
        self._grow()
        with self._spark(point) as master:
            code = self._driver(master, plan.name)
        if not (plan / "died").exists():
            self._missed += 1
            return f"not reached (exit {code}) {self._log() if code else ''}"
        expected = -signal.SIGKILL if point.victim == "driver" else 0
        assert code == expected, f"{point.name}: the driver ended with {code}: {self._log()}"
        if point.victim == "nobody":
            return "two attempts" + (", both have staged" if (plan / "first").exists() else ", the first was ended")
        return "killed" if point.victim == "driver" else "killed; the query went on"

    def _spark(self, point: Point) -> AbstractContextManager[str]:
        """The master to use."""
        if point.victim == "nobody":
            return standalone(self._folder, os.pathsep.join(PATHS))
        return nullcontext("local-cluster[2,1,1024]" if point.victim == "executor" else "local[2]")

    def _driver(self, master: str, plan: str) -> int:
        self._runs += 1
        urls = ",".join(node.url for node in self._cluster.nodes)
        words = [master, str(self._folder), plan, SOURCE, TARGET, urls]
        paths = {"PYTHONPATH": os.pathsep.join(PATHS), "SPARK_HOME": self._home}
        with (self._folder / "driver.log").open("wb") as log:
            command = [sys.executable, "-m", "tests.spark.killed_driver", *words]
            process = subprocess.Popen(
                command, env=environment(**paths), cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
            try:
                return process.wait(LIMIT_S)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise

    def _log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]

    def _leader(self) -> int:
        """Process of the leader of the target's first partition."""
        leader = eventually(Topic(self._node, TARGET).leader, 60)
        return next(node.pid for node in self._cluster.nodes if node.name == leader and node.pid is not None)

    def _values(self, name: str) -> Counter[str]:
        topic = Topic(self._node, name)
        return Counter(value for partition in range(PARTITIONS) for value in topic.values(partition))


def tell(line: str) -> None:
    """Print at once: this may be killed itself."""
    print(line, flush=True)  # noqa: T201


def main() -> None:
    """Kill, count, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="number of the first point")
    parser.add_argument("--last", type=int, default=len(POINTS), help="number of the last point")
    parser.add_argument("--executors", action="store_true")
    given = parser.parse_args()
    points = POINTS[given.first - 1 : given.last] + (EXECUTORS if given.executors else [])
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder) / "nodes", port_base=0) as cluster:
        (Path(folder) / "copy").mkdir()
        sys.exit(0 if Kills(cluster, Path(folder) / "copy", points).run() else 1)


if __name__ == "__main__":
    main()
