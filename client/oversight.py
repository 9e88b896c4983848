"""What an operator looks at, and changes of topics: who holds what, who is there, what was refused. Part of Client."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..partition.commands import Token
from .calls import Calls, decode, present, quoted
from .model import ProducerPair, Topic
from .reports import (
    Fences,
    GroupList,
    ProducerList,
    ProducerStatus,
    RefusedWrites,
    SessionList,
    TopicFenced,
    Trimmed,
)
from .transport import Answer, Request

LISTED_MAX = 1000
"""Lines that the cluster gives at once."""


class Oversight:
    """A base of Client."""

    _calls: Calls

    async def change_topic(
        self, name: str, *, partitions: int | None = None, config: Mapping[str, Any] | None = None, seal: bool = False
    ) -> Topic:
        """What is given replaces the old: more partitions, fields of the configuration, ``seal`` for ever.

        Raises UnknownTopicOrPartition, InvalidRequest.
        """
        body = present(partitions=partitions, config=dict(config) if config else None, sealed=True if seal else None)
        return await self._calls.call(Topic, "PATCH", f"/v1/topics/{quoted(name)}", body=body)

    async def trim(self, topic: str, partition: int, before: int, *, token: Token | None = None) -> Trimmed:
        """Drop every record below ``before`` (-1: all). A topic with require_fence wants a token too."""
        headers = {}
        if token is not None:
            epoch = str(token.epoch)
            headers = {"Stockade-Fence-Grant": token.grant_id, "Stockade-Fence-Epoch": epoch}
            headers["Stockade-Session"] = token.session
        path = f"{_partition(topic, partition)}/trim"
        return await self._calls.call(Trimmed, "POST", path, headers=headers, body={"before": before})

    async def fence_topic(
        self, topic: str, partitions: Sequence[int] | None = None, *, reason: str | None = None
    ) -> TopicFenced:
        """Throw out whoever holds ``partitions`` (None: all), seating nobody; answers when it is in force."""
        wanted = "all" if partitions is None else sorted(partitions)
        body = {"partitions": wanted} | present(reason=reason)
        return await self._calls.call(TopicFenced, "POST", f"/v1/topics/{quoted(topic)}/fence", body=body)

    async def fences(self, topic: str, partition: int) -> Fences:
        """Who holds a partition and who held it."""
        return await self._calls.call(Fences, "GET", f"{_partition(topic, partition)}/fences")

    async def sessions(self, prefix: str = "", most: int = LISTED_MAX) -> SessionList:
        """Live sessions whose client_id begins so."""
        return await self._calls.call(SessionList, "GET", "/v1/sessions", params=_wanted(prefix, most))

    async def groups(self, prefix: str = "", most: int = LISTED_MAX) -> GroupList:
        """Groups in which something was owned, whose names begin so."""
        return await self._calls.call(GroupList, "GET", "/v1/groups", params=_wanted(prefix, most))

    async def producers(self, prefix: str = "", most: int = LISTED_MAX) -> ProducerList:
        """Producers whose names begin so."""
        return await self._calls.call(ProducerList, "GET", "/v1/producers", params=_wanted(prefix, most))

    async def producer(self, key: int | str) -> ProducerStatus:
        """What is known of a producer, by id or name. Raises NotFound."""
        return await self._calls.call(ProducerStatus, "GET", f"/v1/producers/{quoted(str(key))}")

    async def fence_producer(self, name: str) -> ProducerPair:
        """Refuse the running instance of ``name`` everywhere from now on; its new pair. Raises NotFound."""
        return await self._calls.call(ProducerPair, "POST", "/v1/cluster/producer_fences", body={"name": name})

    async def refused_writes(self, node: str, most: int = 100) -> RefusedWrites:
        """The latest writes that the node with this base URL refused; one attempt."""
        return decode(await self._at(node, "/v1/refused_writes", n=most), RefusedWrites)

    async def metrics(self, node: str) -> str:
        """Metrics of the node with this base URL, in the Prometheus text format; one attempt."""
        return (await self._at(node, "/metrics")).body.decode()

    async def _at(self, node: str, path: str, **params: int) -> Answer:
        return await self._calls.once(Request(method="GET", path=path, params=params, node=node, only_node=True))


def _wanted(prefix: str, most: int) -> dict[str, str | int]:
    return {"n": most} | present(prefix=prefix or None)


def _partition(topic: str, partition: int) -> str:
    return f"/v1/topics/{quoted(topic)}/partitions/{partition}"
