"""Tells a service manager the state of this process, by the protocol of sd_notify(3): datagrams to NOTIFY_SOCKET.

The protocol is a few lines, so it is implemented here: systemd's own library needs C headers for its build.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Self

SEND_TIMEOUT_S = 0.2
"""A message is lost if the service manager's socket has no room for it in this time."""
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

_log = logging.getLogger("stockade")


class ServiceManager:
    """The service manager that started this process. ``address``: its socket; None: it takes no messages, so none is
    sent.

    ``watchdog_s``: the service manager kills the process after so long without ``alive``; None: it has no watchdog.
    """

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s: float | None = watchdog_s if address is not None else None

    @classmethod
    def taken(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """The service manager that the environment names. Removes its variables from ``environ``, so that no child of
        this process sends messages in its name.
        """
        address, span, process = (environ.pop(name, None) for name in VARIABLES)
        if not address or address[0] not in "/@":
            return cls()
        is_ours = process is None or process == str(os.getpid())
        watchdog_s = int(span) / 1e6 if span is not None and span.isdecimal() and int(span) > 0 and is_ours else None
        return cls(address, watchdog_s)

    @property
    def alive_every_s(self) -> float | None:
        """Seconds between two calls of ``alive``; None if there is no watchdog."""
        return None if self.watchdog_s is None else self.watchdog_s / 3

    def ready(self, status: str) -> None:
        """Say that the process serves: after its start, or again after ``reloading``. ``status`` is for operators."""
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Say what the process does now, for operators."""
        self._tell(f"STATUS={status}")

    def reloading(self) -> None:
        """Say that the process reads its files again; ``ready`` ends that."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Say that the process is about to end."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def alive(self) -> None:
        """Send the watchdog message: the process does not hang."""
        self._tell("WATCHDOG=1")

    async def stay_alive(self) -> None:
        """Call ``alive`` at intervals while the event loop turns, until cancelled; return if there is no watchdog."""
        while self.alive_every_s is not None:
            self.alive()
            await asyncio.sleep(self.alive_every_s)

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SEND_TIMEOUT_S)
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            _log.warning("the service manager did not take %s: %s", lines[0], error)
