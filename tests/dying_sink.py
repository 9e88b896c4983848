"""The sink of Spark's tests: as it is, but its driver, or a task of it, dies at a request of the test's choice.

A module of its own at the top, because Spark's workers import it by name.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from stockade.client.blocking.http import PlainAnswer, PlainHttp
from stockade.spark.data_source import StockadeSource
from stockade.spark.sink.options import parse_write_options
from stockade.spark.sink.writer import StockadeStreamWriter

SLOW_S = 150
"""A slow task stages after this time even if Spark does not run it a second time."""


class Plan:
    """``folder`` says where to die, once. ``commit``: at which request of a commit, by its number or by what it is and
    how often that came, before or after it was sent. ``task``: a task fails. ``task-kill``: the driver dies of a task.
    ``slow``: the first task does not stage before a second attempt of it has.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    @contextmanager
    def dying(self) -> Iterator[None]:
        """Count this process's requests."""
        original, sent = PlainHttp.request, Counter[str]()

        def request(http: PlainHttp, *args: Any) -> PlainAnswer:
            name = step(args[1], args[2], args[4] if len(args) > 4 else None)
            sent.update(["any", name])
            self._at("any", sent, "before", name)
            self._at(name, sent, "before", name)
            answer = original(http, *args)
            self._at("any", sent, "after", name)
            self._at(name, sent, "after", name)
            return answer

        PlainHttp.request = request  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            PlainHttp.request = original  # type: ignore[method-assign]
            (self._folder / "requests").write_text(str(sent.total() // 2))

    def returned(self) -> None:
        """The commit is over, and Spark has not noted it yet."""
        if self._read("commit") == ["returned"]:
            self._die("returned")

    def task(self, place: str) -> None:
        """Fail the first attempts of tasks, before or after they have staged; or take the driver along; or be slow."""
        if (self._folder / "slow").exists() and TaskContext.get().partitionId() == 0:
            self._slow(place)
        if self._read("task-kill") == [place]:
            (self._folder / "task-kill").unlink(missing_ok=True)
            self._kill(f"task {place} staging")
        if self._read("task") == [place] and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError(f"a task fails {place} staging")

    def _slow(self, place: str) -> None:
        both, is_first = self._folder / "died", TaskContext.get().attemptNumber() == 0
        if place == "after" and not is_first:
            both.write_text("a second attempt has staged")
        deadline = time.monotonic() + SLOW_S
        while place == "before" and is_first and not both.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if place == "after" and is_first and both.exists():
            (self._folder / "first").touch()

    def _at(self, what: str, sent: Counter[str], when: str, name: str) -> None:
        if self._read("commit") == [what, str(sent[what]), when]:
            self._die(name)

    def _read(self, name: str) -> list[str]:
        try:
            return (self._folder / name).read_text().split()
        except FileNotFoundError:
            return []

    def _die(self, name: str) -> None:
        (self._folder / "commit").unlink()
        self._kill(name)

    def _kill(self, name: str) -> None:
        (self._folder / "died").write_text(name)
        if victim := self._read("leader"):  # the cluster's, and not the driver
            os.kill(int(victim[0]), signal.SIGKILL)
        elif (self._folder / "executor").exists():  # a worker's parent is its daemon, whose parent the executor
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        elif group := self._read("group"):
            os.killpg(int(group[0]), signal.SIGKILL)
        else:
            os._exit(9)


def _parent(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat[stat.rindex(")") + 1 :].split()[1])


def step(method: str, path: str, body: bytes | None) -> str:
    """What a request of a commit is for."""
    if path.startswith("/v1/producers"):
        return "enter" if method == "POST" else "sequences"
    if "/stages/" in path:
        return "append"
    if "/stages" in path:
        return "list" if body is None else "keep" if b'"keep"' in body else "delete"
    if path.endswith("/records") and body is not None:  # a record of the control partition
        return str(json.loads(json.loads(body)["records"][0]["value"])["kind"])
    return "look"


class DyingWriter(StockadeStreamWriter):
    def __init__(self, options: Any, plan: str) -> None:
        super().__init__(options)
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        Plan(self._plan).task("before")
        staged = super().write(iterator)
        Plan(self._plan).task("after")
        return staged

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        with Plan(self._plan).dying():
            super().commit(messages, batchId)
            Plan(self._plan).returned()


class DyingSource(StockadeSource):
    """``format("dying")``; option ``plan``."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # noqa: N802
        options = {name: value for name, value in self.options.items() if name.lower() != "plan"}
        return DyingWriter(parse_write_options(options, "stream"), self.options["plan"])
