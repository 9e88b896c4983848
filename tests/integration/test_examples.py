"""The examples do what they say, each with two processes that want the same thing."""

import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from child import hearing_ctrl_c

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Topic, call, eventually, expect
from .usage import check_usage

EXAMPLES = Path(__file__).parents[2] / "examples"
LINE_TIMEOUT_S = 60.0


def is_of_spark(example: Path) -> bool:
    """Whether tests/spark runs it: only there Spark is installed."""
    return example.name.startswith(("pipeline_", "spark_"))


class Running:
    """An example at work."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
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
        self._lines.put(None)

    def line(self) -> str:
        """The next line that it prints."""
        line = self._lines.get(timeout=LINE_TIMEOUT_S)
        assert line is not None, "it has ended"
        return line

    def says(self, line: str) -> None:
        """Read on to this line. Warnings of the client may precede it: on a busy machine it stands still."""
        while self.line() != line:
            pass

    def tells(self, words: str) -> str:
        """Read on to the line with these words, as above."""
        while words not in (line := self.line()):
            pass
        return line

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

    with hearing_ctrl_c():
        yield begin
    for each in running:
        each.stop()


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py") if not is_of_spark(path)))
def test_an_example_explains_itself_and_refuses_wrong_arguments(script: str) -> None:
    check_usage(EXAMPLES / script)


def test_a_leader_that_leaves_is_followed_by_the_one_that_waits_with_a_higher_epoch(start: Start) -> None:
    alice = start("leader_election.py", "alice")
    alice.says("alice leads with epoch 1")
    bob = start("leader_election.py", "bob")
    alice.send(signal.SIGINT)
    assert alice.end() == 0
    bob.says("bob leads with epoch 2")


def test_a_standby_goes_on_where_a_stalled_connector_got_to_and_the_zombie_is_refused(
    start: Start, cluster: LocalCluster, tmp_path: Path
) -> None:
    file, topic = tmp_path / "app.log", Topic(cluster.nodes[0].url, "lines")
    lines = [f"line {number}" for number in range(2000)]
    file.write_text("\n".join(lines[:1000]) + "\nline 10", encoding="utf-8")
    one = start("file_connector.py", str(file), "lines", "one")
    one.says("one copies from position 0 with epoch 1")
    two = start("file_connector.py", str(file), "lines", "two")
    eventually(lambda: topic.values(query="offset=0&max_bytes=67108864") == lines[:1000])
    one.send(signal.SIGSTOP)
    with file.open("a", encoding="utf-8") as more:
        more.write("00\n" + "\n".join(lines[1001:]) + "\n")
    position = sum(len(line) + 1 for line in lines[:1000])
    two.says(f"two copies from position {position} with epoch 2")
    eventually(lambda: topic.values(query="offset=0&max_bytes=67108864") == lines)
    one.send(signal.SIGCONT)
    one.tells("one stops: ")
    assert one.end() == 1
    assert topic.values(query="offset=0&max_bytes=67108864") == lines


def test_a_job_that_was_begun_and_not_finished_is_done_by_the_next_worker_and_none_twice(
    start: Start, cluster: LocalCluster
) -> None:
    jobs = [f"job-{number}" for number in range(6)]
    start("job_journal.py", "add", *jobs).says("added 6 jobs")
    first = start("job_journal.py", "work", JOB_SECONDS="0.2")
    first.says("finished job-0")
    start("job_journal.py", "work", JOB_SECONDS="0.01")
    first.send(signal.SIGINT)
    assert first.end() == 0
    journal = Topic(cluster.nodes[0].url, "job-journal")
    eventually(lambda: journal.values().count("finished") >= len(jobs))
    answer = expect(200, call("GET", f"{journal.records(0)}?offset=0&max_bytes=67108864"))
    finished = [record["key"] for record in answer["records"] if record["value"] == "finished"]
    assert finished == [str(offset) for offset in range(len(jobs))]


@pytest.mark.timeout(600)
def test_a_transformation_that_is_killed_and_stalled_at_any_moment_stores_each_word_once(
    start: Start, cluster: LocalCluster
) -> None:
    """Consume, process, produce: the outputs of one input in several partitions, without a transaction."""
    source, target = Topic(cluster.nodes[0].url, "lines-in"), Topic(cluster.nodes[0].url, "words-out")
    source.create()
    chance, lines = Random(7), [f"line{number} is of the {number % 7}. kind" for number in range(2000)]
    zombies: list[Running] = []
    names = (f"process-{number}" for number in itertools.count())
    at_work = start("transform.py", source.name, target.name, next(names))
    stands_by = at_work

    def has_more(than: int) -> bool:
        """Sessions that live for three seconds end when the machine stands still: others stand by then."""
        nonlocal stands_by
        if stands_by.process.poll() is not None:
            stands_by = start("transform.py", source.name, target.name, next(names))
        return words_stored(target) > than

    def until_stored(words: int) -> None:
        """On a busy machine they take minutes, and more come in each."""
        while (stored := words_stored(target)) < words:
            eventually(partial(has_more, stored))

    for strike, fault in enumerate([signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL]):
        at_work.tells(" transforms from input ")
        stands_by = start("transform.py", source.name, target.name, next(names))
        enough = words_stored(target) + chance.randrange(1, 2000)  # of the 3,000 that come
        expect(200, source.append("\n".join(lines[500 * strike : 500 * (strike + 1)])))
        until_stored(enough)
        at_work.send(fault)
        if fault == signal.SIGSTOP:
            zombies.append(at_work)
        at_work = stands_by
    at_work.tells(" transforms from input ")
    for zombie in zombies:
        zombie.send(signal.SIGCONT)
        zombie.tells(" stops: ")
        assert zombie.end() == 1
    stands_by = at_work
    expect(200, source.append("\n".join(lines[1500:])))
    words = [word for line in lines for word in line.split()]
    wanted = [[word for word in words if zlib.crc32(word.encode()) % 4 == number] for number in range(4)]
    until_stored(len(words))
    assert [target.values(number) for number in range(4)] == wanted


def test_a_transformation_reads_a_topic_that_another_program_made_with_settings_of_its_own(
    start: Start, cluster: LocalCluster, tmp_path: Path
) -> None:
    file, target = tmp_path / "app.log", Topic(cluster.nodes[0].url, "connected-words")
    file.write_text("one line of five words\n", encoding="utf-8")
    start("file_connector.py", str(file), "connected", "copier").tells("copies from position 0")
    start("transform.py", "connected", target.name, "one").says("one transforms from input 0 on with epoch 1")
    eventually(lambda: words_stored(target) == 5)


@pytest.mark.parametrize(
    ("example", "source", "target"),
    [("file_connector.py", __file__, "no name of a topic"), ("transform.py", "no name of a topic", "words")],
)
def test_an_example_that_was_refused_says_why_and_not_that_it_was_replaced(
    start: Start, example: str, source: str, target: str
) -> None:
    refused = start(example, source, target, "one")
    assert refused.tells("one stops: ").startswith("one stops: INVALID_REQUEST: name: ")
    assert refused.end() == 1


def words_stored(target: Topic) -> int:
    urls = [f"{target.url}/partitions/{number}/offsets?at=latest" for number in range(4)]
    return sum(expect(200, call("GET", url))["log_end"] for url in urls)
