"""The connections that a node takes from clients: how many, from which addresses, and which one goes for a new one.

At a bound the node takes the new connection and closes an idle one: a client opens a connection to send a request at
once, and an attacker who fills a node with connections leaves them idle, or does not read what is answered. The oldest
idle connection of the address with the most goes, one that has never asked before one that has. Only if that address
has none is the new one refused.

Linux gives a new descriptor the lowest free number. So a connection with the number ``n`` shows that the process has
all descriptors below ``n`` in use, for whatever purpose, and no count has to be kept beside the kernel's.
"""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from ...cluster.condition import aligned_s

FIRST_BYTE_S = 10.0
"""Time after which a new connection that has sent nothing is closed."""
HANDSHAKE_S = 10.0
"""Time after which a new HTTPS connection without a whole TLS handshake is closed."""
HEAD_S = 10.0
"""Time, from the first byte of a request's headers, after which the connection ends if they are not whole."""
SWEEP_S = 1.0
"""Between two looks for connections whose time is over."""
LOOKS_MAX = 64
"""Connections of one address that are looked at for an idle one, for one new connection."""
_IPV6_NETWORK_BITS = 64


class ConnectionBounds(NamedTuple):
    """How many connections a node takes from clients, on all its listeners together."""

    connections_max: int
    address_connections_max: int
    """From one IPv4 address, or one /64 network of IPv6: a host has that many addresses."""
    descriptors_max: int
    """Connections with this number or a higher one count as beyond the bound: these descriptors are the log's."""


class Guest(Protocol):
    """A connection, as much as the choice of one depends on it."""

    @property
    def has_asked(self) -> bool:
        """Whether a request has come whole."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered, or none whose client takes the answer."""
        ...

    def overdue(self, now_s: float) -> str | None:
        """Which time is over: ``silent``, ``handshake``, ``head``, ``idle`` or ``stalled``."""
        ...

    def evict(self) -> None:
        """Close the connection now."""
        ...


class _Crowd:
    """The connections of one address, oldest first: those that had not asked when last looked at, and the others."""

    __slots__ = ("asked", "fresh")

    def __init__(self) -> None:
        self.fresh: dict[Guest, None] = {}
        self.asked: dict[Guest, None] = {}

    def __len__(self) -> int:
        return len(self.fresh) + len(self.asked)

    def oldest_idle(self, newest: Guest) -> Guest | None:
        """None: all that were looked at are busy. Each look moves a busy connection behind the others."""
        for guest in list(islice(self.fresh, LOOKS_MAX)):
            if guest.has_asked:
                del self.fresh[guest]
                self.asked[guest] = None
            elif guest is not newest:
                return guest
        for guest in list(islice(self.asked, LOOKS_MAX)):
            if guest.is_idle and guest is not newest:
                return guest
            del self.asked[guest]
            self.asked[guest] = None
        return None


class Connections:
    """The connections of clients that are open now. Each call takes a time that does not grow with their number, but
    for ``sweep``.
    """

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.bounds: ConnectionBounds = bounds
        self.ended: Counter[str] = Counter()
        """Connections that the node ended or refused, by reason."""
        self._crowds: dict[str, _Crowd] = {}
        self._where: dict[Guest, str] = {}
        self._sizes: dict[int, dict[str, None]] = {}  # addresses by how many connections they have
        self._most = 0

    def __len__(self) -> int:
        return len(self._where)

    def opened(self, guest: Guest, host: str, descriptor: int) -> bool:
        """Count a new connection. False: it is refused, and not counted. Another one may have been closed for it."""
        address = network_of(host)
        self._add(guest, address)
        if len(self._crowds[address]) > self.bounds.address_connections_max:
            reason, crowded = "address", address
        elif len(self) > self.bounds.connections_max:
            reason, crowded = "connections", next(iter(self._sizes[self._most]))
        elif descriptor >= self.bounds.descriptors_max:
            reason, crowded = "descriptors", next(iter(self._sizes[self._most]))
        else:
            return True
        victim = self._crowds[crowded].oldest_idle(guest)
        if victim is None:
            self.ended[f"refused_{reason}"] += 1
            self.closed(guest)
            return False
        self._evict(victim, f"evicted_{reason}")
        return True

    def replaced(self, guest: Guest, successor: Guest) -> bool:
        """Count ``successor`` as the newest connection of its address in place of ``guest``, whose descriptor it has.
        False: ``guest`` is counted no more, because it was evicted, and neither is its successor.
        """
        address = self._where.pop(guest, None)
        if address is None:
            return False
        crowd = self._crowds[address]
        crowd.fresh.pop(guest, None)
        crowd.asked.pop(guest, None)
        crowd.fresh[successor] = None
        self._where[successor] = address
        return True

    def closed(self, guest: Guest) -> None:
        """A connection is closed; one that is not counted is ignored."""
        address = self._where.pop(guest, None)
        if address is not None:
            crowd = self._crowds[address]
            crowd.fresh.pop(guest, None)
            crowd.asked.pop(guest, None)
            self._resize(address, len(crowd) + 1, len(crowd))

    def sweep(self, now_s: float) -> None:
        """Close every connection whose time is over."""
        for guest, reason in list(self._overdue(now_s)):
            self._evict(guest, reason)

    async def keep_swept(self) -> None:
        """Sweep until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(aligned_s(SWEEP_S))
            self.sweep(loop.time())

    def _overdue(self, now_s: float) -> Iterator[tuple[Guest, str]]:
        for guest in self._where:
            reason = guest.overdue(now_s)
            if reason is not None:
                yield guest, reason

    def _evict(self, guest: Guest, reason: str) -> None:
        self.ended[reason] += 1
        self.closed(guest)
        guest.evict()

    def _add(self, guest: Guest, address: str) -> None:
        crowd = self._crowds.setdefault(address, _Crowd())
        crowd.fresh[guest] = None
        self._where[guest] = address
        self._resize(address, len(crowd) - 1, len(crowd))

    def _resize(self, address: str, before: int, after: int) -> None:
        if before:
            del self._sizes[before][address]
            if not self._sizes[before]:
                del self._sizes[before]
        if after:
            self._sizes.setdefault(after, {})[address] = None
        else:
            del self._crowds[address]
        if after > self._most or self._most not in self._sizes:
            self._most = after


def network_of(host: str) -> str:
    """The address that a connection counts for: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))
