"""Reads whose records are dropped between being found and being read: a trim, a deletion, a checkpoint."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stockade.partition.log.interface import Slice

from ..conversation import NDJSON, RECORDS, TEXT, Conversation, run
from ..fake_partition import FakePartition

Meanwhile = Callable[[FakePartition], Any]


def drop(monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile, times: int = 1) -> None:
    """The files of what is found are gone when it is read, so many times; ``meanwhile`` is what happened."""
    read, left = FakePartition.read, [times]

    def gone(batches: Any) -> Any:
        raise FileNotFoundError

    async def found(self: FakePartition, *args: Any, **options: Any) -> Slice:
        answer = await read(self, *args, **options)
        if not left[0]:
            return answer
        left[0] -= 1
        await meanwhile(self)
        return msgspec.structs.replace(answer, fetch=gone)

    monkeypatch.setattr(FakePartition, "read", found)


async def trimmed(partition: FakePartition) -> None:
    await partition.trim(2, topic_id=None, token=None)


async def nothing(partition: FakePartition) -> None:
    pass


async def fill(node: Conversation) -> None:
    assert (await node.call("POST", RECORDS, b"a\nb\n", TEXT)).status == 200
    assert (await node.call("POST", RECORDS, b"c\n", TEXT)).status == 200


@pytest.mark.parametrize(("query", "status"), [("?offset=0", 410), ("", 200)])
def test_a_fetch_during_a_trim_says_where_the_log_begins_now(
    monkeypatch: pytest.MonkeyPatch, query: str, status: int
) -> None:
    async def test(node: Conversation) -> None:
        await fill(node)
        drop(monkeypatch, trimmed)
        answer = await node.call("GET", RECORDS + query)
        assert (answer.status, answer.json["log_start"]) == (status, 2)

    run(test)


def test_a_fetch_whose_files_were_replaced_finds_them_again_or_is_told_to_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(node: Conversation) -> None:
        await fill(node)
        drop(monkeypatch, nothing)
        assert [record["value"] for record in (await node.call("GET", RECORDS)).json["records"]] == ["a", "b", "c"]
        drop(monkeypatch, nothing, times=1000)
        assert (await node.call("GET", RECORDS)).json["code"] == "LEADER_NOT_AVAILABLE"

    run(test)


def test_a_followed_stream_whose_records_are_dropped_ends_with_a_problem_that_may_be_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(node: Conversation) -> None:
        await fill(node)
        drop(monkeypatch, trimmed)
        answer = await node.call("GET", RECORDS + "?offset=0&follow=true", None, {"Accept": NDJSON["Content-Type"]})
        assert json.loads(answer.body.splitlines()[-1])["problem"]["code"] == "LEADER_NOT_AVAILABLE"

    run(test)
