"""One part of an append by key: stored here, or passed on to the leader of its partition as an append of its
own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import structs

from ..cluster.model import Conditions, Leader
from ..partition.errors import NotLeaderOrFollower, StockadeError
from ..partition.records import Batch, stream
from . import media, peers, problems, wire
from .batches import Columns
from .call import DEADLINE_S, NOBODY, Call
from .leading import where_it_is_led
from .writing import find_partition, store, stored

_NOT_OF_A_PART = ("topic", "partition")


class Part(NamedTuple):
    """What became of a part: ``fields`` of its result (offsets, or a problem), and who decided."""

    fields: dict[str, Any]
    leader: Leader

    @property
    def problem(self) -> dict[str, Any] | None:
        """The problem document; None when the part was stored."""
        return self.fields.get("problem")


@dataclass(frozen=True)
class Appender:
    """Appends parts of one request to the partitions of a topic."""

    call: Call
    topic: str
    conditions: Conditions
    received_ms: int
    batch_bytes_max: int

    async def append(self, partition: int, columns: Columns) -> Part:
        """Append one part. Never raises a refusal: it is the part's answer."""
        try:
            batch = columns.batch(self.received_ms, self.batch_bytes_max)
            return await where_it_is_led(
                self.call,
                lambda: self._store(partition, batch),
                lambda moved: self._pass_on(moved, partition, batch),
            )
        except NotLeaderOrFollower as moved:
            leader = Leader(None, moved.fields["leader"], moved.fields["leader_term"] or 0)
            return Part({"problem": problems.document(moved)}, leader)
        except StockadeError as refusal:
            return Part({"problem": problems.document(refusal)}, NOBODY)

    async def _store(self, partition: int, batch: Batch) -> Part:
        found = await find_partition(self.call, self.topic, partition, self.conditions.topic_id)
        if isinstance(found, StockadeError):
            raise found
        appended = await store(self.call, found, batch, self.conditions)
        leader = found.leader()
        return Part(_of_a_part(structs.asdict(stored(found, appended, leader.term))), leader)

    async def _pass_on(self, moved: NotLeaderOrFollower, partition: int, batch: Batch) -> Part:
        message = peers.Message(
            "POST",
            f"/v1/topics/{self.topic}/partitions/{partition}/records{self._query()}",
            {"Content-Type": media.ARROW, "Accept": media.JSON} | self.call.credentials() | self._fence(),
            b"".join(stream([batch.message])),
        )
        upstream = await self.call.context.peers.reach(moved.fields["leader"], message, DEADLINE_S)
        try:
            document = wire.parse(await peers.whole_body(upstream, DEADLINE_S))
        except wire.NotJson as error:
            raise peers.lost(message.method, str(upstream.url.origin())) from error
        headers = upstream.headers
        term = headers.get("Stockade-Leader-Term", "0")
        leader = Leader(None, headers.get("Stockade-Leader") or None, int(term) if term.isdecimal() else 0)
        if upstream.status != 200:
            return Part({"problem": document}, leader)
        return Part(_of_a_part(document), leader)

    def _query(self) -> str:
        topic_id = self.conditions.topic_id
        return "" if topic_id is None else f"?topic_id={topic_id}"

    def _fence(self) -> dict[str, str]:
        token = self.conditions.token
        if token is None:
            return {}
        return {
            "Stockade-Fence-Grant": token.grant_id,
            "Stockade-Fence-Epoch": str(token.epoch),
            "Stockade-Session": token.session,
        }


def _of_a_part(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in _NOT_OF_A_PART}
