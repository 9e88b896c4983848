"""How long it takes to own a whole topic, beside one append: an acquire is a decision of the controller, an install
on each partition, and a report of each.

``python bench/grants.py [--partitions 16] [--rounds 3]`` prints medians in milliseconds, one request at a time.
"""

# ruff: noqa: T201  # it prints a table

import argparse
import http.client
import json
import statistics
import time
from typing import Any
from urllib.parse import urlsplit

from trees import call, clusters, leader_of

APPENDS, GRANTS = 200, 60


class Node:
    """One connection to a node."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)

    def timed(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[float, Any]:
        """Milliseconds until the answer, and what it says."""
        began = time.perf_counter()
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"} | headers)
        answer = self._connection.getresponse()
        told = answer.read()
        assert answer.status < 300, told
        return (time.perf_counter() - began) * 1e3, json.loads(told or b"null")


def grants(controller: Node, topic: str, headers: dict[str, str]) -> tuple[float, float]:
    """Medians of acquire and release of all partitions."""
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
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with clusters([""]) as nodes:
        url = nodes[""].urls[0]
        call("POST", f"{url}/v1/topics", {"name": "wide", "partitions": chosen.partitions})
        call("POST", f"{url}/v1/topics", {"name": "narrow"})
        leader = Node(leader_of([url], "narrow"))
        controller_url = call("GET", f"{url}/v1/cluster")["controller"]["leader"]
        session = call("POST", f"{controller_url}/v1/sessions", {"client_id": "bench", "ttl_ms": 300_000})["session"]
        controller, headers = Node(controller_url), {"Stockade-Session": session}
        print(f"append | acquire, release of 1 | of {chosen.partitions} | acquire / append")
        for _ in range(chosen.rounds):
            body = {"records": [{"value": "x" * 100}]}
            path = "/v1/topics/narrow/partitions/0/records"
            append = statistics.median(leader.timed("POST", path, body, {})[0] for _ in range(APPENDS))
            one, many = grants(controller, "narrow", headers), grants(controller, "wide", headers)
            row = f"{append:.1f} | {one[0]:.1f}, {one[1]:.1f} | {many[0]:.1f}, {many[1]:.1f}"
            print(f"{row} | {many[0] / append:.1f}", flush=True)


if __name__ == "__main__":
    main()
