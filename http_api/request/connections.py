"""The connections that a node accepts from clients: how many, from which addresses, and which is closed for a new one.

At a bound the node accepts the new connection and closes an idle one: a client opens a connection to send a request at
once, and an attacker who fills a node with connections leaves them idle, or does not read the answers. The victim is
the oldest idle connection of the address with the most connections; those that never sent a request go first. Only if
that address has no idle connection is the new one refused.

Linux gives a new descriptor the lowest free number. So a connection with the number ``n`` shows that the process has
all descriptors below ``n`` in use, for whatever purpose, and no count has to be kept beside the kernel's.
"""

import asyncio
import errno
import ipaddress
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, Protocol

from ...cluster.condition import aligned_s
from ...partition.errors import ThrottlingQuotaExceeded

FIRST_BYTE_S = 10.0
"""Time after which a new connection that has sent nothing is closed."""
HANDSHAKE_S = 10.0
"""Time after which a new HTTPS connection without a whole TLS handshake is closed."""
HEAD_S = 10.0
"""Time from the first byte of a request's headers in which they must come whole, or the connection is closed."""
SWEEP_S = 1.0
"""Interval of the sweeps that close connections which have exceeded a time limit."""
LOOKS_MAX = 64
"""Most connections of one address (of each kind) that are examined to find an idle one for one new connection."""
DESCRIPTOR_RETRY_MS = 1000
"""Time after which a request for which the node had no descriptor may try again."""
TELL_AGAIN_S = 60.0
"""Time between two log lines about connections that were refused because files of the node have their descriptors."""
_IPV6_NETWORK_BITS = 64
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})

_log = logging.getLogger(__name__)


class ConnectionBounds(NamedTuple):
    """How many connections a node takes from clients, on all its listeners together."""

    connections_max: int
    address_connections_max: int
    """Most connections from one IPv4 address, or from one IPv6 /64, since one host may have all addresses of a /64."""
    descriptors_max: int
    """A connection with this descriptor number or a higher one exceeds the bound: these numbers are left to the log,
    and to what requests open.
    """
    forwarding_descriptors_max: int = 1 << 30
    """A connection on which nodes forward requests, with this descriptor number or a higher one, exceeds the bound. For
    a file of an answer the bound is in the middle between this one and ``descriptors_max``.
    """


class Descriptors:
    """What requests open beside their connections: files of answers, and connections on which nodes forward requests.
    The rest is left to the log: without a bound, readers that take their answers slowly hold three descriptors each.
    """

    def __init__(self, bounds: ConnectionBounds | None = None) -> None:
        bounds = bounds or ConnectionBounds(*[1 << 30] * 3)
        self._forwarding_max = bounds.forwarding_descriptors_max
        self._files_max = (bounds.descriptors_max + self._forwarding_max) // 2  # forwarding goes on beside slow readers
        self._dialled = 0

    def opened(self, opening: Callable[[], int]) -> int:
        """The descriptor that ``opening`` returns, for an answer. Raises ThrottlingQuotaExceeded if none below the
        bound is free, and as ``opening`` does.
        """
        try:
            found = opening()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            found = None
        if found is None or found >= self._files_max:
            if found is not None:
                os.close(found)
            text = "the node has too many files and connections open already"
            raise ThrottlingQuotaExceeded(text, retry_after_ms=DESCRIPTOR_RETRY_MS)
        return found

    def has_room(self) -> bool:
        """Whether there is a descriptor for one more connection on which requests are forwarded, beside those for the
        connections that are being dialled.
        """
        try:
            free = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        os.close(free)
        return free + self._dialled < self._forwarding_max

    @contextmanager
    def dialling(self) -> Iterator[None]:
        """Inside, a connection is dialled, which has no descriptor yet. Raises OSError if there is no room for it."""
        if not self.has_room():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._dialled += 1
        try:
            yield
        finally:
            self._dialled -= 1


class ClientConnection(Protocol):
    """A client's connection, with the facts by which Connections chooses which one to close."""

    @property
    def has_asked(self) -> bool:
        """Whether the client has sent a whole request."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether the connection answers no request, or only one whose client does not take the answer."""
        ...

    def overdue(self, now_s: float) -> str | None:
        """The time limit that was exceeded, if any: ``silent``, ``handshake``, ``head``, ``idle`` or ``stalled``."""
        ...

    def evict(self) -> None:
        """Close the connection now."""
        ...


class _AddressConnections:
    """The connections of one address, oldest first: ``fresh`` had no request when last examined, ``asked`` had one."""

    __slots__ = ("asked", "fresh")

    def __init__(self) -> None:
        self.fresh: dict[ClientConnection, None] = {}
        self.asked: dict[ClientConnection, None] = {}

    def __len__(self) -> int:
        return len(self.fresh) + len(self.asked)

    def oldest_idle(self, newest: ClientConnection) -> ClientConnection | None:
        """The oldest idle connection except ``newest``, from ``fresh`` before ``asked``; None: all that were examined
        are busy. A busy connection that was examined moves to the end, so that the next search examines others first.
        """
        for connection in list(islice(self.fresh, LOOKS_MAX)):
            if connection.has_asked:
                del self.fresh[connection]
                self.asked[connection] = None
            elif connection is not newest:
                return connection
        for connection in list(islice(self.asked, LOOKS_MAX)):
            if connection.is_idle and connection is not newest:
                return connection
            del self.asked[connection]
            self.asked[connection] = None
        return None


class Connections:
    """The open connections of clients. Every method but ``sweep`` takes a time that does not grow with their number."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.bounds: ConnectionBounds = bounds
        self.ended: Counter[str] = Counter()
        """Connections that the node ended or refused, by reason."""
        self._by_address: dict[str, _AddressConnections] = {}
        self._where: dict[ClientConnection, str] = {}
        self._sizes: dict[int, dict[str, None]] = {}  # addresses by how many connections they have
        self._most = 0
        self._told_refused = 0  # of those without a descriptor
        self._tell_from_s = 0.0

    def __len__(self) -> int:
        return len(self._where)

    def opened(self, connection: ClientConnection, host: str, descriptor: int) -> bool:
        """Count a new connection, and close an idle one for it if a bound is exceeded. False: no idle one was found, so
        the new one is refused and not counted.
        """
        address = network_of(host)
        self._add(connection, address)
        if len(self._by_address[address]) > self.bounds.address_connections_max:
            reason, fullest = "address", address
        elif len(self) > self.bounds.connections_max:
            reason, fullest = "connections", next(iter(self._sizes[self._most]))
        elif descriptor >= self.bounds.descriptors_max:
            reason, fullest = "descriptors", next(iter(self._sizes[self._most]))
        else:
            return True
        victim = self._by_address[fullest].oldest_idle(connection)
        if victim is None:
            self.ended[f"refused_{reason}"] += 1
            self.closed(connection)
            return False
        self._evict(victim, f"evicted_{reason}")
        return True

    def replaced(self, connection: ClientConnection, successor: ClientConnection) -> bool:
        """Count ``successor``, which took over the descriptor of ``connection``, in its place, as the newest of its
        address. False: ``connection`` has been evicted, so ``successor`` is not counted.
        """
        address = self._where.pop(connection, None)
        if address is None:
            return False
        connections = self._by_address[address]
        connections.fresh.pop(connection, None)
        connections.asked.pop(connection, None)
        connections.fresh[successor] = None
        self._where[successor] = address
        return True

    def closed(self, connection: ClientConnection) -> None:
        """Stop counting a connection that was closed; ignore one that is not counted."""
        address = self._where.pop(connection, None)
        if address is not None:
            connections = self._by_address[address]
            connections.fresh.pop(connection, None)
            connections.asked.pop(connection, None)
            self._resize(address, len(connections) + 1)

    def sweep(self, now_s: float) -> None:
        """Close every connection that has exceeded a time limit. Log an error if some were refused for want of a
        descriptor.
        """
        for connection, reason in list(self._overdue(now_s)):
            self._evict(connection, reason)
        refused = self.ended["refused_descriptors"] - self._told_refused
        if refused and now_s >= self._tell_from_s:
            text = (
                "%d connections of clients were refused: files and connections have all descriptors below %d, the bound"
                " for clients, who have %d of them. Each partition with records takes two: raise the limit of open"
                " files (LimitNOFILE= of systemd, ulimit -n), or move partitions to other nodes"
            )
            _log.error(text, refused, self.bounds.descriptors_max, len(self))
            self._told_refused += refused
            self._tell_from_s = now_s + TELL_AGAIN_S

    async def keep_swept(self) -> None:
        """Sweep until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(aligned_s(SWEEP_S))
            self.sweep(loop.time())

    def _overdue(self, now_s: float) -> Iterator[tuple[ClientConnection, str]]:
        for connection in self._where:
            reason = connection.overdue(now_s)
            if reason is not None:
                yield connection, reason

    def _evict(self, connection: ClientConnection, reason: str) -> None:
        self.ended[reason] += 1
        self.closed(connection)
        connection.evict()

    def _add(self, connection: ClientConnection, address: str) -> None:
        connections = self._by_address.setdefault(address, _AddressConnections())
        connections.fresh[connection] = None
        self._where[connection] = address
        self._resize(address, len(connections) - 1)

    def _resize(self, address: str, before: int) -> None:
        after = len(self._by_address[address])
        if before:
            del self._sizes[before][address]
            if not self._sizes[before]:
                del self._sizes[before]
        if after:
            self._sizes.setdefault(after, {})[address] = None
        else:
            del self._by_address[address]
        if after > self._most or self._most not in self._sizes:
            self._most = after


def network_of(host: str) -> str:
    """The address under which connections from ``host`` are counted: an IPv4 address, or an IPv6 /64 network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))
