"""The canary against real nodes: proofs, rounds that show nothing, and a server that lets the zombie through."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from stockade.cli.canary.rounds import NoRound, Rounds
from stockade.cli.canary.verdict import Verdict, judge
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.client.api.client import Client
from stockade.errors import PermissionDenied, RequestTimedOut
from stockade.partition.api.records import AppendAnswer

from .api import Topic, Writer, call, eventually, expect

BROKEN = Path(__file__).parents[1] / "chaos" / "broken_node.py"
STOCKADE = (sys.executable, "-m", "stockade")


def canary(url: str, *words: str, code: int) -> Any:
    """What a round says that ends with this code. One that shows nothing, as on a busy machine, is played again."""
    command = [*STOCKADE, "canary", "--once", "--json", "--url", url, *words]

    def played() -> "subprocess.CompletedProcess[str] | None":
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done if done.returncode in (code, 0, 1) else None

    done: subprocess.CompletedProcess[str] = eventually(played)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_rounds_are_proofs_while_leaders_change_and_a_monitor_reads_them(cluster: LocalCluster) -> None:
    url = cluster.nodes[0].url
    words = [*STOCKADE, "canary", "--every", "1", "--metrics", "127.0.0.1:0", "--url", url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+/metrics", process.stderr.readline())
            assert found is not None

            def proofs() -> float:
                text = call("GET", found[0]).body.decode()
                numbers = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
                assert float(numbers["stockade_canary_violations_total"]) == 0
                assert float(numbers["stockade_canary_seconds_since_proof"]) < 60
                return float(numbers["stockade_canary_proofs_total"])

            eventually(lambda: proofs() >= 3)
            for _ in range(2):
                for partition in range(3):
                    call("POST", f"{url}/v1/cluster/leaders", {"topic": "stockade-canary", "partition": partition})
            before = proofs()
            eventually(lambda: proofs() >= before + 3)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_exit_code_of_one_round_tells_its_verdict(cluster: LocalCluster) -> None:
    url = cluster.nodes[0].url
    assert canary(url, "--topic", "once", code=0)["judged"] == "proof"
    expect(201, call("POST", f"{url}/v1/topics", {"name": "unfit", "partitions": 1}))
    expect(200, call("PATCH", f"{url}/v1/topics/unfit", {"sealed": True}))
    found = canary(url, "--topic", "unfit", code=3)
    assert (found["judged"], found["reason"]) == ("unproven", "TOPIC_SEALED")


class Sabotaged(Client):
    """What the zombie writes is lost on its way, or its answer is."""

    arrives = False
    writes = 0

    async def append(self, *arguments: Any, **named: Any) -> AppendAnswer:
        if b'"zombie"' not in bytes(arguments[2]):
            return await super().append(*arguments, **named)
        self.writes += 1
        if self.arrives:
            await super().append(*arguments, **named)
        raise RequestTimedOut("lost")


def rounds(url: str, *, arrives: bool) -> Verdict:
    async def main() -> Verdict:
        async with Sabotaged(url) as client:
            client.arrives = arrives
            found = judge(await Rounds(client, "sabotaged", 1).next())
            assert client.writes > 1, "it goes on trying"
            return found

    return uvloop.run(main())


def test_an_unknown_outcome_is_neither_proof_nor_violation(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.cli.canary.rounds.RETRIES", 3)
    verdict = rounds(cluster.nodes[0].url, arrives=False)
    assert (verdict.judged, verdict.reason) == ("unproven", "unknown outcome")


@pytest.fixture
def broken(data: Path) -> Iterator[LocalCluster]:
    """Its nodes take a write with any fencing token."""
    program = [sys.executable, str(BROKEN), "epoch-check"]
    with LocalCluster(data, port_base=0, program=program) as running:
        yield running


def test_a_server_that_stores_writes_of_a_zombie_is_found(
    broken: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = broken.nodes[0].url
    assert canary(url, code=1)["judged"] == "violation"
    monkeypatch.setattr("stockade.cli.canary.rounds.RETRIES", 3)
    assert rounds(url, arrives=True).judged == "violation", "its answers are lost, and its record is there"


def test_a_canary_leaves_partitions_alone_that_others_use(cluster: LocalCluster) -> None:
    url = cluster.nodes[0].url
    topic = Topic(url, "orders")
    topic.create(partitions=1, config={"require_fence": True})
    writer = Writer(topic, "orders", [0])
    found = canary(url, "--topic", "orders", code=3)
    assert (found["reason"], found["why"]) == ("in use", "orders holds orders/0, and no canary")
    assert writer.append("one", 0, 0).status == 200, "it holds its grant as before"
    expect(204, call("DELETE", f"{url}/v1/session", headers={"Stockade-Session": writer.session}))
    found = canary(url, "--topic", "orders", code=3)
    assert (found["reason"], found["why"]) == ("in use", "the last record of orders/0 is not of a canary")
    assert topic.values() == ["one"]
    topic = Topic(url, "shared")
    topic.create(partitions=1)
    Writer(topic, "many", [0], "Shared")
    assert canary(url, "--topic", "shared", code=3)["reason"] == "in use"


def test_a_canary_without_a_right_names_the_rights_that_it_needs(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with Client(cluster.nodes[0].url) as client:

            async def denied(*_: Any, **__: Any) -> Any:
                raise PermissionDenied("principal canary lacks the right: admin topic:none")

            client.create_topic = denied  # type: ignore[method-assign]
            with pytest.raises(NoRound, match="it needs read topic:none, produce topic:none, acquire topic:none"):
                await Rounds(client, "none", 1).next()

    uvloop.run(main())
