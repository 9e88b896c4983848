"""When a command was proposed, known to be committed, and applied: for the few requests that a client traces."""

from collections.abc import Callable
from contextvars import ContextVar

Watch = Callable[[float, float, float], None]
"""Called when a command has its outcome, with three times in seconds on the loop's clock: of its proposal, of the
beginning of the run of applies that followed its commit (its entry is then on the disks of a majority), and of the end
of that run.
"""
WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
"""The watch of the request that this task works on; None: the request is not traced."""
