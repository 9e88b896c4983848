"""Drives replicas of the controller in a test: every command reaches all of them as bytes, the invariants hold
after each, all replicas give one answer and make the same entries of the ledger, and a refused command changes nothing
but the time; the refusal of an act of administration may be in the ledger.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec
from memory_log import MemoryLog

from stockade.cluster.controller.acts import is_administration
from stockade.cluster.controller.commands import (
    Acquire,
    CancelTicket,
    ChangeTopic,
    CloseSession,
    Command,
    CreateTopic,
    DeleteTopic,
    Disown,
    FenceSession,
    FenceTopic,
    GrantState,
    GroupId,
    InitProducer,
    OpenSession,
    Own,
    Release,
    Result,
    Tick,
    TicketState,
    TopicCreated,
    encode_command,
)
from stockade.cluster.controller.invariants import MonotonicityCheck, check
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership.grants import Grant
from stockade.cluster.controller.ownership.work import Work
from stockade.cluster.controller.topology.catalog import group_id, topic_partition
from stockade.cluster.model import Claim
from stockade.partition import commands
from stockade.partition.api.ledger import session_handle
from stockade.partition.api.ownership import grants_digest
from stockade.partition.api.topics import Mode, TopicConfig
from stockade.partition.errors import ProducerBusy, StockadeError
from stockade.partition.state.machine import PartitionConfig, PartitionMachine

NODES: list[tuple[str, str | None]] = [("n1", None), ("n2", None), ("n3", None)]
TTL_MS = 10_000
MODES: tuple[Mode, ...] = get_args(Mode)
EXCLUSIVE_MODES = MODES[1:]


class Driver:
    """``now_ms`` is the leader's lease clock; ``term`` its term."""

    def __init__(self, replicas: int = 1) -> None:
        self.machines = [ControllerMachine() for _ in range(replicas)]
        self.machine = self.machines[0]
        self.index = 0
        self.term = 1
        self.now_ms = 0
        self.log: list[tuple[int, bytes]] = []
        self._monotonicity = MonotonicityCheck()
        self.twin = ControllerMachine()  # is told the time only, where the others refuse

    def do(self, command: Command) -> Result | StockadeError:
        """Apply on every replica; the one answer."""
        self.index += 1
        data = encode_command(command)
        self.log.append((self.term, data))
        answers = [machine.apply(self.index, self.term, data) for machine in self.machines]
        assert all(answer == answers[0] for answer in answers)
        refused = isinstance(answers[0], StockadeError)
        assert len({machine.ledger.head for machine in self.machines}) == 1, "replicas have other entries"
        is_told = self.machine.ledger.is_recording and is_administration(command)
        told = encode_command(Tick(now_ms=command.now_ms)) if refused and not is_told else data
        self.twin.apply(self.index, self.term, told)
        if refused:
            assert self.machine.capture().state == self.twin.capture().state, "a refused command changed something"
        check(self.machine)
        self._monotonicity.check(self.machine)
        return answers[0]

    def fail_over(self) -> None:
        """Another leader, that begins from a checkpoint. Sessions are re-armed by its first command."""
        captured = self.machine.capture()
        restored = ControllerMachine()
        restored.restore(Path("unused"), captured.state, captured.files)
        assert restored.capture().state == captured.state
        self.machine = self.machines[0] = restored
        self.tick(self.now_ms, term=self.term + 1)

    def topic(self, name: str = "t", partitions: int = 2, replicas: int | None = None) -> int:
        """Create a topic; its id."""
        answer = self.do(
            CreateTopic(
                now_ms=self.now_ms,
                name=name,
                partitions=partitions,
                replication_factor=replicas,
                config=TopicConfig(),
                nodes=NODES,
            )
        )
        assert isinstance(answer, TopicCreated)
        return answer.topic_id

    def delete(self, name: str = "t", topic_id: int | None = None) -> Result | StockadeError:
        return self.do(DeleteTopic(now_ms=self.now_ms, name=name, topic_id=topic_id))

    def open(self, session: str, ttl_ms: int = TTL_MS) -> Result | StockadeError:
        return self.do(OpenSession(now_ms=self.now_ms, session=session, client_id=f"c-{session}", ttl_ms=ttl_ms))

    def close(self, session: str) -> Result | StockadeError:
        return self.do(CloseSession(now_ms=self.now_ms, session=session))

    def fence_session(
        self,
        session: str,
        *,
        reason: str | None = None,
        if_grants: Sequence[str] | None = None,
        if_resources: int | None = None,
    ) -> Result | StockadeError:
        order = FenceSession(now_ms=self.now_ms, handle=session_handle(session), reason=reason)
        digest = None if if_grants is None else grants_digest(if_grants)
        return self.do(msgspec.structs.replace(order, if_grants=digest, if_resources=if_resources))

    def tick(self, now_ms: int, term: int | None = None) -> None:
        self.now_ms = now_ms
        self.term = term or self.term
        self.do(Tick(now_ms=now_ms))

    def acquire(
        self,
        session: str,
        partitions: Sequence[int] | None = (0,),
        mode: str = "Exclusive",
        *,
        name: str = "p",
        topic: str = "t",
        topic_id: int | None = None,
        resume: int | None = None,
        ttl_ms: int | None = None,
    ) -> Result | StockadeError:
        return self.do(
            Acquire(
                now_ms=self.now_ms,
                session=session,
                topic=topic,
                partitions=None if partitions is None else list(partitions),
                mode=mode,
                producer_name=name,
                topic_id=topic_id,
                resume_epoch=resume,
                ticket_ttl_ms=ttl_ms,
            )
        )

    def granted(
        self,
        session: str,
        partitions: Sequence[int] | None = (0,),
        mode: str = "Exclusive",
        resume: int | None = None,
    ) -> GrantState:
        """Acquire, and the grant; a refusal fails the test."""
        answer = self.acquire(session, partitions, mode, resume=resume)
        assert isinstance(answer, GrantState), answer
        return answer

    def waiting(self, session: str, partitions: Sequence[int] | None = (0,), resume: int | None = None) -> TicketState:
        """Get in line, and the ticket; anything else fails the test."""
        answer = self.acquire(session, partitions, "WaitForExclusive", resume=resume)
        assert isinstance(answer, TicketState), answer
        return answer

    def cancel(self, session: str, ticket_id: str) -> Result | StockadeError:
        return self.do(CancelTicket(now_ms=self.now_ms, session=session, ticket_id=ticket_id))

    def own(
        self,
        session: str,
        *claims: str | tuple[str, int | None],
        group: str = "g",
        atomic: bool = True,
        sever: Literal["session", "resource"] = "session",
    ) -> Result | StockadeError:
        """Claims are resources, or (resource, generation)."""
        made = [Claim(claim) if isinstance(claim, str) else Claim(*claim) for claim in claims]
        return self.do(Own(now_ms=self.now_ms, session=session, group=group, claims=made, atomic=atomic, sever=sever))

    def disown(self, session: str, *resources: str, group: str = "g") -> Result | StockadeError:
        return self.do(Disown(now_ms=self.now_ms, session=session, group=group, resources=list(resources)))

    def change(
        self, name: str = "t", partitions: int | None = None, *, seal: bool = False, **config: object
    ) -> Result | StockadeError:
        return self.do(
            ChangeTopic(
                now_ms=self.now_ms,
                name=name,
                topic_id=None,
                partitions=partitions,
                seal=seal,
                config=config,
                nodes=NODES,
            )
        )

    def fence(
        self, partitions: Sequence[int] | None = None, topic: str = "t", reason: str | None = None
    ) -> Result | StockadeError:
        numbers = None if partitions is None else list(partitions)
        return self.do(FenceTopic(now_ms=self.now_ms, topic=topic, partitions=numbers, reason=reason))

    def release(self, session: str, grant_id: str) -> Result | StockadeError:
        return self.do(Release(now_ms=self.now_ms, session=session, grant_id=grant_id))

    def init(
        self,
        name: str | None,
        pair: tuple[int, int] | None = None,
        nonce: str | None = None,
    ) -> Result | StockadeError:
        return self.do(InitProducer(now_ms=self.now_ms, name=name, pair=pair, nonce=nonce))

    def epochs(self, name: str = "t") -> list[int]:
        topic = self.machine.catalog.topic(name)
        assert topic is not None
        return topic.epochs

    def grant(self, grant_id: str) -> GrantState | None:
        """A live grant."""
        return self._state(self.machine.slots.grants.by_id.get(grant_id))

    def holder(self, group: GroupId) -> GrantState | None:
        """The exclusive grant of a partition."""
        return self._state(self.machine.slots.grants.holders.get(group))

    def _state(self, grant: Grant | None) -> GrantState | None:
        state = self.machine.slots.state(grant) if grant is not None else None
        assert state is None or isinstance(state, GrantState)
        return state

    def holders(self, name: str = "t") -> list[str | None]:
        """Session that holds each partition."""
        topic = self.machine.catalog.topic(name)
        assert topic is not None
        holders = [self.holder(group) for group in topic.groups()]
        return [holder.session if holder is not None else None for holder in holders]


class House(Driver):
    """A driver with the partitions as well: what is to be told to them is told, in order, when ``settle`` is
    called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.partitions: dict[GroupId, PartitionMachine] = {}

    def partition(self, group: GroupId) -> PartitionMachine:
        """Made when it is first asked for."""
        topic_id, _ = topic_partition(group)
        return self.partitions.setdefault(group, PartitionMachine(PartitionConfig(topic_id=topic_id), MemoryLog()))

    def tell(self, work: Work) -> Command | None:
        """What the partition's answer to this work gives to report."""
        answer = self.partition(work.group_id).apply(0, 1, commands.encode_command(work.command))
        return work.report(answer, self.now_ms)  # type: ignore[arg-type]

    def settle(self) -> None:
        """As the reconciler does when nothing fails, until nothing is left to do."""
        while work := next(self.machine.work(), None):
            report = self.tell(work)
            assert report is not None
            self.do(report)

    def append(
        self, grant: GrantState | None, partition: int, stamp: commands.Stamp | None = None
    ) -> commands.Result | StockadeError:
        """One batch for topic "t", with the token of this grant, or without."""
        topic = self.machine.catalog.topic("t")
        assert topic is not None
        token = token_of(grant, partition) if grant is not None else None
        batch = commands.Append(b"x", 1, zlib.crc32(b"x"), 0, 0, token=token, stamp=stamp)
        machine = self.partition(group_id(topic.topic_id, partition))
        return machine.apply(0, 1, commands.encode_command(batch))

    def may_write(self, grant: GrantState | None, partition: int) -> bool:
        return isinstance(self.append(grant, partition), commands.Appended)


def token_of(grant: GrantState, partition: int) -> commands.Token:
    """What its holder writes with."""
    return commands.Token(grant.grant_id, grant.epochs[grant.partitions.index(partition)], grant.session)


def house(partitions: int = 2, sessions: str = "abc") -> House:
    made = House()
    made.topic(partitions=partitions)
    for session in sessions:
        made.open(session)
    return made


def busy(epoch: int | None, mode: str = "Exclusive") -> ProducerBusy:
    return ProducerBusy(reason="exclusive_present", holder_mode=mode, current_epoch=epoch, queue_len=0)
