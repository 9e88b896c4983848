"""Tells a service manager how far this process is, by the protocol of sd_notify(3): datagrams to NOTIFY_SOCKET.

Written out here, since it is a few lines, and the library that comes with systemd needs its C headers to be built.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Self

SEND_TIMEOUT_S = 0.2
"""A message that the service manager has no room for in this time is lost."""
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

_log = logging.getLogger("stockade")


class ServiceManager:
    """The service manager that started this process, if it wants to hear of it: without ``address`` nothing is sent.

    ``watchdog_s``: the process is killed when it has not been ``alive`` for so long; None: it is not watched.
    """

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s: float | None = watchdog_s if address is not None else None

    @classmethod
    def taken(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """The one that the environment names. Its variables are taken away: what this process starts does not speak
        for it.
        """
        address, span, process = (environ.pop(name, None) for name in VARIABLES)
        if not address or address[0] not in "/@":
            return cls()
        is_ours = process is None or process == str(os.getpid())
        watchdog_s = int(span) / 1e6 if span is not None and span.isdecimal() and int(span) > 0 and is_ours else None
        return cls(address, watchdog_s)

    @property
    def alive_every_s(self) -> float | None:
        """How often to say ``alive``; None: never."""
        return None if self.watchdog_s is None else self.watchdog_s / 3

    def ready(self, status: str) -> None:
        """The process serves: as it began, or again after ``reloading``. ``status`` is for people."""
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """What the process does now, for people."""
        self._tell(f"STATUS={status}")

    def reloading(self) -> None:
        """Files are read again, until ``ready``."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """The process is about to end."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def alive(self) -> None:
        """The process has not hung."""
        self._tell("WATCHDOG=1")

    async def stay_alive(self) -> None:
        """Say so for as long as the event loop turns, until cancelled."""
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
