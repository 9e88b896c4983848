"""The examples do what they say, each with two processes that want the same thing."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stockade.cli.local_cluster import LocalCluster

from .api import Topic, call, eventually, expect

EXAMPLES = Path(__file__).parents[2] / "examples"
LINE_TIMEOUT_S = 60.0


class Running:
    """An example at work."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line.strip())

    def line(self) -> str:
        """The next line that it prints."""
        return self._lines.get(timeout=LINE_TIMEOUT_S)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(LINE_TIMEOUT_S)


Start = Callable[..., Running]


@pytest.fixture
def start(cluster: LocalCluster) -> Iterator[Start]:
    running: list[Running] = []
    urls = ",".join(node.url for node in cluster.nodes)
    paths = os.pathsep.join(sys.path)

    def begin(example: str, *arguments: str, **environment: str) -> Running:
        command = [sys.executable, str(EXAMPLES / example), *arguments]
        running.append(Running(command, os.environ | {"STOCKADE_URL": urls, "PYTHONPATH": paths} | environment))
        return running[-1]

    yield begin
    for each in running:
        each.stop()


def test_a_leader_that_leaves_is_followed_by_the_one_that_waits_with_a_higher_epoch(start: Start) -> None:
    alice = start("leader_election.py", "alice")
    assert alice.line() == "alice leads with epoch 1"
    bob = start("leader_election.py", "bob")
    alice.send(signal.SIGINT)
    assert alice.end() == 0
    assert bob.line() == "bob leads with epoch 2"


def test_a_standby_goes_on_where_a_stalled_connector_got_to_and_the_zombie_is_refused(
    start: Start, cluster: LocalCluster, tmp_path: Path
) -> None:
    file, topic = tmp_path / "app.log", Topic(cluster.nodes[0].url, "lines")
    lines = [f"line {number}" for number in range(2000)]
    file.write_text("\n".join(lines[:1000]) + "\nline 10", encoding="utf-8")
    one = start("file_connector.py", str(file), "lines", "one")
    assert one.line() == "one copies from position 0 with epoch 1"
    two = start("file_connector.py", str(file), "lines", "two")
    eventually(lambda: topic.values(query="offset=0&max_bytes=67108864") == lines[:1000])
    one.send(signal.SIGSTOP)
    with file.open("a", encoding="utf-8") as more:
        more.write("00\n" + "\n".join(lines[1001:]) + "\n")
    position = sum(len(line) + 1 for line in lines[:1000])
    assert two.line() == f"two copies from position {position} with epoch 2"
    eventually(lambda: topic.values(query="offset=0&max_bytes=67108864") == lines)
    one.send(signal.SIGCONT)
    assert "one was replaced" in one.line()
    assert one.end() == 1
    assert topic.values(query="offset=0&max_bytes=67108864") == lines


def test_a_job_that_was_begun_and_not_finished_is_done_by_the_next_worker_and_none_twice(
    start: Start, cluster: LocalCluster
) -> None:
    jobs = [f"job-{number}" for number in range(6)]
    assert start("job_journal.py", "add", *jobs).line() == "added 6 jobs"
    first = start("job_journal.py", "work", JOB_SECONDS="0.2")
    assert first.line() == "finished job-0"
    start("job_journal.py", "work", JOB_SECONDS="0.01")
    first.send(signal.SIGINT)
    assert first.end() == 0
    journal = Topic(cluster.nodes[0].url, "job-journal")
    eventually(lambda: journal.values().count("finished") >= len(jobs))
    answer = expect(200, call("GET", f"{journal.records(0)}?offset=0&max_bytes=67108864"))
    finished = [record["key"] for record in answer["records"] if record["value"] == "finished"]
    assert finished == [str(offset) for offset in range(len(jobs))]
