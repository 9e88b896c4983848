"""Turns what a demo run left behind (history, logs, times of its faults) into the figures of the report. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from .checkers import Verdict
from .evidence import Evidence
from .history import Operation
from .nemesis import Strike
from .plot import Mark, Pause
from .report import Killing, Run, Takeover
from .streams import Stream
from .takeover import Replacement
from .timeline import NS, outage, throughput

BUCKETS = 120
"""Points of the throughput curve, about."""


class Findings(msgspec.Struct, frozen=True):
    """Everything about a finished run that the report is made of."""

    evidence: Evidence
    verdicts: Sequence[Verdict]
    strikes: Sequence[Strike]
    replacement: Replacement
    streams: Sequence[Stream]
    stalled: Stream
    opened_ns: Sequence[int]
    """When each gate opened."""
    readback_s: float
    nodes: int

    @property
    def start_ns(self) -> int:
        """The first append."""
        return min(op.invoke.t_mono_ns for op in self.evidence.ended("append", "ok"))

    @property
    def end_ns(self) -> int:
        """The last acknowledgement."""
        return max(op.end.t_mono_ns for op in self.evidence.ended("append", "ok") if op.end is not None)

    def seconds(self, t_ns: int) -> float:
        """A time of the history, in seconds from the first append on."""
        return (t_ns - self.start_ns) / NS


def payload_of(streams: Sequence[Stream]) -> Callable[[str, int], bytes | None]:
    """Which bytes each record of a run must have: a stream's line, by its writer or by its successor."""
    writers = {name: stream for stream in streams for name in (stream.name, stream.successor)}

    def payload(writer: str, index: int) -> bytes | None:
        stream = writers.get(writer)
        return stream.line(index) if stream is not None and 0 <= index < stream.records else None

    return payload


def findings(found: Findings, *, source: str, seed: int, batch_records: int) -> Run:
    """The report's figures."""
    streams, logs = found.streams, found.evidence.logs
    seconds = found.seconds(found.end_ns)
    prompt = [op for op in found.evidence.operations if not _is_late(op, found)]
    return Run(
        source=source,
        seed=seed,
        nodes=found.nodes,
        partitions=len(streams),
        records=sum(stream.records for stream in streams),
        bytes=sum(len(stream.line(k)) for stream in streams for k in range(stream.records)),
        rounds=sum(stream.rounds for stream in streams) / len(streams),
        batch_records=batch_records,
        seconds=seconds,
        readback_s=found.readback_s,
        replicas=len(logs),
        records_compared=sum(len(log.names) for log in logs),
        killings=list(_killings(found, prompt)),
        takeover=_takeover(found),
        verdicts=found.verdicts,
        rates=throughput(prompt, found.start_ns, max(seconds / BUCKETS, 0.05)),
        marks=list(_marks(found)),
        pauses=list(_pauses(found, prompt)),
    )


def _pauses(found: Findings, prompt: Sequence[Operation]) -> Iterator[Pause]:
    """From the last acknowledgement before a gate opened to its opening."""
    ends = sorted(op.end.t_mono_ns for op in prompt if op.invoke.f == "append" and op.outcome == "ok" and op.end)
    for opened_ns in found.opened_ns:
        before = bisect_left(ends, opened_ns)
        if before:
            yield Pause(found.seconds(ends[before - 1]), found.seconds(opened_ns))


def _is_late(op: Operation, found: Findings) -> bool:
    """An answer that reached the stalled writer after it was woken up: it says nothing about the cluster's pace."""
    return (
        op.invoke.process == found.stalled.name
        and op.end is not None
        and op.end.t_mono_ns >= found.replacement.stalled_ns
    )


def _killings(found: Findings, prompt: Sequence[Operation]) -> Iterator[Killing]:
    ends = [found.replacement.stalled_ns, found.end_ns]
    for strike, until_ns in zip(found.strikes, ends, strict=True):
        yield Killing(
            node=strike.node,
            partition=strike.partition,
            at_s=found.seconds(strike.at_ns),
            back_s=found.seconds(strike.back_ns),
            outage=outage(prompt, strike.led, strike.at_ns, until_ns),
            failovers=strike.failovers,
        )


def _takeover(found: Findings) -> Takeover:
    times = found.replacement
    zombies = {found.stalled.name, found.stalled.zombie}
    after = [
        op.end
        for op in found.evidence.operations
        if op.invoke.process in zombies and op.end is not None and op.end.t_mono_ns >= times.resumed_ns
    ]
    refusals = [end for end in after if end.error == "PRODUCER_FENCED"]
    attempts = [end for end in after if end.process == found.stalled.zombie]
    return Takeover(
        partition=found.stalled.partition,
        stalled_s=found.seconds(times.stalled_ns),
        granted_s=found.seconds(times.granted_ns),
        resumed_s=found.seconds(times.resumed_ns),
        log_end=times.log_end,
        late_acks=sum(end.type == "ok" and end.process == found.stalled.name for end in after),
        attempts=len(attempts),
        refused=sum(end.error == "PRODUCER_FENCED" for end in attempts),
        first_refusal_s=min(((end.t_mono_ns - times.resumed_ns) / NS for end in refusals), default=None),
        certificates=dict(Counter(end.outcome["state"] for end in refusals if end.outcome)),
    )


def _marks(found: Findings) -> Iterator[Mark]:
    times = found.replacement
    moments = [(strike.at_ns, f"kill -9 {strike.node}", "fault") for strike in found.strikes]
    moments += [(strike.back_ns, f"{strike.node} ready", "heal") for strike in found.strikes]
    moments += [
        (times.stalled_ns, "writer stalled", "fault"),
        (times.granted_ns, "taken over", "takeover"),
        (times.resumed_ns, "zombie resumed", "fault"),
    ]
    return (Mark(found.seconds(at_ns), label, kind) for at_ns, label, kind in sorted(moments))
