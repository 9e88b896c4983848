"""docs/tour.md, pasted into a shell twice in a row: it works, and it shows what it says."""

import json

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .pages import ROOT, paste

pytestmark = pytest.mark.elections


@pytest.fixture(scope="module", params=["pasted once", "pasted again"])
def output(
    request: pytest.FixtureRequest, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """What the tour prints."""
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    return [line for line in paste(page, cluster, tmp_path_factory.mktemp("tour")).splitlines() if line]


def answers(output: list[str], **fields: object) -> list[dict[str, object]]:
    """The printed answers that have all of these fields."""
    found = [json.loads(line) for line in output if line.startswith("{")]
    return [answer for answer in found if all(answer.get(name) == value for name, value in fields.items())]


def first_offset(output: list[str]) -> int:
    """Where the first append of this paste went."""
    return min(int(str(answer["base_offset"])) for answer in answers(output, duplicate=False))


def test_the_tour_shows_an_append_a_duplicate_and_a_hole(output: list[str]) -> None:
    first = first_offset(output)
    assert answers(output, base_offset=first, last_offset=first + 1, duplicate=False)
    assert answers(output, base_offset=first + 3, duplicate=True)
    assert answers(output, code="OUT_OF_ORDER_SEQUENCE_NUMBER", expected_seq=1)


def test_the_tour_shows_a_zombie_refused_and_its_certificates(output: list[str]) -> None:
    paid = first_offset(output) + 3
    [stored, absent] = [answer["outcome"] for answer in answers(output, code="PRODUCER_FENCED")]
    assert answers(output, code="PRODUCER_BUSY", holder_mode="Exclusive")
    assert stored == {"state": "committed", "base_offset": paid, "last_offset": paid}
    assert absent == {"state": "absent", "base_offset": None, "last_offset": None}
    assert "204" in output


def test_the_tour_shows_that_a_killed_leader_loses_nothing(output: list[str]) -> None:
    ended = output.index("204")  # the grant's
    found = [json.loads(line) for line in output[ended:] if line.startswith("{")]
    values = [[record["value"] for record in answer["records"]] for answer in found]
    assert len(values) >= 2
    pastes = first_offset(output) // 4 + 1
    assert all(each == ["first", "second", '{"n":1}', "paid"] * pastes for each in values)
