"""What the console has to show: writers that hold slots, one that was replaced and writes on, waiters, a group."""

import json
import subprocess
import sys
import time
from typing import Any

from integration.api import call, expect

from stockade.cli.local_cluster.cluster import LocalCluster

TTL_MS = 300_000


class Writer:
    """A client with a session; ``grant`` is what its last acquire was answered."""

    def __init__(self, url: str, client_id: str) -> None:
        self._url = url
        opened = expect(201, call("POST", f"{url}/v1/sessions", {"client_id": client_id, "ttl_ms": TTL_MS}))
        self.headers = {"Stockade-Session": opened["session"]}
        self.grant: Any = None
        self.next = 0
        self.producer: Any = None

    def renew(self) -> None:
        """Another full time to live."""
        expect(
            200, call("PUT", f"{self._url}/v1/session", headers={"Stockade-Session": self.headers["Stockade-Session"]})
        )

    def acquire(self, topic: str, name: str, mode: str = "ExclusiveWithFencing", partition: int = 0) -> "Writer":
        body = {"partitions": [partition], "mode": mode, "producer_name": name}
        self.grant = call("POST", f"{self._url}/v1/topics/{topic}/grants", body, headers=self.headers).json
        named = call("POST", f"{self._url}/v1/producers", {"name": name}, headers=self.headers)
        self.producer = named.json
        return self

    def write(self, *values: Any, topic: str = "orders") -> int:
        """Status of an append of these values."""
        stamp = {
            "Stockade-Fence-Grant": self.grant["grant"],
            "Stockade-Fence-Epoch": str(self.grant["epoch"]),
            "Stockade-Producer-Id": str(self.producer["producer_id"]),
            "Stockade-Producer-Epoch": str(self.producer["producer_epoch"]),
            "Stockade-Producer-Seq": str(self.next),
        }
        records = [{"key": f"k{number % 3}", "value": json.dumps(value)} for number, value in enumerate(values)]
        url = f"{self._url}/v1/topics/{topic}/partitions/0/records"
        answer = call("POST", url, {"records": records}, headers=self.headers | stamp)
        self.next += len(values) if answer.status == 200 else 0
        return answer.status


class Scene:
    """A cluster, and those who write to it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.url = f"http://{cluster.nodes[0].http}"

    def played(self) -> "Scene":
        """Alice wrote, Bob took over, Alice writes on; Carol waits; a group owns resources."""
        for name, partitions in (("orders", 3), ("ledger", 1)):
            self.topic(name, partitions)
        self.alice = Writer(self.url, "pod-a").acquire("orders", "alice")
        assert self.alice.write(*({"order": number, "amount": 7.5} for number in range(5))) == 200
        self.bob = Writer(self.url, "pod-b").acquire("orders", "bob")
        assert self.bob.write({"order": 5, "amount": 8}) == 200
        assert self.alice.write({"order": 6, "amount": 9}) == 403
        carol = Writer(self.url, "pod-c").acquire("orders", "carol", "WaitForExclusive")
        owner = Writer(self.url, "worker-1")
        self._cast = [self.alice, self.bob, carol, owner]
        sizes = {"topics": 2, "records": 120_000, "bytes": 7_340_032}
        made = {"place": "s3://backups/orders", "name": "one", "cut_ms": time.time_ns() // 1_000_000, "took_ms": 812}
        expect(200, call("POST", f"{self.url}/v1/cluster/backups", made | sizes))
        claims = [{"resource": name} for name in ("left", "right")]
        expect(200, call("POST", f"{self.url}/v1/groups/workers/own", {"claims": claims}, headers=owner.headers))
        return self

    def renew(self) -> None:
        """Before each test: on a busy machine all of them take longer than a session lives."""
        for writer in self._cast:
            writer.renew()

    def topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        body = {"name": name, "partitions": partitions, "config": {"require_fence": True} | config}
        expect(201, call("POST", f"{self.url}/v1/topics", body))

    def get(self, path: str) -> Any:
        return expect(200, call("GET", self.url + path))

    def plan(self, *command: str) -> str:
        """The digest that the command line tells of an order."""
        order = [sys.executable, "-m", "stockade", *command, "--plan", "--json", "--url", self.url]
        done = subprocess.run(order, stdout=subprocess.PIPE, check=True)
        found: str = json.loads(done.stdout)["plan"]
        return found

    def call(self, method: str, path: str, body: Any) -> Any:
        """The JSON of an answer that is no refusal."""
        answer = call(method, self.url + path, body)
        assert answer.status < 300, answer
        return answer.json
