"""Writes of a node's fronts: their way to the partition, the counts of them, and the latest that were refused."""

import time
from collections import Counter, deque
from heapq import merge
from itertools import islice
from operator import itemgetter

import msgspec

from ...partition.api.records import AppendAnswer, RefusedWrite, WriteOutcome
from ...partition.api.topics import SlotHolder
from ...partition.commands import Appended, Stamp, Token
from ...partition.errors import NotLeaderOrFollower, StockadeError
from ...partition.records.batch import Batch
from ..api.partition import Partition
from ..api.service import Service
from ..model import Conditions

REFUSED_WRITES_MAX = 1000
"""Refused writes that a node remembers. Beyond it, the error code with the most of them loses its oldest, so producers
that try again against a full disk or a quota do not push out the one zombie.
"""


class Writes:
    """Counts the writes of a node, and remembers up to REFUSED_WRITES_MAX of the latest that its partitions refused:
    they show an operator why a writer makes no progress.
    """

    def __init__(self) -> None:
        self.records: int = 0
        """Records stored by appends through this node."""
        self.bytes: int = 0
        """Bytes of the batches stored by appends through this node."""
        self.refusals: Counter[tuple[str, str]] = Counter()
        """Refused writes by code and reason."""
        self._latest: dict[str, deque[tuple[int, RefusedWrite]]] = {}
        """Refused writes by code, each with its number on this node."""

    async def append(self, request_id: str, partition: Partition, batch: Batch, conditions: Conditions) -> Appended:
        """Append a batch and count the verdict."""
        try:
            appended = await partition.append(batch, conditions)
        except StockadeError as refusal:
            self.refused(request_id, partition, refusal, conditions.token, conditions.stamp)
            raise
        if not appended.duplicate:
            self.stored(batch.count, len(batch.message))
        return appended

    def stored(self, records: int, size: int) -> None:
        """Count an append that is no duplicate; ``size`` in bytes."""
        self.records += records
        self.bytes += size

    def refused(
        self,
        request_id: str,
        partition: Partition,
        refusal: StockadeError,
        token: Token | None,
        stamp: Stamp | None = None,
    ) -> None:
        """Count and remember a write that the partition refused; not one without a leader, or of unknown outcome."""
        if refusal.metadata_stale or not refusal.no_side_effects:
            return
        reason = str(refusal.fields.get("reason", ""))
        self.refusals[refusal.code, reason] += 1
        where = now_ms(), request_id, partition.topic, partition.partition
        tenure = partition.tenure(token.grant_id) if token else None
        write = RefusedWrite(
            *where,
            refusal.code,
            reason or None,
            token.grant_id if token else None,
            token.epoch if token else None,
            stamp.pid if stamp else None,
            stamp.epoch if stamp else None,
            stamp.first_seq if stamp else None,
            current_epoch=refusal.fields.get("current_epoch"),
            holder=_holder(refusal),
            outcome=_outcome(refusal),
            producer_name=tenure.producer_name if tenure else None,
            client_id=tenure.client_id if tenure else None,
        )
        self._latest.setdefault(write.code, deque()).append((self.refusals.total(), write))
        if sum(map(len, self._latest.values())) > REFUSED_WRITES_MAX:
            max(self._latest.values(), key=len).popleft()

    def latest_refused(self, count: int, topic: str | None = None, partition: int | None = None) -> list[RefusedWrite]:
        """At most ``count`` of the latest refused writes, of a topic and partition (None: any), the last one first."""
        found = (
            write
            for _, write in merge(*map(reversed, self._latest.values()), key=itemgetter(0), reverse=True)
            if topic in (None, write.topic) and partition in (None, write.partition)
        )
        return list(islice(found, count))


def _holder(refusal: StockadeError) -> SlotHolder | None:
    told = refusal.fields.get("holder")
    return None if told is None else msgspec.convert(told, SlotHolder)


def _outcome(refusal: StockadeError) -> WriteOutcome | None:
    told = refusal.fields.get("outcome")
    return None if told is None else msgspec.convert(told, WriteOutcome)


async def leading_partition(service: Service, topic: str, partition: int, topic_id: int | None) -> Partition:
    """The partition, unless this node knows that another node leads it.

    Raises NotLeaderOrFollower in that case, and as ``service.partition`` does.
    """
    found = await service.partition(topic, partition, topic_id)
    leader = found.leader()
    if leader.node_id not in (None, service.node_id):
        raise NotLeaderOrFollower(leader.url, leader.term)
    return found


def answer_to(appended: Appended, partition: Partition, leader_term: int) -> AppendAnswer:
    """The answer to an append that is stored in a partition."""
    return AppendAnswer(
        partition.topic,
        partition.partition,
        appended.base_offset,
        appended.last_offset,
        appended.duplicate,
        appended.log_start,
        appended.timestamp_ms,
        leader_term,
    )


def now_ms() -> int:
    """Wall clock, for timestamps of records."""
    return time.time_ns() // 1_000_000
