"""Which batches share a request to a leader, and when a leader gets the next one. Pure: the sender acts.

A leader gets one request in a turn of the event loop, with the batches that are due then in all partitions that it
leads. A leader that has not begun to answer REQUESTS_MAX requests gets no further one; batches that are not sent yet
grow in the meantime, so the more a producer has to send, the less a record costs. The first part that is answered, or
OPENS_S, makes room for the next request: a partition that is slow to answer delays only itself.

A producer that writes to one partition has no such window: its five batches in flight are the only bound.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from ...partition.api.records import PARTS_MAX
from .queue.batch import Batch

REQUESTS_MAX = 5
"""Requests of a producer that a leader has not begun to answer; Kafka's max.in.flight.requests.per.connection."""
OPENS_S = 0.05
"""Time after which a request without an answer no longer holds up the next one."""
REQUEST_BYTES_MAX = 1 << 20
"""Bytes of the batches of one request; a longer batch travels alone. Kafka's max.request.size."""

R = TypeVar("R")


class LeaderWindow(Generic[R]):
    """The requests of one producer that one leader has not begun to answer. ``waiting``: the routes to poll when there
    is room again.
    """

    def __init__(self) -> None:
        self.waiting: dict[R, None] = {}
        self._unanswered: set[object] = set()

    @property
    def is_full(self) -> bool:
        """Whether the leader gets no further request now."""
        return len(self._unanswered) >= REQUESTS_MAX

    def sent(self, request: object) -> None:
        """A request goes out."""
        self._unanswered.add(request)

    def answered(self, request: object) -> list[R]:
        """Note that a request has its first answer, or holds up the next one no longer; returns the routes to poll now.
        May be called again for the same request.
        """
        self._unanswered.discard(request)
        if self.is_full or not self.waiting:
            return []
        opened, self.waiting = list(self.waiting), {}
        return opened


def requests(due: Sequence[tuple[R, Batch]]) -> list[list[tuple[R, Batch]]]:
    """The batches of one turn for one leader, grouped into requests: in order, within the bounds of a request."""
    found: list[list[tuple[R, Batch]]] = []
    size = 0
    for route, batch in due:
        assert batch.message is not None
        more = len(batch.message)
        if not found or len(found[-1]) >= PARTS_MAX or size + more > REQUEST_BYTES_MAX:
            found.append([])
            size = 0
        found[-1].append((route, batch))
        size += more
    return found
