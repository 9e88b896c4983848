"""docs/http.md, pasted into a shell twice in a row on a cluster with other topics, does what it says."""

import json
from typing import Any

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Topic
from .pages import ROOT, paste

Answers = list[dict[str, Any]]


@pytest.fixture(scope="module", params=["pasted once", "pasted again"])
def lines(request: pytest.FixtureRequest, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the page prints."""
    if request.param == "pasted once":
        Topic(cluster.nodes[0].url, "orders").create(partitions=3)
        Topic(cluster.nodes[0].url, "payments").create(config={"require_fence": True})  # as start.md does
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    return [line for line in paste(page, cluster, tmp_path_factory.mktemp("http")).splitlines() if line]


@pytest.fixture
def answers(lines: list[str]) -> Answers:
    """The answers, each of which is on a line of its own."""
    return [json.loads(line) for line in lines if not line.isdigit()]


def test_nothing_is_refused_but_the_late_write(answers: Answers) -> None:
    [refusal] = [answer for answer in answers if "code" in answer]
    assert (refusal["code"], refusal["ended"]["end"]) == ("PRODUCER_FENCED", "fenced: drill"), refusal


def test_the_next_in_the_queue_gets_the_slot(answers: Answers) -> None:
    grant = next(answer for answer in answers if "grant" in answer)
    waiting = next(answer for answer in answers if "ticket" in answer)
    refusal = next(answer for answer in answers if "code" in answer)
    assert waiting["state"] == "waiting"
    assert refusal["holder"]["producer_name"] == "beta"
    assert refusal["current_epoch"] > grant["epoch"]


def test_repeated_requests_of_the_page_are_stored_once(answers: Answers) -> None:
    appended = [answer for answer in answers if "base_offset" in answer and "code" not in answer]
    named, stage = appended[:2], appended[3:]
    assert [answer["base_offset"] for answer in named] == [0, 0]
    assert [answer["duplicate"] for answer in stage] == [False, True]
    assert len({answer["base_offset"] for answer in stage}) == 1


def test_sessions_end_and_leave_no_slot_taken(lines: list[str]) -> None:
    assert [line for line in lines if line.isdigit()] == ["204", "204"]


def test_each_part_of_a_request_has_a_line_of_its_own(answers: Answers) -> None:
    lines = [answer for answer in answers if "part" in answer]
    assert sorted(line["part"] for line in lines) == [0, 1]
    codes = {line["part"]: line["problem"]["code"] if "problem" in line else "" for line in lines}
    assert codes[0] in ("PRODUCER_BUSY", "NOT_LEADER_OR_FOLLOWER"), "beta holds partition 0"
    assert codes[1] in ("", "NOT_LEADER_OR_FOLLOWER")
