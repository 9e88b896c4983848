"""A group's log on a simulated disk."""

import random

from simulation.disk import Disk, Log

from stockade.raft.log.configuration import NO_MEMBERS, Configuration
from stockade.raft.log.group_log import GroupLog
from stockade.raft.log.origin import Origin
from stockade.raft.wal.records import RecoveredGroup


class SimulatedLog:
    """A group's log over a simulated disk; the test ends each sync."""

    def __init__(self, terms: str = "", configuration: Configuration = NO_MEMBERS) -> None:
        self.syncs: list[object] = []
        self.disk = Disk(random.Random(1), lambda: 0.0)
        self.wal = Log(self.disk, lambda delay, call: self.syncs.append(call))
        self.log = GroupLog(1, self.wal, RecoveredGroup(), Origin(configuration=configuration))
        for index, term in enumerate(terms, 2):
            self.log.add(b"\x00%d" % index, index, int(term))

    def sync(self) -> None:
        """The flush in flight ends."""
        call = self.syncs.pop(0)
        assert callable(call)
        call()

    def restart(self) -> GroupLog:
        wal = Log(self.disk, lambda delay, call: None)
        return GroupLog(1, wal, wal.recovered.get(1, RecoveredGroup()))
