"""An order is carried out as it was shown, or not at all: against a real node."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from stockade.cli.orders.holdings import holdings
from stockade.cli.orders.plans import deletion_plan, trim_plan
from stockade.partition.api.records import PartitionContents
from stockade.partition.api.topics import PartitionState, Topic, TopicConfig

from ..operating import Operator


def test_a_shared_grant_is_shown_with_all_its_epochs_and_in_a_plan_with_those(at: Operator, session: str) -> None:
    at.says("topics", "create", "seats", "--partitions", "2")
    for _ in range(2):  # the epoch of partition 1 is higher now
        grant = at.tells("grants", "acquire", "seats", "--session", session, "--partition", "1")["grant"]
        at.says("grants", "release", grant, "--session", session)
    said = at.says("grants", "acquire", "seats", "--session", session, "--mode", "shared")
    [held] = at.tells("grants", "list", "seats")["grants"]
    low, high = held["epochs"]["0"], held["epochs"]["1"]
    assert (held["epoch"], held["partitions"], low < high) == (None, [0, 1], True)
    assert f"epoch {low},{high} on seats 0-1" in said
    assert f"  {low},{high}  " in at.says("grants", "list", "seats")
    assert f"at epoch {low},{high} (Shared, on partitions 0-1)" in at.says(
        "topics", "trim", "seats", "--partition", "1", "--before", "0", "--plan"
    )


def planned(at: Operator, *order: str) -> dict[str, Any]:
    found: dict[str, Any] = at.tells(*order, "--plan")
    assert at.tells(*order, "--plan")["plan"] == found["plan"], "the same state, the same digest"
    return found


def changed(at: Operator, *order: str) -> dict[str, Any]:
    """The new plan of an order that was refused since the state has changed."""
    done = at.call(*order, "--output", "json")
    assert (done.exit_code, "nothing was done" in done.stderr) == (6, True), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("partitions", [("7",), ("0", "7"), ("1", "1")], ids=["unknown", "one unknown", "twice"])
def test_a_fence_that_would_be_refused_has_no_plan(at: Operator, partitions: tuple[str, ...]) -> None:
    if at.call("topics", "describe", "narrow").exit_code:
        at.says("topics", "create", "narrow", "--partitions", "2")
    order = "fence", "narrow", *(word for each in partitions for word in ("--partition", each))
    refused, unplanned = at.call(*order), at.call(*order, "--plan")
    assert (unplanned.exit_code, unplanned.stdout, unplanned.stderr) == (1, "", refused.stderr)


def test_a_fence_names_the_writers_that_it_hits_and_hits_no_others(at: Operator, session: str) -> None:
    at.says("topics", "create", "hung", "--partitions", "2")
    order = ("fence", "hung", "--partition", "0")
    grant = at.tells("grants", "acquire", "hung", "--session", session)
    plan = planned(at, *order)
    [ending] = plan["state"]["grants"]
    assert (ending["grant"], ending["client_id"], ending["partitions"]) == (grant["grant"], "nightly", [0, 1])
    assert "stockade of nightly loses its grant of epoch" in at.says(*order, "--plan")
    other = at.says("sessions", "open", "mirror-2", "--ttl", "120").strip()
    second = at.tells("grants", "acquire", "hung", "--session", other, "--mode", "fencing")
    new = changed(at, *order, "--confirm", plan["plan"])
    assert [each["grant"] for each in new["state"]["grants"]] == [second["grant"]]
    assert at.tells("grants", "list", "hung")["grants"][0]["grant"] == second["grant"], "the healthy one stays"
    fenced = at.tells(*order, "--confirm", new["plan"])
    assert fenced["partitions"][0]["grants"] == [second["grant"]]
    assert at.tells("grants", "list", "hung")["grants"] == []
    at.says("sessions", "end", other)


def test_a_writer_that_comes_after_the_look_is_not_evicted(
    at: Operator, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.says("topics", "create", "raced")
    order = ("fence", "raced")
    plan = planned(at, *order)
    read = holdings
    taken: list[Any] = []

    async def late(*args: Any) -> list[Any]:
        found = await read(*args)
        if not taken:  # between this look and the order, a writer comes
            client = args[0]
            taken.append(await client.acquire("raced", session, None, "Exclusive", "late"))
        return found

    monkeypatch.setattr("stockade.cli.orders.plans.holdings", late)
    new = changed(at, *order, "--confirm", plan["plan"])
    assert [each["grant"] for each in new["state"]["grants"]] == [taken[0].grant]
    assert [each["producer_name"] for each in at.tells("grants", "list", "raced")["grants"]] == ["late"]


def test_a_deletion_says_what_is_lost_and_spares_a_topic_with_a_new_writer(at: Operator, session: str) -> None:
    at.says("topics", "create", "old")
    order = ("topics", "delete", "old")
    empty = planned(at, *order)
    at.says("produce", "old", stdin="a\nb\nc\n")
    assert changed(at, *order, "--confirm", empty["plan"])["about"]["records"] == 3
    at.says("groups", "reset", "billing", "old", "--to-offset", "2")
    plan = planned(at, *order)
    assert (plan["state"]["groups"], plan["state"]["grants"], plan["about"]["records"]) == (["billing"], [], 3)
    assert "1 group had not read on beyond it: billing" in at.says(*order, "--plan")
    at.says("produce", "old", stdin="d\n")
    assert planned(at, *order)["plan"] == plan["plan"], "records come all the time"
    grant = at.tells("grants", "acquire", "old", "--session", session)
    new = changed(at, *order, "--confirm", plan["plan"])
    assert [each["grant"] for each in new["state"]["grants"]] == [grant["grant"]]
    assert at.tells(*order, "--confirm", new["plan"]) == {"topic": "old", "deleted": True}


def test_a_trim_says_who_had_not_read_it_and_follows_neither_a_new_writer_nor_new_records(
    at: Operator, session: str
) -> None:
    at.says("topics", "create", "log")
    at.says("produce", "log", stdin="a\nb\nc\nd\n")
    at.says("groups", "reset", "slow", "log", "--to-offset", "1")
    at.says("groups", "reset", "fast", "log", "--to-offset", "3")
    order = ("topics", "trim", "log", "--partition", "0", "--before")
    plan = planned(at, *order, "3")
    assert (plan["state"]["groups"], plan["about"]["dropped_records"]) == (["slow"], 3)
    assert "3 of 4 records, offsets 0 to 2," in at.says(*order, "3", "--plan")
    assert "0 of 4 records, about 0 bytes" in at.says(*order, "0", "--plan")
    everything = planned(at, *order, "end")
    at.says("produce", "log", stdin="e\n")
    assert changed(at, *order, "end", "--confirm", everything["plan"])["about"]["dropped_records"] == 5
    at.says("grants", "acquire", "log", "--session", session)
    changed(at, *order, "3", "--confirm", plan["plan"])
    assert at.tells("topics", "offsets", "log")["partitions"][0]["log_start"] == 0
    at.says("fence", "log", "--yes")
    again = planned(at, *order, "3")
    assert at.tells(*order, "3", "--confirm", again["plan"])["log_start"] == 3
    alone = planned(at, *order, "end", "--exclusive")
    assert at.tells(*order, "end", "--exclusive", "--confirm", alone["plan"])["log_start"] == 5


def test_a_trim_of_a_partition_that_a_writer_holds_says_what_drops_records_all_the_same(
    at: Operator, session: str
) -> None:
    at.says("topics", "create", "full")
    at.says("topics", "create", "careful", "--require-fence")
    order = ("topics", "trim", "full", "--partition", "0", "--before", "end")
    refused = "this is refused while a writer holds the slot"
    assert refused not in at.says(*order, "--plan")
    shared = at.tells("grants", "acquire", "full", "--session", session, "--mode", "shared")["grant"]
    assert refused not in at.says(*order, "--plan") and refused in at.says(*order, "--exclusive", "--plan")
    at.says(*order)
    at.says("grants", "release", shared, "--session", session)
    at.says("grants", "acquire", "full", "--session", session)
    assert f"{refused}; a shorter retention drops records all the same" in at.says(*order, "--plan")
    for words in (order, (*order, "--exclusive")):
        done = at.call(*words)
        assert (done.exit_code, "a shorter retention (`stockade topics alter`)" in done.stderr) == (1, True)
    order = ("topics", "trim", "careful", "--partition", "0", "--before", "end")
    assert "refused without --exclusive" in at.says(*order, "--plan")
    assert "refused" not in at.says(*order, "--exclusive", "--plan")
    at.says("grants", "acquire", "careful", "--session", session)
    assert refused in at.says(*order, "--plan") and "without --exclusive" not in at.says(*order, "--plan")


def test_a_plan_tells_what_goes_from_the_tiered_store() -> None:
    """Of 1,000 records nine tenths have left the disks: those of the store are most of what goes for good."""
    found = PartitionContents("old", 0, 0, 1000, 500, 0, [], 900, 9500)
    partitions = [PartitionState(0, "http://n1", "n1", 1, ["n1"], 0)]
    topic = Topic("old", 7, 3, sealed=False, config=TopicConfig(), partitions=partitions)
    client: Any = SimpleNamespace(topic=AsyncMock(return_value=topic), contents=AsyncMock(return_value=found))

    def bytes_of(before: int) -> str:
        plan = asyncio.run(trim_plan(client, "old", 0, before, exclusive=False))
        return plan.lines[0].split(", ", 2)[2]

    assert bytes_of(500) == "about 0 bytes on each replica and 4,750 in the tiered store: there is no way back"
    assert bytes_of(950) == "about 250 bytes on each replica and 9,025 in the tiered store: there is no way back"
    deleted = asyncio.run(deletion_plan(client, "old"))
    assert "500 bytes on each of 3 replicas and 9,500 in the tiered store:" in deleted.lines[0]
    assert deleted.about == {"records": 1000, "stored_bytes": 500, "tiered_bytes": 9500}


def test_the_end_of_a_session_names_what_it_holds_and_ends_nothing_else(at: Operator, session: str) -> None:
    at.says("topics", "create", "kept")
    grant = at.tells("grants", "acquire", "kept", "--session", session)
    [listed] = at.tells("sessions", "describe", "nightly")
    order = ("sessions", "fence", listed["handle"])
    plan = planned(at, *order)
    assert plan["state"] == {
        "handle": listed["handle"],
        "client_id": "nightly",
        "grants": [grant["grant"]],
        "resources": 0,
    }
    assert "stockade loses its grant of 1 partition of kept" in at.says(*order, "--plan")
    at.says("claim", "g", "x", "--session", session)
    new = changed(at, *order, "--confirm", plan["plan"])
    assert new["state"]["resources"] == 1
    at.says("sessions", "renew", session)
    done = at.tells(*order, "--confirm", new["plan"], "--reason", "hangs")
    assert done == {"handle": listed["handle"], "client_id": "nightly", "grants": [grant["grant"]], "resources": 1}
    assert at.call("sessions", "renew", session).exit_code == 5
    assert at.tells("grants", "list", "kept")["grants"] == []
    assert at.call(*order).exit_code == 1, "it has ended"


def test_a_plan_that_makes_no_sense_is_refused(at: Operator) -> None:
    at.says("topics", "create", "sense")
    assert at.call("fence", "sense", "--plan", "--yes").exit_code == 2
    assert at.call("topics", "trim", "sense", "--partition", "7", "--before", "0", "--plan").exit_code == 1
    assert at.call("topics", "delete", "nowhere", "--plan").exit_code == 1
    assert at.call("cluster", "remove", "n8", "--plan").exit_code == 1


def test_a_person_is_shown_the_plan_and_asked(at: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    at.says("topics", "create", "asked")

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    class System:
        stdin = Terminal
        exit = staticmethod(__import__("sys").exit)

    monkeypatch.setattr("stockade.cli.orders.consent.sys", System)
    no = at.call("topics", "delete", "asked", stdin="n\n")
    assert (no.exit_code, "no writer holds a slot here" in no.stderr, "Do it?" in no.stderr) == (1, True, True)
    assert "asked: deleted" in at.says("topics", "delete", "asked", stdin="y\n")
