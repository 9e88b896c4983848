"""How long it takes to own a whole topic, beside one append: an acquire is a decision of the controller, an install
on each partition, and a report of each.

``python bench/grants.py [--partitions 16] [--rounds 5]`` prints medians in milliseconds, one request at a time: of each
round, and of the rounds. The bar: 16 partitions in under 10 times one append.
"""

# ruff: noqa: T201  # it prints a table

import argparse
import http.client
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from loads.over_http import call, leaders_of
from systems.stockade import clusters

APPENDS, GRANTS = 200, 60


class Node:
    """One connection to a node."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)

    def timed(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[float, Any]:
        """Send a request; return the milliseconds until its answer, and the answer's JSON."""
        began = time.perf_counter()
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"} | headers)
        answer = self._connection.getresponse()
        payload = answer.read()
        assert answer.status < 300, payload
        return (time.perf_counter() - began) * 1e3, json.loads(payload or b"null")


def grants(controller: Node, topic: str, headers: dict[str, str]) -> tuple[float, float]:
    """The median times of an acquire and of a release of all partitions, in ms."""
    wanted = {"partitions": "all", "mode": "Exclusive", "producer_name": "bench"}
    taken, left = [], []
    for _ in range(GRANTS):
        took, grant = controller.timed("POST", f"/v1/topics/{topic}/grants", wanted, headers)
        taken.append(took)
        left.append(controller.timed("DELETE", f"/v1/grants/{grant['grant']}", None, headers)[0])
    return statistics.median(taken), statistics.median(left)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with clusters([""]) as nodes:
        url = nodes[""].urls[0]
        call("POST", f"{url}/v1/topics", {"name": "wide", "partitions": chosen.partitions})
        call("POST", f"{url}/v1/topics", {"name": "narrow"})
        leader = Node(leaders_of(url, "narrow")[0])
        controller_url = call("GET", f"{url}/v1/cluster")["controller"]["leader"]
        session = call("POST", f"{controller_url}/v1/sessions", {"client_id": "bench", "ttl_ms": 300_000})["session"]
        controller, headers = Node(controller_url), {"Stockade-Session": session}
        titles = ("append", "acquire 1", "release 1", f"acquire {chosen.partitions}", f"release {chosen.partitions}")
        print(f"{'p50 in ms':>10}", *(f"{title:>11}" for title in titles), f"{'acquire / append':>17}")
        rows = []
        for number in range(chosen.rounds):
            body = {"records": [{"value": "x" * 100}]}
            path = "/v1/topics/narrow/partitions/0/records"
            append = statistics.median(leader.timed("POST", path, body, {})[0] for _ in range(APPENDS))
            one, many = grants(controller, "narrow", headers), grants(controller, "wide", headers)
            rows.append((append, *one, *many, many[0] / append))
            show(f"round {number + 1}", rows[-1])
        show("median", [statistics.median(column) for column in zip(*rows, strict=True)])


def show(name: str, row: Sequence[float]) -> None:
    """Print one line of the table."""
    print(f"{name:>10}", *(f"{value:11.2f}" for value in row[:-1]), f"{row[-1]:17.1f}", flush=True)


if __name__ == "__main__":
    main()
