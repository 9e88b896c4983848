"""The input of checkers: the operations of a history, and the final log of every replica."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from .history import Event, Operation, operations, record_name, split_name

Stamp = tuple[int, int, int]
"""Producer id, its epoch, sequence number of the record."""


class ReplicaLog(msgspec.Struct, frozen=True):
    """The whole log of one replica of one partition, column by column; row k of each column is one record."""

    node: str
    partition: int
    log_start: int
    log_end: int
    offsets: Sequence[int]
    names: Sequence[str]
    """Keys as text: ``writer/index`` for every record of ours."""
    values: Sequence[bytes]
    stamps: Sequence[Stamp | None]
    writer_epochs: Sequence[int]

    def same_as(self, other: "ReplicaLog") -> bool:
        """Whether two replicas hold the same records at the same offsets."""
        return self.columns == other.columns

    @property
    def columns(self) -> tuple[object, ...]:
        """Everything on which two replicas of a partition must agree."""
        return (
            self.log_start,
            self.log_end,
            self.offsets,
            self.names,
            self.values,
            self.stamps,
            self.writer_epochs,
        )


class Evidence(msgspec.Struct, frozen=True):
    """A finished run. ``payload`` returns the bytes that record ``index`` of ``writer`` must have; None if there is no
    such record.

    ``expected``, if given, is the number of records that each partition's log must have; the indexes along the log must
    then be 0, 1, 2, … over all writers.
    """

    operations: Sequence[Operation]
    logs: Sequence[ReplicaLog]
    payload: Callable[[str, int], bytes | None]
    expected: Mapping[int, int] | None = None
    notes: Sequence[Event] = ()
    """The events of the nemesis."""

    @classmethod
    def of(
        cls,
        events: Sequence[Event],
        logs: Sequence[ReplicaLog],
        payload: Callable[[str, int], bytes | None],
        expected: Mapping[int, int] | None = None,
    ) -> "Evidence":
        """Evidence from the events of a history."""
        notes = [event for event in events if event.type == "info" and event.of is None]
        return cls(operations(events), logs, payload, expected, notes)

    def ended(self, f: str, *outcomes: str) -> Iterator[Operation]:
        """The operations of kind ``f`` that ended in one of ``outcomes``, in order of invocation."""
        return (op for op in self.operations if op.invoke.f == f and op.outcome in outcomes)

    def distinct_logs(self) -> Iterator[ReplicaLog]:
        """For each partition one log for each different content of its replicas."""
        shown: dict[int, list[ReplicaLog]] = {}
        for log in self.logs:
            different = shown.setdefault(log.partition, [])
            if not any(log.same_as(other) for other in different):
                different.append(log)
        return (log for different in shown.values() for log in different)


def names_of(event: Event) -> list[str]:
    """The names of the records in an event."""
    runs = event.records if event.records is not None else [(event.value, event.count or 0)] if event.value else []
    return [name for first, count in runs for name in _following(first, count)]


def placed(event: Event) -> Iterator[tuple[str, int]]:
    """(name, offset) of each record in an answer; nothing if the answer has no offset."""
    if event.offset is None:
        return
    base = event.offset if event.f == "append" else event.offset - (event.count or 0)
    for k, name in enumerate(names_of(event)):
        yield name, base + k


def _following(first: str, count: int) -> Iterator[str]:
    writer, index = split_name(first)
    return (record_name(writer, index + k) for k in range(count))
