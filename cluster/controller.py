"""The controller group's machine. INTERFACE ONLY for now: bodies follow in the next commits."""

from collections.abc import Sequence

from ..partition.errors import StockadeError
from .catalog import Topic
from .commands import FenceRef, GrantState, GroupId, ProducerFence, ProducerState, SessionState
from .work import Work


class ControllerMachine:
    """Implements raft.machine.Machine. ``apply`` returns commands.Result or the StockadeError instance."""

    lease_clock_ms: int
    term: int  # of the last command applied
    applied_index: int

    def apply(self, index: int, term: int, command: bytes) -> object: ...

    # catalog: Topic(name, topic_id, config, replication_factor, sealed, placements, epochs)
    def topics(self) -> list[Topic]: ...  # ascending by name
    def topic(self, name: str) -> Topic | None: ...
    def topic_by_id(self, topic_id: int) -> Topic | None: ...
    def replicas(self, group: GroupId) -> list[str] | None: ...  # node ids of a partition's group, None: gone

    # sessions and grants
    def session(self, session: str) -> SessionState | StockadeError: ...
    def next_deadline_ms(self) -> int | None: ...  # lease clock at which a Tick has something to do, a lower bound
    def grant(self, grant_id: str) -> GrantState | None: ...  # None: ended
    def ticket(self, ticket_id: str, session: str) -> GrantState | StockadeError: ...
    def grant_by_ticket(self, ticket_id: str) -> GrantState | None: ...
    def is_in_force(self, grant_id: str) -> bool | None: ...  # None: ended meanwhile. O(1)
    def is_over(self, fence: FenceRef) -> bool: ...  # O(1); Freed.fences
    def holder(self, group: GroupId) -> GrantState | None: ...

    # producers
    def producer(self, name: str) -> ProducerState | None: ...
    def producer_by_pid(self, pid: int) -> ProducerState | None: ...  # named ones only
    def is_installed(self, fence: ProducerFence) -> bool: ...  # O(1); ProducerState.pending

    # what the reconciler on the leader must do now
    def work(self) -> Sequence[Work]: ...  # ascending by group id
    def work_on(self, group: GroupId) -> Sequence[Work]: ...  # cheap

    def snapshot(self) -> bytes: ...
