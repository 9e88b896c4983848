"""What happened in a run, one event a line, as the harness saw it.

Owns the form of the history (JSON lines) and the pairing of invocations with their ends. It never judges:
checkers.py does. Times are CLOCK_MONOTONIC, which all processes of one machine share, so that events of a
writer in another process fall into place.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

import msgspec

from ..partition.errors import StockadeError

Kind = Literal["invoke", "ok", "fail", "info"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of a history. ``docs/chaos.md`` lists the operations (``f``) and what each says in which field.

    ``invoke`` begins an operation; ``ok`` ends it, ``fail`` ends it with the proof that it changed nothing,
    ``info`` says that its outcome is unknown, or, without ``of``, what the nemesis did. ``value`` names the
    first record of an append or fetch as ``writer/index``; ``count`` records follow each other from there.
    Names are unique in a run.
    """

    i: int
    t_mono_ns: int
    process: str
    type: Kind
    f: str
    of: int | None = None
    """``i`` of the invocation that this event ends."""
    topic: str | None = None
    partition: int | None = None
    epoch: int | None = None
    """Fencing epoch under which an append was sent, or which an acquire was granted."""
    producer_id: int | None = None
    producer_epoch: int | None = None
    seq: int | None = None
    value: str | None = None
    count: int | None = None
    offset: int | None = None
    """Of an append: its first offset. Of a fetch: log_end as answered; ``value`` names what lies before it. Of a poll:
    from where it was asked, and behind what was answered. Of a position: itself.
    """
    log_end: int | None = None
    """Of a poll, as answered."""
    records: list[tuple[str, int]] | None = None
    """What a poll was answered, in order: (name of the first record, how many of that writer follow each other)."""
    resource: str | None = None
    """What an own claimed; the group whose position it is."""
    generation: int | None = None
    node: str | None = None
    error: str | None = None
    """Code of the refusal; of the nemesis: what is broken or healed, for people."""
    outcome: dict[str, Any] | None = None
    """Certificate in a fencing refusal: state, base_offset, last_offset (SEMANTICS 7.6)."""


class Operation(msgspec.Struct, frozen=True):
    """An invocation and its end; no end means that the process never heard, which is an unknown outcome."""

    invoke: Event
    end: Event | None

    @property
    def outcome(self) -> Kind:
        """``ok``, ``fail`` or ``info``."""
        return self.end.type if self.end is not None else "info"


def record_name(writer: str, index: int) -> str:
    """Name of a record: unique in a run, carried as its key."""
    return f"{writer}/{index}"


def split_name(name: str) -> tuple[str, int]:
    """Inverse of record_name. Raises ValueError on a key that no writer of ours made."""
    writer, slash, index = name.rpartition("/")
    if not slash:
        raise ValueError(f"{name!r} is not the name of a record")
    return writer, int(index)


def operations(events: Iterable[Event]) -> list[Operation]:
    """Invocations in order, each with the event that ended it."""
    events = list(events)
    ends = {event.of: event for event in events if event.of is not None}
    return [Operation(event, ends.get(event.i)) for event in events if event.type == "invoke"]


def read_history(path: Path) -> list[Event]:
    """The events of a history file. Raises msgspec.DecodeError (a ValueError) on a line that is none."""
    decoder = msgspec.json.Decoder(Event)
    with path.open("rb") as lines:
        return [decoder.decode(line) for line in lines]


def refusal_kind(error: BaseException) -> Kind:
    """``fail`` when it is certain that nothing was changed; anything else is of unknown outcome.

    A batch that was sent more than once may be stored although its last attempt was refused: the certificate tells.
    """
    if not isinstance(error, StockadeError) or not error.no_side_effects:
        return "info"
    outcome = error.fields.get("outcome") or {"state": "absent"}
    return "fail" if outcome["state"] == "absent" else "info"


def refusal_fields(error: BaseException) -> dict[str, Any]:
    """What an event that ends an operation with ``error`` says about it."""
    if not isinstance(error, StockadeError):
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": error.code, "outcome": error.fields.get("outcome")}


class History:
    """Writes events as they happen and keeps them for the checkers. Not for several threads."""

    def __init__(self, sink: IO[bytes], clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """``sink`` takes the lines and belongs to the caller until ``close``."""
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        """How many operations began (``invoke``) and ended how, over everything written so far."""
        self._next = 0
        self._sink = sink
        self._clock_ns = clock_ns
        self._encoder = msgspec.json.Encoder()
        self._renumbered: dict[tuple[str, int], int] = {}

    @classmethod
    def create(cls, path: Path) -> Self:
        """A history in a new file; an old one of that name is replaced."""
        return cls(path.open("wb"))

    def invoke(self, process: str, f: str, **fields: Any) -> Event:
        """An operation begins."""
        return self._add(process, "invoke", f, fields)

    def settle(self, invoked: Event, kind: Kind, **fields: Any) -> Event:
        """The operation that ``invoked`` began has ended; where and what it was is carried over."""
        about = {"topic": invoked.topic, "partition": invoked.partition, "of": invoked.i}
        if invoked.f == "append":
            about |= {"value": invoked.value, "count": invoked.count, "epoch": invoked.epoch}
        return self._add(invoked.process, kind, invoked.f, about | fields)

    def settle_error(self, invoked: Event, error: BaseException) -> Event:
        """The operation ended with an exception."""
        return self.settle(invoked, refusal_kind(error), **refusal_fields(error))

    def note(self, process: str, f: str, **fields: Any) -> Event:
        """Something that is not an operation of a client: the nemesis at work."""
        return self._add(process, "info", f, fields)

    def absorb(self, foreign: Event) -> Event:
        """Take over an event of another process's history under a number of ours; ends after beginnings."""
        number = self._next
        self._renumbered[foreign.process, foreign.i] = number
        of = None if foreign.of is None else self._renumbered[foreign.process, foreign.of]
        return self._keep(msgspec.structs.replace(foreign, i=number, of=of))

    def take(self) -> list[Event]:
        """The events kept until now, which are kept no longer; those to come go on with the numbers."""
        taken, self.events = self.events, []
        return taken

    def flush(self) -> None:
        """Every line until now is in the file."""
        self._sink.flush()

    def close(self) -> None:
        """Every line is in the file when this returns."""
        self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, process: str, kind: Kind, f: str, fields: dict[str, Any]) -> Event:
        return self._keep(Event(i=self._next, t_mono_ns=self._clock_ns(), process=process, type=kind, f=f, **fields))

    def _keep(self, event: Event) -> Event:
        self._next += 1
        if event.type == "invoke" or event.of is not None:
            self.counts[event.type] += 1
        self.events.append(event)
        self._sink.write(self._encoder.encode(event) + b"\n")
        return event
