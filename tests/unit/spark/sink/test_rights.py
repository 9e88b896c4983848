"""The sink needs the rights that its page names, and no other."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from sources import ROOT

from stockade.client.blocking.writer import BlockingWriter
from stockade.client.config import Credentials
from stockade.cluster.access.principals import Access, Principal, PrincipalToken, new_token
from stockade.partition.errors import PermissionDenied
from stockade.spark.sink import committer as committers
from stockade.spark.sink.committer import SinkCommitter
from stockade.spark.sink.staging import stage_rows

from ...http_api.conversation import Conversation
from ...http_api.node_in_thread import serving

PAGE = (ROOT / "docs" / "spark-sink.md").read_text(encoding="utf-8")
RIGHTS = [
    right.replace("TARGET", "out").replace("SINK", "s")
    for right in re.findall(r"^\| `([a-z]+ [a-z]+:[^`]+)` \|", PAGE, re.MULTILINE)
]
TRIM = "trim topic:stockade-sink.s"


@contextmanager
def writer_with(rights: list[str]) -> Iterator[BlockingWriter]:
    """A writer of a principal that has these rights, to a node that has the topic ``out``."""
    root, made = new_token(), new_token()
    principals = [
        Principal("root", ["all"], [PrincipalToken(root.hash)]),
        Principal("sink", rights, [PrincipalToken(made.hash)]),
    ]

    async def prepare(node: Conversation) -> None:
        await node.call("POST", "/v1/topics", {"name": "out"}, {"Authorization": f"Bearer {root.token}"})

    with serving(prepare, Access((), principals)) as (node, _):
        writer = BlockingWriter(node.url, Credentials(token=made.token))
        try:
            yield writer
        finally:
            writer.close()


def commit(writer: BlockingWriter, batch: int = 0) -> bool:
    pieces = stage_rows([pa.record_batch({"value": [b"a", b"b"]})], writer, "out", "s~0~", 0)
    return SinkCommitter(writer, "s", "q", "r").commit(batch, pieces)


@pytest.fixture(autouse=True)
def trims_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committers, "TRIM_EVERY", 1)


def test_a_sink_commits_with_the_rights_that_the_page_lists() -> None:
    assert len(RIGHTS) == 7
    with writer_with(RIGHTS) as writer:
        assert commit(writer)


@pytest.mark.parametrize("right", [right for right in RIGHTS if right != TRIM])
def test_a_sink_that_lacks_one_of_its_rights_is_refused(right: str) -> None:
    with (
        writer_with([each for each in RIGHTS if each != right]) as writer,
        pytest.raises(PermissionDenied, match=f"lacks the right: {right.partition(' ')[0]} "),
    ):
        commit(writer)


@pytest.mark.parametrize(("batch", "told"), [(100, 1), (101, 0)])
def test_a_sink_that_may_not_trim_commits_and_says_so_every_hundred_batches(
    caplog: pytest.LogCaptureFixture, batch: int, told: int
) -> None:
    with writer_with([each for each in RIGHTS if each != TRIM]) as writer:
        assert commit(writer, batch)
    said = (record for record in caplog.records if record.name.startswith("stockade.spark"))  # nodes tell of stalls
    lines = [record.message for record in said if record.levelno >= logging.WARNING]
    assert len(lines) == told
    assert all(f"lacks the right: {TRIM}" in line for line in lines)
