"""Detects stalls of the event loop and their cause: while the loop stands still, all of a node waits, Raft included.

While requests arrive, a timer on the loop fires every BEAT_S, and a thread watches for a late one. A stall in which the
loop's thread computes was caused by what runs on the loop: the loop was *held*. Otherwise the loop *waited*: the
machine gave its thread no processor or no disk, which is not the fault of a request. A node without requests has no
timer, and no thread that wakes.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import islice
from types import FrameType
from typing import NamedTuple

from ...partition.api.cluster import Stall

BEAT_S = 0.01
STALL_S = 0.02
"""A beat that comes this much later than it was due is a stall."""
AWAKE_S = 1.0
"""Time after the last request for which the loop is watched."""
LONG_WAIT_S = 0.5
"""A stall with so long a wait is logged, too: a leader whose loop stands still for longer loses its groups."""
LOG_EVERY_S = 10.0
"""Least time between two lines in the log; each says how many stalls since the last one were not logged."""
FRAMES_MAX = 12
"""Innermost frames of a stack that are logged."""
KEPT_MAX = 100
"""Number of the latest stalls that are remembered."""
SECONDS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds, in seconds, of the histogram of stalls."""

_log = logging.getLogger(__name__)


class Asked(NamedTuple):
    """A request: its method and route template, the bytes of its body that have been read, and its id."""

    route: str
    body_bytes: int
    id: str

    def __str__(self) -> str:
        return f"{self.route}, {self.body_bytes} bytes, request {self.id}"


class _Seen(NamedTuple):
    """The request, if known, and the stack that the loop's thread was running when the watcher looked."""

    asked: Asked | None
    stack: list[str]

    def __str__(self) -> str:
        return f"{self.asked or 'no request'}; {' < '.join(self.stack)}"


class Stalls:
    """The stalls of one event loop. ``request_of`` finds the request that a frame works on, None if none.

    ``held`` and ``waited`` are histograms over SECONDS, with a last bucket without a bound; ``held_s`` and ``waited_s``
    are their sums. A stall in which the loop first computed and then waited counts in both.
    """

    def __init__(self, request_of: Callable[[FrameType], Asked | None]) -> None:
        self.held: list[int] = [0] * (len(SECONDS) + 1)
        self.waited: list[int] = [0] * (len(SECONDS) + 1)
        self.held_s: float = 0.0
        self.waited_s: float = 0.0
        self._request_of = request_of
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._is_closed = False
        self._is_awake = False
        self._until = 0.0
        self._beat_at = 0.0
        self._cpu_s = 0.0
        self._seen: _Seen | None = None
        self._kept: deque[Stall] = deque(maxlen=KEPT_MAX)
        self._logged_at = float("-inf")
        self._unlogged = 0

    def touch(self) -> None:
        """Watch the loop for AWAKE_S more. Called on the loop for every request."""
        self._until = time.monotonic() + AWAKE_S
        if not self._is_awake and not self._is_closed:
            self._is_awake = True
            if self._thread is None:
                self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
                self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)
                self._thread.start()
            self._begin_beat()
            self._wake.set()

    def latest(self, count: int) -> list[Stall]:
        """At most ``count`` of the KEPT_MAX remembered stalls in which the loop was held, the latest first."""
        return list(islice(reversed(self._kept), count))

    def close(self) -> None:
        """Stop watching, and wait for the thread to end."""
        self._is_closed, self._is_awake = True, False
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _begin_beat(self) -> None:
        assert self._loop is not None
        self._seen = None
        self._beat_at, self._cpu_s = time.monotonic(), time.thread_time()
        self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        """On the loop: note a beat that is late. The thread's processor time tells how much of it the loop was held."""
        now = time.monotonic()
        late_s = now - self._beat_at - BEAT_S
        if late_s >= STALL_S:
            self._note(late_s, time.thread_time() - self._cpu_s)
        self._is_awake = self._is_awake and now < self._until
        if self._is_awake:
            self._begin_beat()

    def _note(self, late_s: float, cpu_s: float) -> None:
        held_s = min(late_s, cpu_s)  # the rest is a wait: on a busy machine a loop that computes waits, too
        waited_s = late_s - held_s
        if waited_s >= STALL_S:
            self.waited[bisect_left(SECONDS, waited_s)] += 1
            self.waited_s += waited_s
        if held_s >= STALL_S:
            self.held[bisect_left(SECONDS, held_s)] += 1
            self.held_s += held_s
            self._keep(held_s)
        if held_s >= STALL_S or waited_s >= LONG_WAIT_S:
            self._log(held_s, waited_s)

    def _log(self, held_s: float, waited_s: float) -> None:
        now = time.monotonic()
        if now < self._logged_at + LOG_EVERY_S:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} stalls before this one were not logged" if self._unlogged else ""
        seen = self._seen or "what ran was over before its stack was looked at"
        _log.warning(
            "the event loop stood still: it computed for %.0f ms and waited %.0f ms for a processor or a disk%s: %s",
            held_s * 1000,
            waited_s * 1000,
            more,
            seen,
        )
        self._logged_at, self._unlogged = now, 0

    def _keep(self, held_s: float) -> None:
        asked, stack = self._seen or (None, [])
        route, body_bytes, request = asked or (None, None, None)
        self._kept.append(Stall(int(time.time() * 1000), int(held_s * 1000), route, body_bytes, request, stack))

    def _watch(self) -> None:
        """In the watcher's thread: record the stack of a loop whose beat is late, once for each stall."""
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            while self._is_awake:
                time.sleep(STALL_S)
                if self._seen is None and time.monotonic() - self._beat_at > BEAT_S + STALL_S:
                    self._seen = self._look()

    def _look(self) -> _Seen:
        try:
            return self._described()
        except Exception as error:  # the loop's thread runs on meanwhile, so its objects may be half made
            return _Seen(None, [f"its stack changed while it was looked at ({error!r})"])

    def _described(self) -> _Seen:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return _Seen(None, ["its thread is gone"])
        stack = traceback.extract_stack(frame)[-FRAMES_MAX:]
        request, here = None, frame
        while request is None and here is not None:
            request, here = self._request_of(here), here.f_back  # type: ignore[assignment]
        return _Seen(request, [f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(stack)])
