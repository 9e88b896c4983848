"""The schedule of backups, and their gauges for a monitoring system: in a file for the textfile collector of
Prometheus' node_exporter. The file outlives this process, so when backups no longer run, an alert sees the last one get
old.
"""

import time
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from ...partition.places.place import CannotReach
from .manifest import Manifest

_PREFIX = "stockade_backup_"
GAUGES = {
    "last_success_timestamp_seconds": "When the last backup that succeeded read the ends of the partitions.",
    "last_attempt_timestamp_seconds": "When the last attempt of a backup ended.",
    "last_attempt_failed": "Whether the last attempt failed: 1 or 0.",
    "interval_seconds": "How often a backup is to be made.",
    "seconds": "How long the last backup that succeeded took.",
    "records": "Records that it has.",
    "bytes": "Bytes of its files, those of earlier backups that it uses included.",
}
"""Every gauge, without its prefix, and its meaning."""
INTERVAL_S = 86_400.0
"""The gauge ``interval_seconds`` of a command without --every, which a timer is expected to run: a day."""


class Gauges:
    """The gauges of the backups in a place, written to the file ``path`` if one was named."""

    def __init__(self, path: str | None, interval_s: float) -> None:
        """Begins with the values in the file. Raises CannotReach if the file exists and cannot be read."""
        self._path = None if path is None else Path(path)
        self._values = dict.fromkeys(GAUGES, 0.0)
        if self._path is not None:
            self._values |= _read(self._path)
        self._values["interval_seconds"] = interval_s

    def succeeded(self, made: Manifest) -> None:
        """Record a backup that was made. Raises CannotReach if the file cannot be written."""
        self._values |= {
            "last_success_timestamp_seconds": made.started_ms / 1000,
            "seconds": (made.ended_ms - made.started_ms) / 1000,
            "records": float(made.records),
            "bytes": float(made.size),
        }
        self._write(0.0)

    def failed(self) -> None:
        """Record an attempt that failed. Raises CannotReach if the file cannot be written."""
        self._write(1.0)

    def _write(self, failed: float) -> None:
        if self._path is None:
            return
        self._values |= {"last_attempt_timestamp_seconds": time.time(), "last_attempt_failed": failed}
        registry = CollectorRegistry()
        for name, meaning in GAUGES.items():
            Gauge(f"{_PREFIX}{name}", meaning, registry=registry).set(self._values[name])
        try:
            write_to_textfile(str(self._path), registry)
        except OSError as error:
            raise CannotReach(f"{self._path} cannot be written: {error}") from error


def _read(path: Path) -> dict[str, float]:
    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CannotReach(f"{path} cannot be read: {error}") from error
    known = {sample.name.removeprefix(_PREFIX): sample.value for family in families for sample in family.samples}
    return {name: value for name, value in known.items() if name in GAUGES}


class Schedule(NamedTuple):
    """When `backup create` makes and removes backups. ``every_s`` None: one backup; ``metrics_file``: file of the
    gauges; the others: backups that pruning keeps (all None: no pruning).
    """

    every_s: float | None
    metrics_file: str | None
    keep_last: int | None
    keep_for_s: float | None
    keep_hourly_for_s: float | None = None

    @property
    def prunes(self) -> bool:
        """Whether older backups are removed after new ones."""
        return (self.keep_last, self.keep_for_s, self.keep_hourly_for_s) != (None, None, None)
