"""Sessions, grants, tickets and producers over HTTP, and what a fenced writer is told."""

import asyncio
from typing import Any

import pytest

from stockade.cluster.model import NO_PRINCIPAL, By
from stockade.partition.api.ownership import Ticket
from stockade.partition.errors import LeaderNotAvailable, NotLeaderOrFollower, SessionExpired, StockadeError

from ..conversation import RECORDS, Conversation, nodes, run

GRANTS = "/v1/topics/orders/grants"


async def open_session(node: Conversation, client_id: str = "alpha") -> str:
    answer = await node.call("POST", "/v1/sessions", {"client_id": client_id, "ttl_ms": 60_000})
    assert answer.status == 201
    assert answer.headers["Location"] == "/v1/session"
    return str(answer.json["session"])


async def acquire(node: Conversation, session: str, **wanted: Any) -> Any:
    body = {"partitions": [0], "mode": "Exclusive", "producer_name": "p"} | wanted
    return await node.call("POST", GRANTS, body, {"Stockade-Session": session})


def fence(session: str, grant: Any) -> dict[str, str]:
    return {
        "Stockade-Session": session,
        "Stockade-Fence-Grant": grant["grant"],
        "Stockade-Fence-Epoch": str(grant["epoch"]),
    }


@pytest.mark.parametrize("is_in_path", [False, True], ids=["in a header", "in the path, as older clients ask"])
def test_a_session_is_opened_renewed_and_closed(is_in_path: bool) -> None:
    async def test(node: Conversation) -> None:
        session = await open_session(node)
        path = f"/v1/sessions/{session}" if is_in_path else "/v1/session"
        headers = None if is_in_path else {"Stockade-Session": session}
        renewed = await node.call("PUT", path, None, headers)
        assert (renewed.status, renewed.json["client_id"], renewed.json["ttl_ms"]) == (200, "alpha", 60_000)
        for _ in range(2):
            assert (await node.call("DELETE", path, None, headers)).status == 204
        refused = await node.call("PUT", path, None, headers)
        assert (refused.status, refused.json["code"]) == (404, "UNKNOWN_SESSION")

    run(test)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_session_that_is_not_named_is_asked_for(method: str) -> None:
    async def test(node: Conversation) -> None:
        refused = await node.call(method, "/v1/session")
        assert (refused.status, refused.json["code"]) == (400, "INVALID_REQUEST")
        assert refused.json["reason"] == "Stockade-Session: missing"

    run(test)


def test_only_the_holder_of_the_slot_writes() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        granted = await acquire(node, alpha)
        assert (granted.status, granted.json["epoch"], granted.json["epochs"]) == (201, 1, {"0": 1})
        busy = await acquire(node, beta)
        assert (busy.status, busy.json["reason"], busy.json["holder_mode"]) == (423, "exclusive_present", "Exclusive")
        assert busy.json["holder"]["client_id"] == "alpha"
        assert busy.json["detail"] == "producer p of client alpha holds the slot (Exclusive)"
        assert "WaitForExclusive" in busy.json["hint"]
        body = {"records": [{"value": "x"}]}
        assert (await node.call("POST", RECORDS, body, fence(alpha, granted.json))).status == 200
        assert (await node.call("POST", RECORDS, body)).json["code"] == "PRODUCER_BUSY"
        future = fence(alpha, granted.json | {"epoch": 9})
        assert (await node.call("POST", RECORDS, body, future)).json["code"] == "INVALID_FENCING_TOKEN"
        described = await node.call("GET", "/v1/topics/orders")
        (partition,) = described.json["partitions"]
        assert (partition["topic_epoch"], partition["slot_mode"]) == (1, "Exclusive")

    run(test)


def test_the_problem_of_a_fenced_writer_has_the_outcome_of_its_batch() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        pid = (await node.call("POST", "/v1/producers", {})).json["producer_id"]
        old = fence(alpha, (await acquire(node, alpha)).json)
        stamp = {"Stockade-Producer-Id": str(pid), "Stockade-Producer-Epoch": "0", "Stockade-Producer-Seq": "0"}
        body = {"records": [{"value": "x"}]}
        assert (await node.call("POST", RECORDS, body, old | stamp)).status == 200
        assert (await acquire(node, beta, mode="ExclusiveWithFencing", partitions="all")).json["epoch"] == 2
        fenced = await node.call("POST", RECORDS, body, old | stamp)
        assert (fenced.status, fenced.json["reason"], fenced.json["current_epoch"]) == (403, "superseded", 2)
        assert fenced.json["outcome"] == {"state": "committed", "base_offset": 0, "last_offset": 0}
        later = await node.call("POST", RECORDS, body, old | stamp | {"Stockade-Producer-Seq": "1"})
        assert later.json["outcome"]["state"] == "absent"
        without = await node.call("POST", RECORDS, body, old)
        assert "outcome" not in without.json

    run(test)


def test_a_grant_is_released_by_its_holder_alone() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        grant = (await acquire(node, alpha)).json
        path = f"/v1/grants/{grant['grant']}"
        refused = await node.call("DELETE", path, None, {"Stockade-Session": beta})
        assert (refused.status, refused.json["reason"]) == (403, "not_holder")
        for _ in range(2):
            assert (await node.call("DELETE", path, None, {"Stockade-Session": alpha})).status == 204
        late = await node.call("POST", RECORDS, {"records": [{}]}, fence(alpha, grant))
        assert (late.status, late.json["reason"]) == (403, "slot_free")

    run(test)


def test_a_grant_that_takes_long_is_a_ticket() -> None:
    async def test(node: Conversation) -> None:
        session = await open_session(node)
        answer = await acquire(node, session, producer_name="slow")
        assert (answer.status, answer.json["state"]) == (202, "installing")
        path = answer.headers["Location"]
        assert path == f"/v1/tickets/{answer.json['ticket']}"
        asked = await node.call("GET", path + "?wait_ms=10", None, {"Stockade-Session": session})
        assert (asked.status, asked.json) == (200, answer.json)
        unknown = await node.call("GET", "/v1/tickets/t-9", None, {"Stockade-Session": session})
        assert (unknown.status, unknown.json["what"]) == (404, "ticket")

    run(test)


def test_an_acquire_whose_ticket_is_cancelled_during_its_wait_says_that_it_had_effects() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        await acquire(node, alpha)
        service = node.service
        ask = service.get_ticket

        async def left(ticket: str, session: str, wait_ms: int, by: By = NO_PRINCIPAL) -> Ticket:
            del service.shared.tickets[ticket]
            return await ask(ticket, session, wait_ms, by)

        service.get_ticket = left  # type: ignore[method-assign]
        answer = await acquire(node, beta, mode="WaitForExclusive", wait_ms=1000, ticket_ttl_ms=1)
        assert (answer.status, answer.json["state"], answer.json["position"]) == (202, "cancelled", None)

    run(test)


@pytest.mark.parametrize("lost", [NotLeaderOrFollower(None, None), LeaderNotAvailable("it stops")])
def test_an_acquire_that_was_queued_is_answered_with_its_ticket_when_the_leader_goes(lost: StockadeError) -> None:
    """No leader any more, "nothing was done": untrue of an acquire that is in the queue."""

    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        await acquire(node, alpha)

        async def gone(ticket: str, session: str, wait_ms: int, by: By = NO_PRINCIPAL) -> Ticket:
            raise lost

        node.service.get_ticket = gone  # type: ignore[method-assign]
        answer = await acquire(node, beta, mode="WaitForExclusive", wait_ms=1000)
        assert (answer.status, answer.json["state"], answer.json["position"]) == (202, "waiting", 0)

    run(test)


def test_a_queued_acquire_whose_session_ended_meanwhile_does_not_say_that_nothing_was_changed() -> None:
    async def test(node: Conversation) -> None:
        alpha, beta = await open_session(node), await open_session(node, "beta")
        await acquire(node, alpha)

        async def ended(ticket: str, session: str, wait_ms: int, by: By = NO_PRINCIPAL) -> Ticket:
            raise SessionExpired

        node.service.get_ticket = ended  # type: ignore[method-assign]
        answer = await acquire(node, beta, mode="WaitForExclusive", wait_ms=1000)
        assert (answer.status, answer.json["no_side_effects"]) == (410, False)

    run(test)


def test_a_grant_of_a_deleted_topic_is_recognised() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            first = await node.topic()
            session = await open_session(node)
            old = fence(session, (await acquire(node, session)).json)
            assert (await node.call("DELETE", f"/v1/topics/orders?topic_id={first['topic_id']}")).status == 204
            second = await node.topic()
            answer = await node.call("POST", RECORDS, {"records": [{}]}, old)
            assert (answer.status, answer.json["topic_id"]) == (409, second["topic_id"])

    asyncio.run(main())


def test_a_topic_may_demand_a_fence() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("fenced", require_fence=True)
        answer = await node.call("POST", "/v1/topics/fenced/partitions/0/records", {"records": [{}]})
        assert (answer.status, answer.json["code"]) == (428, "FENCING_TOKEN_REQUIRED")

    run(test)


def test_a_producer_gets_its_pair() -> None:
    async def test(node: Conversation) -> None:
        anonymous = await node.call("POST", "/v1/producers", {"name": None})
        assert (anonymous.json["producer_epoch"], anonymous.json["name"]) == (0, None)
        first = await node.call("POST", "/v1/producers", {"name": "mirror", "nonce": "5f1a0c"})
        again = await node.call("POST", "/v1/producers", {"name": "mirror"})
        assert again.json == first.json | {"producer_epoch": 1}
        pair = {"producer_id": again.json["producer_id"], "producer_epoch": 1}
        assert (await node.call("POST", "/v1/producers", {"name": "mirror"} | pair)).json["producer_epoch"] == 2
        stale = await node.call("POST", "/v1/producers", {"name": "mirror"} | pair)
        assert (stale.status, stale.json["reason"], stale.json["current_epoch"]) == (403, "identity", 2)

    run(test)


def test_an_old_producer_epoch_is_refused_with_the_outcome() -> None:
    async def test(node: Conversation) -> None:
        pid = (await node.call("POST", "/v1/producers", {})).json["producer_id"]
        stamp = {"Stockade-Producer-Id": str(pid), "Stockade-Producer-Seq": "0"}
        body: Any = {"records": [{}]}
        assert (await node.call("POST", RECORDS, body, stamp | {"Stockade-Producer-Epoch": "1"})).status == 200
        old = await node.call("POST", RECORDS, body, stamp | {"Stockade-Producer-Epoch": "0"})
        assert (old.status, old.json["code"], old.json["current_epoch"]) == (403, "INVALID_PRODUCER_EPOCH", 1)

    run(test)
