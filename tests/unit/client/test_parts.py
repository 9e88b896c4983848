"""The answer to a request for many partitions, read as it comes: in any pieces, and whatever is not a line of one."""

from typing import Any

import msgspec
import pytest

from stockade.client.api.parts import Part, PartAnswers, parts_body
from stockade.client.errors import UnreadableAnswer
from stockade.client.transport.http import Answer
from stockade.client.transport.metadata import Metadata
from stockade.partition.api.records import AppendAnswer
from stockade.partition.api.topics import Topic
from stockade.partition.commands import Stamp
from stockade.partition.errors import NotLeaderOrFollower, RequestTimedOut
from stockade.partition.records.batch import STREAM_END, STREAM_START, message_from_columns

MESSAGE = message_from_columns([None], [b"a"], [0], None)
NODE = "http://a:1"
ANSWER = Answer(200, {}, b"", "POST", NODE)


class Reading:
    """The parts of a request for partitions 0, 1 and so on, and how each was settled."""

    def __init__(self, count: int) -> None:
        async def unused(name: str, **_: object) -> Topic:
            raise AssertionError

        self.metadata = Metadata(unused)
        self.settled: dict[int, Any] = {}
        self.watched: list[Any] = []
        parts = [Part("t", 1, number, MESSAGE, Stamp(1, 0, 0)) for number in range(count)]
        self.answers = PartAnswers(NODE, parts, self._settle, self.metadata, self.watched.append)

    def _settle(self, place: int, outcome: Any) -> None:
        assert place not in self.settled, "settled twice"
        self.settled[place] = outcome


def stored(part: int) -> bytes:
    answer = AppendAnswer("t", part, 7, 7, False, 0, 0, 1)
    return msgspec.json.encode({"part": part, "stored": answer}) + b"\n"


def refused(part: int, **fields: Any) -> bytes:
    problem = {"code": "NOT_LEADER_OR_FOLLOWER", "status": 421, "detail": "x", "no_side_effects": True} | fields
    return msgspec.json.encode({"part": part, "problem": problem}) + b"\n"


def test_lines_are_read_in_whatever_pieces_they_come() -> None:
    whole = stored(1) + refused(0, leader="http://b:1") + stored(2)
    for size in (1, 7, len(whole)):
        reading = Reading(3)
        for start in range(0, len(whole), size):
            reading.answers.feed(whole[start : start + size])
        reading.answers.end(ANSWER)
        assert list(reading.settled) == [1, 0, 2]
        assert reading.settled[1].base_offset == 7
        assert isinstance(reading.settled[0], NotLeaderOrFollower)
        assert len(reading.watched) == 3


def test_leaders_named_in_the_lines_of_an_answer_are_remembered() -> None:
    reading = Reading(3)
    reading.metadata.heard("t", 0, NODE)
    reading.answers.feed(refused(0, leader="http://b:1") + stored(1) + refused(2, leader=None))
    assert [reading.metadata.leader("t", number) for number in range(3)] == ["http://b:1", NODE, None]


@pytest.mark.parametrize(
    "line",
    [
        b"<html>\n",
        b"<html>",
        b'{"part":1}\n',
        b'{"part":1,"problem":{"status":400}}\n',
        b'{"part":1,"problem":{"code":"X","status":"y"}}\n',
        b'{"part":"1","stored":{}}\n',
        b"\xff\n",
        b"\n",
    ],
)
def test_a_part_without_a_line_of_its_own_has_an_unknown_outcome(line: bytes) -> None:
    reading = Reading(2)
    reading.answers.feed(stored(0) + line)
    assert list(reading.settled) == [0]
    reading.answers.end(ANSWER)
    assert isinstance(reading.settled[1], RequestTimedOut)
    assert not reading.settled[1].no_side_effects
    if line.strip():
        assert isinstance(reading.settled[1], UnreadableAnswer)


def test_lines_for_parts_that_were_answered_or_never_sent_change_nothing() -> None:
    reading = Reading(1)
    reading.answers.feed(stored(0) + refused(0) + stored(7))
    reading.answers.end(ANSWER)
    assert list(reading.settled) == [0]


def test_the_lengths_in_the_list_find_the_streams() -> None:
    parts = [Part("t", 1, number, MESSAGE * (number + 1), Stamp(1, 0, number)) for number in range(3)]
    line, _, streams = b"".join(parts_body(parts)).partition(b"\n")
    for entry, part in zip(msgspec.json.decode(line)["parts"], parts, strict=True):
        assert streams[: entry["bytes"]] == STREAM_START + part.message + STREAM_END
        streams = streams[entry["bytes"] :]
    assert streams == b""
