"""Computes the figures of the report from a demo run: its history, logs and the times of its faults. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from ..checkers.verdicts import Verdict
from ..history.evidence import Evidence
from ..history.history import Operation
from ..history.timeline import NS, outage, throughput
from ..streams.stream import Stream
from .leader_kills import LeaderKill
from .plot import Mark, Pause
from .report import Killing, Run, Takeover
from .takeover import Replacement

BUCKETS = 120
"""Approximate number of points of the throughput curve."""


class Findings(msgspec.Struct, frozen=True):
    """The results of a finished run."""

    evidence: Evidence
    verdicts: Sequence[Verdict]
    strikes: Sequence[LeaderKill]
    replacement: Replacement
    streams: Sequence[Stream]
    stalled: Stream
    opened_ns: Sequence[int]
    """When each gate opened."""
    readback_s: float
    nodes: int

    @property
    def start_ns(self) -> int:
        """When the first append began."""
        return min(op.invoke.t_mono_ns for op in self.evidence.ended("append", "ok"))

    @property
    def end_ns(self) -> int:
        """When the last append was acknowledged."""
        return max(op.end.t_mono_ns for op in self.evidence.ended("append", "ok") if op.end is not None)

    def seconds(self, t_ns: int) -> float:
        """A time of the history, in seconds from the first append on."""
        return (t_ns - self.start_ns) / NS


def findings(found: Findings, *, source: str, seed: int, batch_records: int) -> Run:
    """The content of the report."""
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
    """The pause at each gate: from the last acknowledgement before the gate opened to its opening."""
    ends = sorted(op.end.t_mono_ns for op in prompt if op.invoke.f == "append" and op.outcome == "ok" and op.end)
    for opened_ns in found.opened_ns:
        before = bisect_left(ends, opened_ns)
        if before:
            yield Pause(found.seconds(ends[before - 1]), found.seconds(opened_ns))


def _is_late(op: Operation, found: Findings) -> bool:
    """Whether the stalled writer received this answer only after SIGCONT, so that its delay is not the cluster's."""
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
