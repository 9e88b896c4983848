"""The tour of the README, pasted into a shell: it works, and it shows what it says."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from stockade.cli.local_cluster import LocalCluster

README = Path(__file__).parents[2] / "README.md"


def tour() -> str:
    """The shell blocks of the tour, one after the other."""
    found = re.search(r"<!-- tour: begin -->(.*)<!-- tour: end -->", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return "\n".join(re.findall(r"```sh\n(.*?)```", found[1], re.DOTALL))


@pytest.fixture(scope="module")
def output(cluster: LocalCluster) -> list[str]:
    """What the tour prints, against a cluster on other ports and in another folder."""
    script = tour().replace("data/cluster.json", str(cluster.data / "cluster.json"))
    for port, node in zip((7101, 7102, 7103), cluster.nodes, strict=True):
        script = script.replace(str(port), node.http.rpartition(":")[2])
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line]


def answers(output: list[str], **fields: object) -> list[dict[str, object]]:
    """The printed answers that have all of these fields."""
    found = [json.loads(line) for line in output if line.startswith("{")]
    return [answer for answer in found if all(answer.get(name) == value for name, value in fields.items())]


def test_the_tour_shows_an_append_a_duplicate_and_a_hole(output: list[str]) -> None:
    assert answers(output, base_offset=0, last_offset=1, duplicate=False)
    assert answers(output, base_offset=3, duplicate=True)
    assert answers(output, code="OUT_OF_ORDER_SEQUENCE_NUMBER", expected_seq=1)


def test_the_tour_shows_a_zombie_refused_and_its_certificates(output: list[str]) -> None:
    assert answers(output, code="PRODUCER_BUSY", holder_mode="Exclusive")
    assert answers(output, code="PRODUCER_FENCED", outcome={"state": "committed", "base_offset": 3, "last_offset": 3})
    assert answers(
        output, code="PRODUCER_FENCED", outcome={"state": "absent", "base_offset": None, "last_offset": None}
    )
    assert "204" in output


def test_the_tour_shows_that_a_killed_leader_loses_nothing(output: list[str]) -> None:
    values = [[record["value"] for record in answer["records"]] for answer in answers(output, stale=True)]  # type: ignore[attr-defined]
    assert len(values) >= 2
    assert all(found == ["first", "second", '{"n":1}', "paid"] for found in values)
