"""The sink of Spark's tests: as it is, but its driver, or a task of it, dies at a request of the test's choice.

A module of its own at the top, because Spark's workers import it by name.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from stockade.client.plain_http import PlainAnswer, PlainHttp
from stockade.spark.sink.options import parse_write_options
from stockade.spark.sink.writer import StockadeStreamWriter
from stockade.spark.source import StockadeSource


class Plan:
    """``folder`` says where to die: at request ``number`` of a commit, before or after it was sent; once."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    @contextmanager
    def dying(self) -> Iterator[None]:
        """Count this process's requests."""
        wanted = self._read("commit")
        original, sent = PlainHttp.request, 0

        def request(http: PlainHttp, *args: Any) -> PlainAnswer:
            nonlocal sent
            sent += 1
            if [f"{sent}", "before"] == wanted:
                self._die()
            answer = original(http, *args)
            if [f"{sent}", "after"] == wanted:
                self._die()
            return answer

        PlainHttp.request = request  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            PlainHttp.request = original  # type: ignore[method-assign]
            (self._folder / "requests").write_text(str(sent))

    def task(self, place: str) -> None:
        """Fail the first attempts of tasks, before or after they have staged."""
        if self._read("task") == [place] and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError(f"a task fails {place} staging")

    def _read(self, name: str) -> list[str]:
        path = self._folder / name
        return path.read_text().split() if path.exists() else []

    def _die(self) -> None:
        (self._folder / "commit").unlink()
        (self._folder / "died").touch()
        group = self._read("group")
        os.killpg(int(group[0]), signal.SIGKILL) if group else os._exit(9)


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


class DyingSource(StockadeSource):
    """``format("dying")``; option ``plan``."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # noqa: N802
        options = {name: value for name, value in self.options.items() if name.lower() != "plan"}
        return DyingWriter(parse_write_options(options, "stream"), self.options["plan"])
