"""What the groups of a host see of their node: implements ports.Surroundings over the real log, network and clock."""

import asyncio
import random
from collections.abc import Callable

from .frames import encode
from .messages import RaftMessage
from .ports import Timer
from .settings import RaftSettings
from .transport import Transport
from .wakes import Wakes
from .wal import Wal

APPLY_SLICE_S = 0.005


class Surrounded:
    """What the groups see of their node."""

    def __init__(
        self,
        node_id: str,
        incarnation: int,
        loop: asyncio.AbstractEventLoop,
        log: Wal,
        transport: Transport,
        settings: RaftSettings,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.log = log
        self.failure: BaseException | None = None
        self.fail = fail
        self.time: Callable[[], float] = loop.time
        self.call_soon: Callable[..., object] = loop.call_soon
        self.call_at: Callable[..., Timer] = loop.call_at
        self.rng: Callable[[], float] = random.Random(random.SystemRandom().getrandbits(128)).random  # noqa: S311  # spreads, hides nothing
        self.fetch_checkpoint: Callable[[int, str, int], None] = lambda *_: None
        self._transport = transport
        self._unsynced_bytes_max = settings.unsynced_bytes_max
        self._is_sliced = False
        self._slice_left_s = 0.0
        self._apply_began = 0.0
        self._wakes = Wakes()
        self._encoded: tuple[int, RaftMessage, bytes] | None = None
        log.on_durable = self.disk_moved_on

    def send(self, node_id: str, group_id: int, message: RaftMessage) -> bool:
        """Send to a node. What goes to several nodes is encoded once."""
        if self.failure is not None:
            return False
        last = self._encoded
        if last is None or last[1] is not message or last[0] != group_id:
            last = self._encoded = group_id, message, encode(group_id, message)
        return self._transport.send(node_id, last[2])

    def heard_at(self, node_id: str) -> float:
        """When a connected node gave its last sign of life."""
        return self._transport.pulses.heard_at(node_id)

    def log_is_full(self) -> bool:
        """Whether too much waits for the disk."""
        return self.log.pending_bytes > self._unsynced_bytes_max

    def apply_until(self) -> float:
        """All groups share one slice of a turn of the loop, so that catching up delays nobody's heartbeats.

        Only applies use it up: what else a turn has to do for many groups must not cut their applies into pieces.
        """
        if not self._is_sliced:
            self._is_sliced = True
            self._slice_left_s = APPLY_SLICE_S
            self.call_soon(self._end_slice)
        self._apply_began = self.time()
        return self._apply_began + self._slice_left_s

    def applied(self) -> None:
        """A group has stopped applying."""
        self._slice_left_s -= self.time() - self._apply_began

    def _end_slice(self) -> None:
        self._is_sliced = False

    def wake_when_durable(self, wake: Callable[[], None]) -> None:
        """Call once, when all that is in the log now is on disk."""
        self._wakes.add(wake, self.log.lsn)

    def disk_moved_on(self) -> None:
        """A disk sync is done: wake whoever waits for one."""
        self._wakes.call(self.log.durable_lsn)
