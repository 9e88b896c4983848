"""Batches for many partitions in one request: its body, and the lines of its answer.

Decides nothing. Each part has its own outcome; the node sends a line of the answer as soon as a part is decided.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ...partition.api.records import AppendAnswer, PartAnswer
from ...partition.commands import Stamp, Token
from ...partition.errors import RequestTimedOut, StockadeError
from ...partition.records.batch import STREAM_END, STREAM_START
from ..errors import UnreadableAnswer, refusal_in
from ..transport.http import Answer
from ..transport.leader_watchdog import Watched
from ..transport.metadata import Metadata
from .conditions import UNCONDITIONAL, Conditions

_VERSION = 1
_FRAME_BYTES = len(STREAM_START) + len(STREAM_END)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PartAnswer)

SettlePart = Callable[[int, AppendAnswer | StockadeError], None]
"""Called with a part's index in the request, and with its answer or refusal."""


class Part(NamedTuple):
    """A batch for one partition. ``message``: an Arrow message, as partition.records makes it."""

    topic: str
    topic_id: int
    partition: int
    message: bytes
    stamp: Stamp
    token: Token | None = None
    conditions: Conditions = UNCONDITIONAL


def parts_body(parts: Sequence[Part]) -> tuple[bytes, ...]:
    """The body of the request, in pieces: a line of JSON that lists the parts, then their Arrow streams."""
    line = _encoder.encode({"version": _VERSION, "parts": [_entry(part) for part in parts]})
    pieces = [line, b"\n"]
    for part in parts:
        pieces += (STREAM_START, part.message, STREAM_END)
    return tuple(pieces)


def _entry(part: Part) -> dict[str, Any]:
    stamp, token, conditions = part.stamp, part.token, part.conditions
    entry: dict[str, Any] = {
        "topic": part.topic,
        "topic_id": part.topic_id,
        "partition": part.partition,
        "bytes": _FRAME_BYTES + len(part.message),
        "producer": {"id": stamp.pid, "epoch": stamp.epoch, "seq": stamp.first_seq},
    }
    if token is not None:
        entry["fence"] = {"grant": token.grant_id, "epoch": token.epoch, "session": token.session}
    if conditions is not UNCONDITIONAL:
        entry |= {name: value for name, value in conditions._asdict().items() if value is not None}
    return entry


class PartAnswers:
    """The parts of one request to ``node`` that have no outcome yet. Settles each part exactly once, and notes in
    ``metadata`` what its outcome says of the leader. ``done`` is called with the entry of ``watched`` of each part that
    is settled, ``on_standstill`` when the watchdog has settled the last part.
    """

    def __init__(
        self,
        node: str,
        parts: Sequence[Part],
        settle: SettlePart,
        metadata: Metadata,
        done: Callable[[Watched], None],
    ) -> None:
        self.watched: list[Watched] = [
            Watched(part.topic, part.partition, node, partial(self._stand_still, place))
            for place, part in enumerate(parts)
        ]
        self.on_standstill: Callable[[], None] = lambda: None
        self._node = node
        self._settle = settle
        self._metadata = metadata
        self._done = done
        self._open = dict(enumerate(parts))
        self._rest = b""
        self._unreadable = b""

    def feed(self, piece: bytes) -> None:
        """Settle the parts whose lines end in this piece of the answer."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._read(line)

    def end(self, answer: Answer) -> None:
        """The answer has ended: settle each part that got no line in it with an unknown outcome."""
        unreadable = self._unreadable or self._rest
        if unreadable:
            self.fail(UnreadableAnswer(answer.source, unreadable, "a line is not about a part"))
        self.fail(RequestTimedOut(f"{self._node}: the answer ended too soon; the outcome is unknown"))

    def fail(self, error: StockadeError) -> None:
        """Settle with ``error`` each part that has no outcome yet."""
        for place in list(self._open):
            self._end(place, error)

    def _read(self, line: bytes) -> None:
        try:
            answer = _decoder.decode(line)
        except msgspec.DecodeError:
            self._unreadable = self._unreadable or line
            return
        problem = answer.problem or {}
        code, status = problem.get("code"), problem.get("status")
        if answer.stored is not None:
            self._end(answer.part, answer.stored)
        elif isinstance(code, str) and isinstance(status, int):
            self._end(answer.part, refusal_in(problem, status))
        else:
            self._unreadable = self._unreadable or line

    def _stand_still(self, place: int) -> None:
        topic, _, partition, *_ = self._open[place]
        leader = self._metadata.leader(topic, partition)
        self._end(place, RequestTimedOut(f"{self._node} stands still, and {leader} leads; the outcome is unknown"))
        if not self._open:
            self.on_standstill()

    def _end(self, place: int, outcome: AppendAnswer | StockadeError) -> None:
        part = self._open.pop(place, None)
        if part is None:
            return
        self._done(self.watched[place])
        if isinstance(outcome, AppendAnswer):
            self._metadata.heard(part.topic, part.partition, self._node)
        elif outcome.metadata_stale or not outcome.no_side_effects:
            self._metadata.doubt(part.topic, part.partition, self._node)
            self._metadata.heard(part.topic, part.partition, outcome.fields.get("leader"))
        self._settle(place, outcome)
