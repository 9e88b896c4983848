"""Headers of a request that is passed on: every node answers it as its leader does."""

import asyncio

from ..conversation import ARROW, NDJSON, RECORDS, nodes


def test_the_leader_chooses_by_all_accept_headers_of_a_request_that_is_passed_on() -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            await one.call("POST", RECORDS, {"records": [{"value": "x"}]})
            accepts = [("Accept", ARROW["Content-Type"]), ("Accept", "application/json;q=0.1")]
            for node in (one, two):
                answer = await node.call("GET", RECORDS, None, accepts)
                assert answer.headers["Content-Type"] == ARROW["Content-Type"]

    asyncio.run(main())


def test_letters_beyond_ascii_in_a_header_change_no_answer_on_the_way_to_the_leader() -> None:
    async def main() -> None:
        async with nodes(2) as found:
            await found[0].topic()
            for node in found:
                stored = await node.call("POST", RECORDS, b"x", {"Content-Type": 'text/plain; from="Zoë"'})
                assert stored.status == 200
                answer = await node.call("GET", RECORDS, None, {"Accept": "é/x, application/x-ndjson"})
                assert answer.headers["Content-Type"] == NDJSON["Content-Type"]

    asyncio.run(main())
