"""Ports for servers that are stopped and started again under the same address."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 10_000
"""Ports below are left to well-known services."""
PORTS = 65_536
TRIES_MAX = 1_000
_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """``count`` ports of loopback on which no socket listens now. Raises OSError if too few are found.

    None of them is in the kernel's range for outgoing connections, if that leaves enough: a connection may take such a
    port while the server is down.
    """
    end = int(_OF_CONNECTIONS.read_text().split()[0])
    if end < LOWEST + TRIES_MAX:  # a machine that is set up for many connections
        end = PORTS
    with ExitStack() as taken:
        ports: list[int] = []
        for _ in range(TRIES_MAX):
            if len(ports) == count:
                return ports
            port = random.randrange(LOWEST, end)  # spreads, hides nothing  # noqa: S311  # nosec B311
            try:
                taken.enter_context(socket.create_server((LOOPBACK, port)))
            except OSError:
                continue
            ports.append(port)
    raise OSError(f"{count} free ports were not found between {LOWEST} and {end} in {TRIES_MAX} tries")
