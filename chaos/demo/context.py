"""The context that all parts of a demo run share: the cluster, the plan, the progress, and the listener to steps."""

import random
from collections.abc import Sequence
from typing import Protocol

from ...client.api.client import Client
from ..history.history import History
from ..streams.progress import Progress
from ..streams.stream import Stream
from ..system.nodes import ClusterProcesses

KILLS_AT = (0.30, 0.60)
"""Parts of the records at which a leader is killed."""
STALL_AT = 0.45
"""Part of the records at which a writer is stalled."""
GATES = (0.28, 0.44, 0.59)
"""Parts of the records at which each writer waits until all writers are there and the previous fault is over. So every
fault strikes while all writers are at work, however small the run is.
"""


class ScenarioFailed(Exception):
    """The run could not be carried out as planned; says nothing about violations."""


class ProgressListener(Protocol):
    """Is informed of the steps and the progress of a run."""

    def step(self, text: str) -> None:
        """A step begins or has ended; ``text`` names it."""
        ...

    def written(self, records: int) -> None:
        """``records`` are acknowledged so far, over all streams."""
        ...

    def read(self, records: int) -> None:
        """``records`` of all replicas are read back so far."""
        ...


class DemoContext:
    """The state that the parts of one run share."""

    def __init__(
        self,
        client: Client,
        processes: ClusterProcesses,
        history: History,
        listener: ProgressListener,
        streams: Sequence[Stream],
        *,
        topic: str,
        batch_records: int,
        seed: int,
    ) -> None:
        """``client`` is for the nemesis; each writer has one of its own, with the same configuration."""
        self.client = client
        self.processes = processes
        self.history = history
        self.listener = listener
        self.streams = streams
        self.topic = topic
        self.batch_records = batch_records
        self.progress: Progress = Progress(streams, GATES, listener.written)
        self.chance: random.Random = random.Random(seed)  # a seed replays it  # noqa: S311  # nosec B311
        self.stalled: Stream = self.chance.choice(streams)
        """The stream whose writer will be stalled."""

    def open(self, gate: float) -> None:
        self.history.note("nemesis", "open")
        self.progress.open(gate)
