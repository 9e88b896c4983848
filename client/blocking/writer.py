"""A small blocking writer of stages, for places without an event loop such as Spark's drivers and executors.

It needs the standard library and pyarrow only. Every request may be repeated after an unknown outcome: a stage has a
name, an append by reference happens once per stage, and the other requests state a wanted result. So requests are
repeated for ``delivery_timeout_ms``; only after that does a caller see an unknown outcome.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pyarrow as pa

from ...partition.errors import OffsetMismatch, StockadeError
from ..api.fetched import ARROW_STREAM
from ..config import Bootstrap, Credentials
from .http import PlainAnswer, PlainHttp
from .reader import BlockingClient, partition_path
from .waiting import Waiting

NAMES_AT_ONCE = 1000
"""How many stages one request keeps or deletes."""
SEQUENCES = 1 << 31
"""Sequence numbers wrap around at this number. A copy of that in partition.commands, whose import needs more than
pyarrow.
"""
STAGE_TTL_MS = 86_400_000
"""How long a partition remembers a stage that is not kept."""
_JSON = {"Content-Type": "application/json"}
_PRODUCER = ("Stockade-Producer-Id", "Stockade-Producer-Epoch", "Stockade-Producer-Seq")


class Pair(NamedTuple):
    """A producer's id and epoch."""

    pid: int
    epoch: int


class StageSeen(NamedTuple):
    """A stage of a partition."""

    name: str
    kept: bool
    appended: bool


class TopicShape(NamedTuple):
    """The facts about a topic that its writers need. ``refuses``: what makes the topic refuse each append of this
    writer, which has no fence: sealed, require_fence or writer_group; None: nothing does.
    """

    partitions: int
    batch_bytes_max: int
    topic_id: int
    refuses: str | None = None


class BlockingWriter:
    """Writes to one cluster, one request at a time. Arguments as for BlockingClient. Not thread-safe."""

    def __init__(self, bootstrap: Bootstrap | None = None, credentials: Credentials | None = None) -> None:
        self._reader = BlockingClient(bootstrap, credentials)
        self._config = self._reader.config
        self._http = PlainHttp(
            self._reader.credentials,
            self._config.request_timeout_ms / 1000,
            self._config.connect_timeout_ms / 1000,
            self._config.bootstrap,
        )
        self._leaders: dict[str, str] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """The known nodes, those of ``bootstrap`` first."""
        return self._reader.nodes

    def learn(self, nodes: Iterable[str | None]) -> None:
        """As `BlockingClient.learn`."""
        self._reader.learn(nodes)

    def shape(self, name: str) -> TopicShape:
        """The shape of a topic."""
        found = self._json("GET", f"/v1/topics/{quote(name, safe='')}")
        self.learn(each["leader"] for each in found["partitions"])
        for each in found["partitions"]:
            if each["leader"]:
                self._leaders[partition_path(name, each["partition"])] = each["leader"]
        config = {"sealed": found["sealed"], **found["config"]}
        refuses = next((name for name in ("sealed", "require_fence", "writer_group") if config.get(name)), None)
        return TopicShape(len(found["partitions"]), config["max_batch_bytes"], found["topic_id"], refuses)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, Any]) -> None:
        """Create a topic, unless it exists with this definition. Raises TopicAlreadyExists for another one."""
        self._json("POST", "/v1/topics", {"name": name, "partitions": partitions, "config": dict(config)})

    def init_producer(self, name: str | None, nonce: str, *, patience_s: float | None = None) -> Pair:
        """Producer id and epoch. A new ``nonce`` is a new instance of ``name``, which fences older ones; None: no name.

        ``patience_s``: time for attempts, in seconds; None: ``delivery_timeout_ms``. Raises ProducerFenced.
        """
        body = {"nonce": nonce} | ({"name": name} if name else {})
        answer = self._json("POST", "/v1/producers", body, patience_s=patience_s)
        return Pair(answer["producer_id"], answer["producer_epoch"])

    def next_sequences(self, name: str, pair: Pair) -> dict[tuple[str, int], int]:
        """By topic and partition, the sequence number that comes next; absent where this instance of ``name`` wrote
        nothing.

        It asks by name and not by producer id, since the right to write under a name allows only the former.
        """
        answer = self._json("GET", f"/v1/producers/{quote(name, safe='')}")
        return {
            (each["topic"], each["partition"]): (each["last_seq"] + 1) % SEQUENCES
            for each in answer["partitions"]
            if each["producer_epoch"] == pair.epoch
        }

    def put_stage(self, topic: str, partition: int, name: str, stream: bytes) -> None:
        """Store a stage: an Arrow stream of one batch. Raises StageAlreadyExists, MessageTooLarge."""
        path = f"{partition_path(topic, partition)}/stages/{name}?{urlencode({'ttl_ms': STAGE_TTL_MS})}"
        self._send("PUT", path, {"Content-Type": ARROW_STREAM}, stream)

    def stages(self, topic: str, partition: int, prefix: str) -> list[StageSeen]:
        """Stages whose names begin with ``prefix``."""
        answer = self._json("GET", f"{partition_path(topic, partition)}/stages?{urlencode({'prefix': prefix})}")
        return [StageSeen(s["stage"], s["kept"], s["base_offset"] is not None) for s in answer["stages"]]

    def keep_stages(self, topic: str, partition: int, names: Sequence[str], pair: Pair) -> None:
        """Keep stages from expiring. Raises NotFound, InvalidProducerEpoch."""
        self._change(topic, partition, "keep", names, pair)

    def delete_stages(
        self, topic: str, partition: int, names: Sequence[str], pair: Pair, *, patience_s: float | None = None
    ) -> None:
        """Delete stages. ``patience_s``: as for ``init_producer``, for each request. Raises InvalidProducerEpoch."""
        self._change(topic, partition, "delete", names, pair, patience_s=patience_s)

    def append_stage(self, topic: str, partition: int, name: str, pair: Pair, sequence: int) -> bool:
        """Append a stage's batch; False if that was done before. Raises NotFound, and the errors of an append."""
        path = f"{partition_path(topic, partition)}/stages/{name}/append"
        return not self._send("POST", path, _stamp(pair, sequence)).json()["duplicate"]

    def append(self, topic: str, partition: int, stream: bytes, pair: Pair, sequence: int) -> None:
        """Append an Arrow stream of one batch."""
        headers = _stamp(pair, sequence) | {"Content-Type": ARROW_STREAM}
        self._send("POST", f"{partition_path(topic, partition)}/records", headers, stream)

    def append_at(self, topic: str, partition: int, value: bytes, log_end: int) -> bool:
        """Append one record if the next offset is ``log_end``.

        False: the next offset is another one, perhaps because an earlier attempt stored the record.
        """
        body = json.dumps({"records": [{"value": value.decode()}]}).encode()
        try:
            headers = _JSON | {"Stockade-If-Log-End": str(log_end)}
            self._send("POST", f"{partition_path(topic, partition)}/records", headers, body)
        except OffsetMismatch:
            return False
        return True

    def read(self, topic: str, partition: int) -> tuple[list[tuple[int, bytes]], int]:
        """Offset and value of every record, and the log's end; linearizable."""
        offset, end = self._reader.offsets(topic, partition)
        found: list[tuple[int, bytes]] = []
        while offset < end:
            base, batches = self._reader.fetch_arrow(topic, partition, offset)
            for value in _values(batches):
                if offset <= base < end:
                    found.append((base, value))
                base += 1
            offset = base
        return found, end

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Drop the records below ``before``."""
        self._json("POST", f"{partition_path(topic, partition)}/trim", {"before": before})

    def close(self) -> None:
        """Close all connections."""
        self._reader.close()
        self._http.close()

    def _change(
        self,
        topic: str,
        partition: int,
        what: str,
        names: Sequence[str],
        pair: Pair,
        *,
        patience_s: float | None = None,
    ) -> None:
        for start in range(0, len(names), NAMES_AT_ONCE):
            body = {"producer_id": pair.pid, "producer_epoch": pair.epoch, what: names[start : start + NAMES_AT_ONCE]}
            self._json("PATCH", f"{partition_path(topic, partition)}/stages", body, patience_s=patience_s)

    def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, patience_s: float | None = None
    ) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        return self._send(method, path, _JSON if sent else {}, sent, patience_s=patience_s).json()

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        patience_s: float | None = None,
    ) -> PlainAnswer:
        """Repeat a request until it is answered, first at the partition's leader if that is known.

        A refusal after an attempt of unknown outcome has ``no_side_effects`` False.
        """
        patience_s = self._config.delivery_timeout_ms / 1000 if patience_s is None else patience_s
        waiting = Waiting(f"{method} {path.partition('?')[0]}", patience_s, self._config)
        is_unknown = False
        place = "/".join(path.split("/")[:6])
        while True:
            node = self._leaders.get(place) or self._reader.node
            try:
                answer = self._http.request(node, method, path, headers, body)
            except StockadeError as error:
                waiting.failed(node, error)
                is_unknown = method != "GET" and (is_unknown or not error.no_side_effects)
                if is_unknown:
                    error.had_effects()
                pause_s = waiting.pause_s(error)
                self._look_elsewhere(node, place, error)
            else:
                waiting.answered()
                if leader := answer.headers.get("Stockade-Leader"):
                    self._leaders[place] = leader
                return answer
            time.sleep(pause_s)

    def _look_elsewhere(self, node: str, place: str, error: StockadeError) -> None:
        if node == self._reader.node:  # a leader that failed says nothing of the node that named it
            self._reader.look_elsewhere()
        self._leaders.pop(place, None)
        if error.fields.get("leader"):
            self._leaders[place] = error.fields["leader"]


def _values(batches: Sequence[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def _stamp(pair: Pair, sequence: int) -> dict[str, str]:
    return dict(zip(_PRODUCER, map(str, (*pair, sequence)), strict=True))
