"""The fingerprint of a run: of every message and of every event of a process, with its time and what came of it."""

import hashlib

from simulation.schedule import Run
from simulation.world import Process

from stockade.raft.messages import RaftMessage


class Trace:
    """Listens to a run from before it begins."""

    def __init__(self, run: Run) -> None:
        self._world = run.world
        self._hash = hashlib.blake2b(digest_size=8)
        self._check, self._sent = run.world.checker.check, run.world.network.on_sent
        run.world.checker.check = self._event  # type: ignore[method-assign]
        run.world.network.on_sent = self._message
        self.events = 0

    @property
    def fingerprint(self) -> str:
        """So far."""
        return self._hash.hexdigest()

    def _event(self, process: Process) -> None:
        ends = [(group.term, group.commit_index, group.applied_index) for group in process.groups.values()]
        self._take((self._world.now, process.node_id, ends))
        self._check(process)

    def _message(self, source: str, target: str, group_id: int, message: RaftMessage) -> None:
        self._take((self._world.now, source, target, group_id, message))
        self._sent(source, target, group_id, message)

    def _take(self, event: tuple[object, ...]) -> None:
        self.events += 1
        self._hash.update(repr(event).encode())
