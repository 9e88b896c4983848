"""The history of a run: events in JSON lines, invocations paired with their ends, and the names and bytes of records.

Times are CLOCK_MONOTONIC, which all processes of a machine share, so that events of a child process can be merged. A
record's bytes follow from its name (``payload``), so that any reader can check them. checkers/ judges histories; this
module does not.
"""

import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

import msgspec

from ...partition.errors import StockadeError

Kind = Literal["invoke", "ok", "fail", "info"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of a history. ``docs/chaos.md`` lists the operations (``f``) and their fields.

    ``invoke`` begins an operation; ``ok`` ends it, ``fail`` ends it with the proof that it changed nothing,
    ``info`` says that its outcome is unknown, or, without ``of``, is an event of the nemesis. ``value`` names the
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
    """Append, poll, commit: the epoch of the token, or the fence_epoch, that was sent. Acquire, share, own: the epoch
    granted. Epoch: the topic epoch in the answer. Release: that of the grant.
    """
    producer_id: int | None = None
    producer_epoch: int | None = None
    seq: int | None = None
    value: str | None = None
    count: int | None = None
    offset: int | None = None
    """Append: the offset of its first record. Fetch: log_end of the answer; ``value`` names the records before it.
    Poll: where the read starts (``invoke``), the offset after the answer (``ok``). Commit, position: the position.
    """
    log_end: int | None = None
    """log_end in the answer of a poll."""
    records: list[tuple[str, int]] | None = None
    """The records in the answer of a poll, in order, as runs: (name of the first record, count)."""
    resource: str | None = None
    """Own: the resource claimed. Append of an owner: its resource. Commit, position: the group."""
    generation: int | None = None
    node: str | None = None
    error: str | None = None
    """The code of the refusal, or the type and message of another exception. Nemesis: what is broken or healed, in
    words. ``invoke`` of an acquire or share: the access mode.
    """
    outcome: dict[str, Any] | None = None
    """Certificate in a fencing refusal: state, base_offset, last_offset (SEMANTICS 7.6)."""


class Operation(msgspec.Struct, frozen=True):
    """An invocation and its end; without an end (no answer came) the outcome is unknown."""

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


def refusal_kind(error: BaseException) -> Kind:
    """``fail`` if it is certain that nothing was changed, otherwise ``info``, an unknown outcome.

    A batch that was sent more than once may be stored although its last attempt was refused: its certificate decides.
    """
    if not isinstance(error, StockadeError) or not error.no_side_effects:
        return "info"
    outcome = error.fields.get("outcome") or {"state": "absent"}
    return "fail" if outcome["state"] == "absent" else "info"


def refusal_fields(error: BaseException) -> dict[str, Any]:
    """The fields of an event that ends an operation with ``error``."""
    if not isinstance(error, StockadeError):
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": error.code, "outcome": error.fields.get("outcome")}


class History:
    """Writes events as they happen, and holds them for the checkers. Not thread-safe."""

    def __init__(self, sink: IO[bytes], clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """``sink`` gets the lines; ``close`` closes it."""
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        """The number of operations that began (``invoke``) and that ended in each way, over all events written."""
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
        """Record that an operation begins."""
        return self._add(process, "invoke", f, fields)

    def settle(self, invoked: Event, kind: Kind, **fields: Any) -> Event:
        """Record the end of the operation that ``invoked`` began; its topic and partition are copied, and of an
        append the records and the epoch.
        """
        about = {"topic": invoked.topic, "partition": invoked.partition, "of": invoked.i}
        if invoked.f == "append":
            about |= {"value": invoked.value, "count": invoked.count, "epoch": invoked.epoch}
        return self._add(invoked.process, kind, invoked.f, about | fields)

    def settle_error(self, invoked: Event, error: BaseException) -> Event:
        """Record that the operation ended with an exception."""
        return self.settle(invoked, refusal_kind(error), **refusal_fields(error))

    @contextmanager
    def refusals_of(self, invoked: Event) -> Iterator[None]:
        """Record the StockadeError that ends the block as the end of the operation."""
        try:
            yield
        except StockadeError as error:
            self.settle_error(invoked, error)
            raise

    def note(self, process: str, f: str, **fields: Any) -> Event:
        """Record an event that is no client's operation: one of the nemesis."""
        return self._add(process, "info", f, fields)

    def absorb(self, foreign: Event) -> Event:
        """Add an event of a child's history under a number of this one; an invocation must come before its end."""
        number = self._next
        self._renumbered[foreign.process, foreign.i] = number
        of = None if foreign.of is None else self._renumbered[foreign.process, foreign.of]
        return self._store(msgspec.structs.replace(foreign, i=number, of=of))

    def take(self) -> list[Event]:
        """Return the events held so far, and hold them no longer. Numbering continues."""
        taken, self.events = self.events, []
        return taken

    def flush(self) -> None:
        """Return when every line so far is in the file."""
        self._sink.flush()

    def close(self) -> None:
        """Write every line to the file, and close it."""
        self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, process: str, kind: Kind, f: str, fields: dict[str, Any]) -> Event:
        return self._store(Event(i=self._next, t_mono_ns=self._clock_ns(), process=process, type=kind, f=f, **fields))

    def _store(self, event: Event) -> Event:
        self._next += 1
        if event.type == "invoke" or event.of is not None:
            self.counts[event.type] += 1
        self.events.append(event)
        self._sink.write(self._encoder.encode(event) + b"\n")
        return event


LENGTH_MIN = 24
SPREAD = 180
"""Lengths vary by this many bytes, so that the records of a batch differ in length."""
SIZE_MARK = "~"
"""In a writer's name the length of its records follows this mark: ``catch-up.1@0~4096``."""


def payload(writer: str, index: int) -> bytes | None:
    """The bytes that record ``index`` of ``writer`` must have; None if no writer has such a name."""
    if not writer or index < 0:
        return None
    name = record_name(writer, index).encode()
    check = zlib.crc32(name)
    return (b"%s %08x;" % (name, check) * (_length(writer, check) // (len(name) + 10) + 1))[: _length(writer, check)]


def _length(writer: str, check: int) -> int:
    _, mark, size = writer.rpartition(SIZE_MARK)
    return int(size) if mark and size.isdecimal() else LENGTH_MIN + check % SPREAD
