"""Quotas: how much of a cluster one principal may use, so that the others have the rest.

Each node counts its own rates, of the requests that clients send to it (as Kafka's brokers do); the controller counts
sessions, topics, groups and names of producers, for the whole cluster.
"""

import time
from collections.abc import Callable, Iterator

import msgspec

from ...partition.errors import ThrottlingQuotaExceeded
from ..model import By

RETRY_AFTER_MS = 1000
"""Time after which a principal at its quota may try again: it may have fewer sessions, topics, groups or names then."""
RETRY_AFTER_MS_MAX = 60_000
PER_S_MAX = 1 << 40
COUNT_MAX = 1_000_000


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The quota of one principal; None: only the cluster's own bounds. ``requests_per_s`` and ``bytes_per_s`` (bodies
    and records read) are for each node; ``sessions``, ``topics``, ``groups`` and ``producers`` (names) are the numbers
    that it may have in the cluster.
    """

    requests_per_s: int | None = None
    bytes_per_s: int | None = None
    sessions: int | None = None
    topics: int | None = None
    groups: int | None = None
    producers: int | None = None


NO_QUOTA = Quota()


def quota_faults(quota: Quota) -> Iterator[str]:
    """The faults of a quota, a sentence each."""
    for field in msgspec.structs.fields(Quota):
        value, is_rate = getattr(quota, field.name), field.name.endswith("_per_s")
        least, most = (1, PER_S_MAX) if is_rate else (0, COUNT_MAX)
        if value is not None and not least <= value <= most:
            yield f"quota.{field.name}: not {least} to {most}"


def check_most(by: By, count: int, what: str) -> None:
    """Raises ThrottlingQuotaExceeded when the caller's principal has as many of these as its quota allows."""
    if by.most is not None and count >= by.most:
        raise ThrottlingQuotaExceeded(
            f"principal {by.principal} may have {by.most} {what}, and has {count}", retry_after_ms=RETRY_AFTER_MS
        )


class _Bucket:
    """A token bucket that holds the tokens of one second. A request is admitted while there is a token. Its cost is
    known only when it has been read, so the balance may fall below zero; none is admitted until it has risen again.
    """

    __slots__ = ("_at_s", "_balance", "per_s")

    def __init__(self, per_s: int, now_s: float) -> None:
        self.per_s = per_s
        self._balance = float(per_s)
        self._at_s = now_s

    def lacking_s(self, now_s: float) -> float:
        """Seconds until there is a token; 0: there is one."""
        self._balance = min(float(self.per_s), self._balance + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        return max(0.0, (1 - self._balance) / self.per_s)

    def spend(self, count: int) -> None:
        self._balance -= count


class Spending:
    """The use that one principal makes of this node: its rates, and what its requests in flight hold.
    ``is_principals``: it is a principal's, not that of callers without one.
    """

    __slots__ = (
        *("_bytes", "_now_s", "_requests", "is_principals", "name", "quota"),
        *("held_answer_bytes", "held_arriving", "held_body_bytes", "held_requests", "held_unacked"),
    )

    def __init__(
        self, name: str, quota: Quota, *, is_principals: bool = True, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``name``: how refusals call the principal. ``now_s``: a monotonic clock, in seconds."""
        self.name: str = name
        self.is_principals: bool = is_principals
        self.held_requests: int = 0
        self.held_arriving: int = 0
        self.held_body_bytes: int = 0
        self.held_answer_bytes: int = 0
        self.held_unacked: int = 0
        self._now_s = now_s
        self._requests: _Bucket | None = None
        self._bytes: _Bucket | None = None
        self.allow(quota)

    def allow(self, quota: Quota) -> None:
        """Count by this quota from now on. A rate that does not change keeps its balance."""
        self.quota: Quota = quota
        self._requests = self._bucket(self._requests, quota.requests_per_s)
        self._bytes = self._bucket(self._bytes, quota.bytes_per_s)

    def _bucket(self, before: _Bucket | None, per_s: int | None) -> _Bucket | None:
        if before is not None and before.per_s == per_s:
            return before
        return None if per_s is None else _Bucket(per_s, self._now_s())

    def admit(self) -> None:
        """Count one request. Raises ThrottlingQuotaExceeded, with the time after which the request may come again."""
        if self._requests is None and self._bytes is None:
            return
        now_s = self._now_s()
        for bucket, what in ((self._requests, "requests"), (self._bytes, "bytes")):
            if bucket is not None and (lacking_s := bucket.lacking_s(now_s)) > 0:
                raise ThrottlingQuotaExceeded(
                    f"{self.name} has used its quota of {bucket.per_s} {what}/s of this node",
                    retry_after_ms=min(RETRY_AFTER_MS_MAX, int(lacking_s * 1000) + 1),
                )
        if self._requests is not None:
            self._requests.spend(1)

    def take_back(self, bytes_count: int = 0) -> None:
        """Give back one request that was admitted, and these bytes of it: it is counted elsewhere, or was refused."""
        if self._requests is not None:
            self._requests.spend(-1)
        self.spend_bytes(-bytes_count)

    def spend_requests(self, count: int) -> None:
        """Count further appends of a request that was admitted: they delay the next one."""
        if self._requests is not None:
            self._requests.spend(count)

    def spend_bytes(self, count: int) -> None:
        """Count bytes of a body that came, or of records that were read."""
        if self._bytes is not None:
            self._bytes.spend(count)

    def lacking_s(self) -> float:
        """Seconds until bytes may be sent again."""
        return 0.0 if self._bytes is None else self._bytes.lacking_s(self._now_s())
