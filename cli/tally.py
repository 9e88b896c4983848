"""What became of an upload: counts, offsets, the first failure; a progress bar on the way and a line at the end."""

from time import perf_counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ..client.batches import Receipt
from ..partition.errors import StockadeError

MEGABYTE = 1_000_000


class Tally:
    """Counts outcomes. A context manager that shows a bar on standard error, if that is a terminal.

    ``bytes_total`` None: nobody knows how much is to come. ``error`` is the first failure.
    """

    def __init__(self, bytes_total: int | None) -> None:
        self.records: int = 0
        self.bytes: int = 0
        self.unknown_records: int = 0
        self.lost_records: int = 0
        self.error: StockadeError | None = None
        self._offsets: dict[int, tuple[int, int]] = {}
        self._began_s = perf_counter()
        self._took_s = 0.0
        console = Console(stderr=True)
        rate = TextColumn("{task.fields[rate]}")
        columns = (BarColumn(), DownloadColumn(), rate, TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("", total=bytes_total, rate="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._took_s = perf_counter() - self._began_s
        self._progress.stop()

    def stored(self, receipt: Receipt, size: int) -> None:
        """A batch of ``size`` bytes is stored."""
        self.records += receipt.count
        self.bytes += size
        if receipt.base_offset is not None and receipt.last_offset is not None:
            first, _ = self._offsets.get(receipt.partition, (receipt.base_offset, 0))
            self._offsets[receipt.partition] = (first, receipt.last_offset)
        rate = self._rate(perf_counter() - self._began_s)
        self._progress.update(self._task, advance=size + receipt.count, rate=rate)

    def failed(self, error: StockadeError, records: int, size: int) -> None:
        """A batch failed; its outcome certificate says whether it is stored all the same."""
        self.error = self.error or error
        state = error.fields.get("outcome", {}).get("state")
        if state == "committed":
            self.records += records
            self.bytes += size
        elif state == "unknown":
            self.unknown_records += records
        else:
            self.lost_records += records

    def summary(self, topic: str) -> str:
        """Records, bytes, seconds, rates, and the offsets in each partition."""
        done = f"{topic}: {self.records:,} records, {self.bytes / MEGABYTE:,.1f} MB in {self._took_s:.2f} s"
        places = [f"  partition {number}: offsets {a}..{z}" for number, (a, z) in sorted(self._offsets.items())]
        return "\n".join([f"{done} ({self._rate(self._took_s)})", *places])

    def facts(self, topic: str) -> dict[str, object]:
        """The same for programs, with what is missing."""
        places = [{"partition": n, "base_offset": a, "last_offset": z} for n, (a, z) in sorted(self._offsets.items())]
        counts = {"records": self.records, "lost_records": self.lost_records, "unknown_records": self.unknown_records}
        return {"topic": topic, **counts, "bytes": self.bytes, "seconds": self._took_s, "partitions": places}

    def shortfall(self) -> str:
        """What is missing, after a failure."""
        unknown = f", of {self.unknown_records:,} it is not known" if self.unknown_records else ""
        return f"Stopped: {self.records:,} records are stored, {self.lost_records:,} that were sent are not{unknown}."

    def _rate(self, seconds: float) -> str:
        seconds = max(seconds, 1e-9)
        return f"{self.records / seconds:,.0f} records/s, {self.bytes / MEGABYTE / seconds:,.1f} MB/s"
