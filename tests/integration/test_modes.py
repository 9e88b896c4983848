"""Access modes, the line and sets of partitions on three real nodes: cases of SEMANTICS 11, numbered in the names."""

import time
import urllib.request
from contextlib import ExitStack
from typing import Any

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Answer, Topic, Writer, call, expect

WAIT, SHARED, FENCING = "WaitForExclusive", "Shared", "ExclusiveWithFencing"


def created(cluster: LocalCluster, name: str, partitions: int = 1) -> Topic:
    topic = Topic(cluster.nodes[0].url, name)
    topic.create(partitions=partitions)
    return topic


def release(writer: Writer) -> None:
    grant = (writer.answer.json.get("grant") if writer.answer.status == 201 else None) or granted(writer)["grant"]
    headers = {"Stockade-Session": writer.session}
    assert call("DELETE", f"{writer.topic.node}/v1/grants/{grant}", headers=headers).status == 204


def ticket(writer: Writer, wait_ms: int = 0, timeout_s: float = 60) -> Answer:
    path = f"/v1/tickets/{writer.answer.json['ticket']}?wait_ms={wait_ms}"
    headers = {"Stockade-Session": writer.session}
    return call("GET", writer.topic.node + path, headers=headers, timeout_s=timeout_s)


def granted(writer: Writer) -> Any:
    """The grant of one that was in line; it must come within ten seconds."""
    answer = expect(200, ticket(writer, 10_000))
    assert answer["state"] == "granted", answer
    return answer["grant"]


def waits(writer: Writer) -> bool:
    return bool(expect(200, ticket(writer))["state"] == "waiting")


def close(writer: Writer) -> None:
    assert call("DELETE", f"{writer.topic.node}/v1/session", headers={"Stockade-Session": writer.session}).status == 204


def writes(writer: Writer, grant: Any, text: str = "x", partition: int = 0) -> Answer:
    fence = {"Stockade_Session": writer.session, "Stockade_Fence_Grant": grant["grant"]}
    epoch = str(grant["epochs"][str(partition)])
    return writer.topic.append(text, partition, Stockade_Fence_Epoch=epoch, **fence)


def refused(status: int, code: str, answer: Answer) -> Any:
    assert (answer.status, answer.json["code"]) == (status, code), answer.body
    return answer.json


def test_001_002_an_exclusive_holder_excludes_exclusive_and_shared_acquires(cluster: LocalCluster) -> None:
    topic = created(cluster, "one")
    first = Writer(topic, "one-1", [0])
    for mode in ("Exclusive", SHARED):
        busy = refused(423, "PRODUCER_BUSY", Writer(topic, f"one-{mode}", [0], mode).answer)
        assert (busy["reason"], busy["holder_mode"]) == ("exclusive_present", "Exclusive")
    assert writes(first, first.answer.json).status == 200


def test_005_exclusive_with_fencing_evicts_the_holder_and_the_queue(cluster: LocalCluster) -> None:
    topic = created(cluster, "force")
    holder, waiter = Writer(topic, "force-4", [0]), Writer(topic, "force-5", [0], WAIT)
    assert expect(202, waiter.answer)["state"] == "waiting"
    forcing = Writer(topic, "force-6", [0], FENCING)
    refused(403, "PRODUCER_FENCED", writes(holder, holder.answer.json))
    refused(403, "PRODUCER_FENCED", ticket(waiter))
    assert writes(forcing, expect(201, forcing.answer)).status == 200


def test_006_012_tickets_are_granted_one_by_one(cluster: LocalCluster) -> None:
    topic = created(cluster, "line")
    first = Writer(topic, "line-1", [0], FENCING)
    second, third = Writer(topic, "line-2", [0], WAIT), Writer(topic, "line-3", [0], WAIT)
    assert [w.answer.json["position"] for w in (second, third)] == [0, 1]
    close(first)
    assert writes(second, granted(second)).status == 200
    assert waits(third)
    close(second)
    assert writes(third, granted(third)).status == 200


def test_008_016_an_acquire_passes_neither_shared_holders_nor_the_wait_queue(cluster: LocalCluster) -> None:
    topic = created(cluster, "pass", 2)
    seat = Writer(topic, "pass-seat", [0], SHARED)
    expect(201, seat.answer)
    busy = refused(423, "PRODUCER_BUSY", Writer(topic, "pass-alone", [0]).answer)
    assert busy["reason"] == "shared_present"
    expect(202, Writer(topic, "pass-line", [0, 1], WAIT).answer)
    for mode in ("Exclusive", SHARED):
        busy = refused(423, "PRODUCER_BUSY", Writer(topic, f"pass-{mode}", [1], mode).answer)
        assert (busy["reason"], busy["queue_len"]) == ("waiters_present", 1)


def test_013_a_ticket_is_answered_at_once_and_outlives_the_timeout_of_a_request(cluster: LocalCluster) -> None:
    topic = created(cluster, "patience")
    first, waiter = Writer(topic, "patience-1", [0]), Writer(topic, "patience-2", [0], WAIT)
    expect(202, waiter.answer)
    began = time.monotonic()
    with pytest.raises(OSError, match="timed out"):
        ticket(waiter, 60_000, timeout_s=1)  # the client's patience ends, not its place in line
    while time.monotonic() < began + 2:  # the case itself: more time passes than a request has
        assert expect(200, ticket(waiter, 500))["state"] == "waiting"
    release(first)
    assert granted(waiter)["epoch"] == 2


def test_014_a_refused_acquire_leaves_nothing_behind(cluster: LocalCluster) -> None:
    topic = created(cluster, "nothing")
    first, other = Writer(topic, "nothing-1", [0]), Writer(topic, "nothing-2", [0])
    refused(423, "PRODUCER_BUSY", other.answer)
    close(other)
    assert refused(423, "PRODUCER_BUSY", Writer(topic, "nothing-3", [0]).answer)["queue_len"] == 0
    release(first)
    expect(201, Writer(topic, "nothing-4", [0]).answer)


def test_018_a_ticket_that_resumes_a_superseded_epoch_is_fenced_and_lowers_no_epoch(cluster: LocalCluster) -> None:
    topic = created(cluster, "overtaken")
    first, second = Writer(topic, "overtaken-1", [0]), Writer(topic, "overtaken-2", [0], WAIT)
    stale = Writer(topic, "overtaken-3", [0])
    stale.answer = stale.acquire([0], WAIT, resume_epoch=1)
    expect(202, stale.answer)
    release(first)
    assert granted(second)["epoch"] == 2
    release(second)
    fenced = refused(403, "PRODUCER_FENCED", ticket(stale, 10_000))
    assert fenced["current_epoch"] == 2
    assert expect(201, Writer(topic, "overtaken-4", [0]).answer)["epoch"] == 3


def test_020_a_ticket_behind_two_shared_holders_is_granted_when_both_have_left(cluster: LocalCluster) -> None:
    topic = created(cluster, "behind")
    seats = [Writer(topic, f"behind-{k}", [0], SHARED) for k in range(2)]
    waiter = Writer(topic, "behind-waiter", [0], WAIT)
    release(seats[0])
    assert waits(waiter)
    release(seats[1])
    assert granted(waiter)["epoch"] == 1


def test_021_a_ticket_of_a_closed_session_is_skipped_and_costs_no_epoch(cluster: LocalCluster) -> None:
    topic = created(cluster, "skipped")
    first, gone = Writer(topic, "skipped-1", [0]), Writer(topic, "skipped-2", [0], WAIT)
    waiter = Writer(topic, "skipped-3", [0], WAIT)
    close(gone)
    release(first)
    assert granted(waiter)["epoch"] == 2


def test_028_123_no_session_waits_while_holding_nor_holds_while_waiting(cluster: LocalCluster) -> None:
    topic = created(cluster, "both", 2)
    holder, other = Writer(topic, "both-1", [0]), Writer(topic, "both-2", [1])
    held = refused(409, "HOLD_AND_WAIT", holder.acquire([1], WAIT))
    assert held["held_grants"] == [holder.answer.json["grant"]]
    waiter = Writer(topic, "both-3", [0], WAIT)
    release(other)
    assert refused(409, "HOLD_AND_WAIT", waiter.acquire([1], "Exclusive"))["ticket"] == waiter.answer.json["ticket"]


def test_029_a_ticket_blocks_only_acquires_whose_sets_intersect_its_own(cluster: LocalCluster) -> None:
    topic = created(cluster, "sets", 4)
    Writer(topic, "sets-holder", [0])
    wide, behind = Writer(topic, "sets-x", [0, 1], WAIT), Writer(topic, "sets-y", [1, 2], WAIT)
    apart = Writer(topic, "sets-z", [3], WAIT)
    assert expect(201, apart.answer)["partitions"] == [3]
    assert waits(wide)
    assert waits(behind)


def test_120_two_shared_holders_cannot_both_wait_for_an_exclusive_grant(cluster: LocalCluster) -> None:
    topic = created(cluster, "upgrade")
    for seat in [Writer(topic, f"upgrade-{k}", [0], SHARED) for k in range(2)]:
        refused(409, "HOLD_AND_WAIT", seat.acquire([0], WAIT))


def verdicts(topic: Topic) -> list[Any]:
    """What cases 1 to 6 answer on one topic, one after the other."""
    codes = []

    def note(answer: Answer) -> None:
        told = answer.json
        codes.append((answer.status, told.get("code"), told.get("reason"), told.get("epoch", told.get("base_offset"))))

    def writer(name: str, mode: str = "Exclusive") -> Writer:
        made = Writer(topic, f"{topic.name}-{name}", [0], mode)
        note(made.answer)
        return made

    first = writer("1")
    for mode in ("Exclusive", SHARED):
        writer(f"2-{mode}", mode)
    note(writes(first, first.answer.json))
    close(first)
    fourth, fifth = writer("4"), writer("5", WAIT)
    sixth, seventh = writer("6", FENCING), writer("7", WAIT)
    for refused_now in (writes(fourth, fourth.answer.json), ticket(fifth), writes(sixth, sixth.answer.json)):
        note(refused_now)
    close(sixth)
    note(writes(seventh, granted(seventh)))
    return codes


def test_015_readers_change_no_verdict(cluster: LocalCluster) -> None:
    alone, read = created(cluster, "alone"), created(cluster, "read")
    expected = verdicts(alone)
    assert [code for status, code, *_ in expected if status >= 400] == ["PRODUCER_BUSY"] * 2 + ["PRODUCER_FENCED"] * 2
    follow = urllib.request.Request(f"{read.records()}?offset=0&follow=true", headers={"Accept": "text/event-stream"})
    with ExitStack() as readers:
        streams = [readers.enter_context(urllib.request.urlopen(follow, timeout=60)) for _ in range(2)]
        assert verdicts(read) == expected
        for stream in streams:
            lines = iter(stream.readline, b"")
            assert [next(line for line in lines if line.startswith(b"id:")) for _ in range(3)] == [
                b"id: 0\n",
                b"id: 1\n",
                b"id: 2\n",
            ]


def test_a_grant_of_a_whole_topic_grows_with_it(cluster: LocalCluster) -> None:
    topic = created(cluster, "grows", 2)
    holder = Writer(topic, "grows-1", [0])
    release(holder)
    grant = expect(201, holder.acquire("all", "Exclusive"))
    expect(200, call("PATCH", topic.url, {"partitions": 3}))
    refused(423, "PRODUCER_BUSY", topic.append("x", 2))
    assert writes(holder, grant | {"epochs": {"2": grant["epoch"]}}, partition=2).status == 200
    again = expect(201, holder.acquire("all", "Exclusive"))
    assert (again["grant"], again["partitions"]) == (grant["grant"], [0, 1, 2])
    assert writes(holder, again, partition=2).status == 200
