"""Ports for servers that are stopped and started again under the same address."""

import random
import socket
from contextlib import suppress
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
    port while the server is down. No other call on this machine gives one of them out in the next 60 s, so that
    clusters that start at the same time do not meet.
    """
    end = int(_OF_CONNECTIONS.read_text().split()[0])
    if end < LOWEST + TRIES_MAX:  # a machine that is set up for many connections
        end = PORTS
    ports: list[int] = []
    for _ in range(TRIES_MAX):
        if len(ports) == count:
            return ports
        port = random.randrange(LOWEST, end)  # spreads, hides nothing  # noqa: S311  # nosec B311
        with suppress(OSError):
            reserve(port)
            ports.append(port)
    raise OSError(f"{count} free ports were not found between {LOWEST} and {end} in {TRIES_MAX} tries")


def reserve(port: int) -> None:
    """Leave a connection to the port in TIME_WAIT, for 60 s in Linux: meanwhile the port can be bound with SO_REUSEADDR
    alone, as servers do and this function does not. Raises OSError if the port is in use, or reserved.
    """
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for the connection that waits: it needs it, too
        server.listen()
        with socket.create_connection((LOOPBACK, port)):
            accepted, _ = server.accept()
            accepted.close()  # first: the end that closes first is the one that waits
