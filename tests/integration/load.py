"""Writers that never stop: what they were acknowledged must be there in the end, once, in order."""

import itertools
import threading
import time
from functools import partial
from types import TracebackType

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Answer, Topic, Writer, call, eventually


class Load:
    """One exclusive, idempotent writer for each partition of a topic; each append is repeated until it is decided.

    ``pauses``: for each call of ``goes_on`` the longest time from one acknowledgement of a partition to the next, since
    the call before, in seconds. A busy machine makes single ones longer.
    """

    def __init__(self, cluster: LocalCluster, topic: Topic, partitions: int) -> None:
        self.topic = topic
        self.written: list[list[str]] = [[] for _ in range(partitions)]
        self.pauses: list[float] = []
        self.faults: list[str] = []
        self._cluster = cluster
        self._longest_s = 0.0
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(partition, self._writer(partition)), daemon=True)
            for partition in range(partitions)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=60)

    def goes_on(self, more: int = 20) -> None:
        """Return when every partition has taken ``more`` batches since the call."""
        wanted = [len(written) + more for written in self.written]
        eventually(lambda: self.faults or all(len(w) >= n for w, n in zip(self.written, wanted, strict=True)), 60)
        assert not self.faults, self.faults
        self.pauses.append(self._longest_s)
        self._longest_s = 0.0

    def check(self) -> None:
        """Nothing acknowledged is missing, nothing is there twice; the outcome of the last append was unknown."""
        assert not self.faults, self.faults
        node = next(node for node in self._cluster.nodes if node.pid is not None)
        for partition, written in enumerate(self.written):
            found = eventually(partial(_values, f"{self.topic.at(node.url).records(partition)}?offset=0"))
            assert found[: len(written)] == written
            assert len(found) <= len(written) + 1

    def _writer(self, partition: int) -> Writer:
        def attempt() -> Writer | None:
            writer = Writer(self.topic, f"w{partition}", [partition])
            return writer if writer.answer.status == 201 else None

        made: Writer = eventually(attempt)
        return made

    def _write(self, partition: int, writer: Writer) -> None:
        nodes = itertools.cycle(list(self._cluster.nodes))
        node = next(nodes)
        last = time.monotonic()
        for number in itertools.count():
            text = f"{partition}/{number}"
            while (answer := _attempt(writer, text, number, partition, self.topic.at(node.url))) is None:
                node = next(nodes)
                if self._stopping.wait(0.02):
                    return
            if answer.status != 200:
                self.faults.append(f"{text}: {answer.status} {answer.body!r}")
                return
            self.written[partition].append(text)
            now = time.monotonic()
            self._longest_s = max(self._longest_s, now - last)
            last = now
            if self._stopping.is_set():
                return


def _values(url: str) -> list[str] | None:
    answer = call("GET", f"{url}&max_bytes=67108864")
    return [record["value"] for record in answer.json["records"]] if answer.status == 200 else None


def _attempt(writer: Writer, text: str, number: int, partition: int, topic: Topic) -> Answer | None:
    """None: the outcome is not known, or it was not the time."""
    try:
        answer = writer.append(text, number, partition, topic)
    except OSError:
        return None
    return None if answer.status >= 500 or answer.status in (404, 421, 429) else answer
