"""The log of a node: the format of its lines, and their level, which SIGUSR1 changes while the node runs."""

import json
import logging
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
OURS = "stockade"
"""The logger above all loggers of Stockade. Loggers of libraries stay at INFO."""

_log = logging.getLogger(OURS)


class JsonLines(logging.Formatter):
    """Formats each line as one JSON object: time (UTC), level, node, logger, message; ``exception`` with the traceback;
    and the fields of ``record.event``, which a program reads in place of the message.
    """

    def __init__(self, node_id: str) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        """The line for a record of the log."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {
            "time": time,
            "level": record.levelname,
            "node": self._node_id,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line | getattr(record, "event", {}), ensure_ascii=False, default=str)


@contextmanager
def logging_to_stderr(level: str, line_format: Format, node_id: str, *, is_one_of_many: bool) -> Iterator[None]:
    """Inside the block the process logs to stderr at ``level``; each SIGUSR1 turns DEBUG on, or off again.

    ``is_one_of_many``: text lines name the node.
    """
    name = f" {node_id}" if is_one_of_many else ""
    text = logging.Formatter(f"%(asctime)s %(levelname)s{name} %(name)s: %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(node_id) if line_format == "json" else text)
    wanted = logging.getLevelNamesMapping()[level.upper()]

    def switch(*_: object) -> None:
        other = logging.DEBUG if _log.level != logging.DEBUG else (wanted if wanted != logging.DEBUG else logging.INFO)
        _log.setLevel(other)
        # Logged at any level: the operator who sent the signal looks for this line.
        _log.log(max(other, logging.INFO), "SIGUSR1: the log has lines from %s on", logging.getLevelName(other))

    root = logging.getLogger()
    before = root.level, _log.level, signal.signal(signal.SIGUSR1, switch)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    _log.setLevel(wanted)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        _log.setLevel(before[1])
        signal.signal(signal.SIGUSR1, before[2])
