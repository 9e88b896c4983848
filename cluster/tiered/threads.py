"""The threads that may wait for the store, and whether one of them still waits when the process is to end.

Python waits for the threads of its pools before a process ends, whatever they were told, and nothing can stop a thread
that waits for a disk or a server.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

_NAME = "tiered-"


def threads(count: int, what: str) -> ThreadPoolExecutor:
    """``count`` threads for one kind of work."""
    return ThreadPoolExecutor(count, thread_name_prefix=_NAME + what)


def are_at_work(wait_s: float) -> bool:
    """Whether a thread is left ``wait_s`` after the stores were closed: those that have nothing to do end at once."""
    until = time.monotonic() + wait_s
    found = [thread for thread in threading.enumerate() if thread.name.startswith(_NAME)]
    for thread in found:
        thread.join(max(0.0, until - time.monotonic()))
    return any(thread.is_alive() for thread in found)
