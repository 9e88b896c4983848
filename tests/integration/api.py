"""A small HTTP client of the tests' own, so that they do not lean on the product's client."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

ARROW = "application/vnd.apache.arrow.stream"
CALM = """[raft]
election_timeout_min_ms = 4000
election_timeout_max_ms = 8000
"""
"""A leader that stands still with its machine, for a second or three, is not replaced. To replace it rightly ends a
request that is under way with an unknown outcome, and fails a test that is of something else.
"""


class Answer(NamedTuple):
    """Status, headers (lower case) and body; ``json`` of it on demand."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    method: str, url: str, body: Any = None, *, headers: dict[str, str] | None = None, timeout_s: float = 60
) -> Answer:
    """One request; refusals are answers. OSError when there is no answer."""
    given = dict(headers or {})
    data = body
    if body is not None and not isinstance(body, bytes):
        data = json.dumps(body).encode()
        given.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, data=data, method=method, headers=given)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
    except urllib.error.HTTPError as refusal:
        return Answer(refusal.code, {k.lower(): v for k, v in refusal.headers.items()}, refusal.read())


def expect(status: int, answer: Answer) -> Any:
    """The JSON of an answer that has this status."""
    assert answer.status == status, (answer.status, answer.body)
    return answer.json if answer.body else None


def eventually(attempt: Callable[[], Any], timeout_s: float = 60.0, pause_s: float = 0.05) -> Any:
    """What ``attempt`` answers once it is neither None nor False; it may raise OSError meanwhile."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if (found := attempt()) not in (None, False):
                return found
        except OSError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(pause_s)


def controller_at(node: str) -> str:
    """Node id of the controller's leader, once it has one."""
    leader: str = eventually(lambda: expect(200, call("GET", f"{node}/v1/cluster"))["controller"]["leader_node"])
    return leader


class Topic:
    """One topic over one node's address."""

    def __init__(self, node: str, name: str) -> None:
        self.node, self.name = node, name
        self.url = f"{node}/v1/topics/{name}"

    def at(self, node: str) -> "Topic":
        """The same topic over another node."""
        return Topic(node, self.name)

    def create(self, **definition: Any) -> Any:
        return expect(201, call("POST", f"{self.node}/v1/topics", {"name": self.name, **definition}))

    def records(self, partition: int = 0) -> str:
        return f"{self.url}/partitions/{partition}/records"

    def append(self, text: str, partition: int = 0, **headers: str) -> Answer:
        given = {"Content-Type": "text/plain"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return call("POST", self.records(partition), text.encode(), headers=given)

    def values(self, partition: int = 0, query: str = "offset=0&max_bytes=67108864") -> list[str]:
        answer = expect(200, call("GET", f"{self.records(partition)}?{query}"))
        return [record["value"] for record in answer["records"]]

    def leader(self, partition: int = 0) -> str | None:
        """Node id of the partition's leader."""
        description = expect(200, call("GET", self.url))
        leader: str | None = description["partitions"][partition]["leader_node"]
        return leader

    def led_by(self, partition: int = 0) -> str:
        """Node id of the partition's leader, once it has one: a pause of a node may take it away for a moment."""
        leader: str = eventually(partial(self.leader, partition))
        return leader


class Writer:
    """A session with a grant, and a producer identity: what an exclusive, idempotent append needs."""

    def __init__(self, topic: Topic, name: str, partitions: list[int], mode: str = "Exclusive") -> None:
        self.topic, self.name = topic, name
        body = {"client_id": name, "ttl_ms": 300_000}
        self.session = expect(201, call("POST", f"{topic.node}/v1/sessions", body))["session"]
        self.answer = self.acquire(partitions, mode)
        self.pair = expect(200, call("POST", f"{topic.node}/v1/producers", {"name": name}))

    def acquire(self, partitions: Any, mode: str, **more: Any) -> Answer:
        body = {"partitions": partitions, "mode": mode, "producer_name": self.name, **more}
        return call("POST", f"{self.topic.url}/grants", body, headers={"Stockade-Session": self.session})

    def fence(self) -> dict[str, str]:
        grant = self.answer.json
        return {
            "Stockade_Session": self.session,
            "Stockade_Fence_Grant": grant["grant"],
            "Stockade_Fence_Epoch": str(grant["epoch"]),
        }

    def stamp(self, sequence: int) -> dict[str, str]:
        return {
            "Stockade_Producer_Id": str(self.pair["producer_id"]),
            "Stockade_Producer_Epoch": str(self.pair["producer_epoch"]),
            "Stockade_Producer_Seq": str(sequence),
        }

    def append(self, text: str, sequence: int, partition: int = 0, topic: Topic | None = None) -> Answer:
        return (topic or self.topic).append(text, partition, **self.fence(), **self.stamp(sequence))
