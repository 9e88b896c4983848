"""When a command was proposed, known to be committed, and applied: for those few requests that someone traces."""

from collections.abc import Callable
from contextvars import ContextVar

Watch = Callable[[float, float, float], None]
"""Called when a command has its outcome: when it was proposed, when the run of applies began that its commit let begin
(its entry is then on the disks of a majority), and when that run had ended; seconds on the loop's clock.
"""
WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
"""Of the request that this task works on; None: nobody traces it."""
