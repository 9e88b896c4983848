"""What every part of a demo run works with: the cluster, the plan, the progress, and where to report."""

import random
from collections.abc import Sequence
from typing import Protocol

from ..client.admin import Client
from .history import History
from .nodes import ClusterProcesses
from .progress import Progress
from .streams import Stream

KILLS_AT = (0.30, 0.60)
"""Parts of the records at which a leader is killed."""
STALL_AT = 0.45
"""Part of the records at which a writer is stalled."""
GATES = (0.28, 0.44, 0.59)
"""Parts beyond which nobody writes before everybody is there and the fault of before is over, so that every fault
strikes writers at work, however small the run is.
"""


class ScenarioFailed(Exception):
    """The run could not be carried out as planned; says nothing about violations."""


class Audience(Protocol):
    """Whoever watches a run."""

    def step(self, text: str) -> None:
        """Something begins or has happened."""
        ...

    def written(self, records: int) -> None:
        """So many records are acknowledged, of all."""
        ...

    def read(self, records: int) -> None:
        """So many records of all replicas are read back."""
        ...


class Scene:
    """Shared by the parts of one run."""

    def __init__(
        self,
        client: Client,
        processes: ClusterProcesses,
        history: History,
        audience: Audience,
        streams: Sequence[Stream],
        *,
        topic: str,
        batch_records: int,
        seed: int,
    ) -> None:
        """``client`` serves the nemesis; each writer has its own, with the same configuration."""
        self.client = client
        self.processes = processes
        self.history = history
        self.audience = audience
        self.streams = streams
        self.topic = topic
        self.batch_records = batch_records
        self.progress: Progress = Progress(streams, GATES, audience.written)
        self.chance: random.Random = random.Random(seed)  # noqa: S311
        self.stalled: Stream = self.chance.choice(streams)
        """The stream whose writer will be stalled."""

    def open(self, gate: float) -> None:
        """Let the writers go beyond a gate."""
        self.history.note("nemesis", "open")
        self.progress.open(gate)
