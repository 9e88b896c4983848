"""Payloads kept in memory: all that are not durable yet, and the most recent ones that are."""

from collections import OrderedDict

from .wal_records import Location

OVERHEAD_BYTES = 256
"""About what a payload here takes besides its bytes."""


class RecentPayloads:
    """The payloads appended last. At most ``bytes_max`` of durable ones stay; those not durable always do.

    What a follower that keeps up needs next is here, so replication reads the disk only for one that lags.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._payloads: OrderedDict[Location, tuple[int, bytes]] = OrderedDict()

    def add(self, location: Location, lsn: int, payload: bytes) -> None:
        """Keep the payload of record ``lsn``, the highest so far."""
        self._payloads[location] = lsn, payload
        self._bytes += OVERHEAD_BYTES + len(payload)

    def get(self, location: Location) -> bytes | None:
        """The payload, if it is here."""
        found = self._payloads.get(location)
        return None if found is None else found[1]

    def settle(self, durable_lsn: int) -> None:
        """Records up to ``durable_lsn`` are on disk: let the oldest of them go until the bound holds."""
        while self._bytes > self._bytes_max and self._payloads:
            location, (lsn, payload) = next(iter(self._payloads.items()))
            if lsn > durable_lsn:
                return
            del self._payloads[location]
            self._bytes -= OVERHEAD_BYTES + len(payload)
