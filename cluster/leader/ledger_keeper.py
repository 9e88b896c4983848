"""Begins the ledger, keeps its topic, and copies to it what the controller's state has recorded.

Runs on every member of the controller group and acts only on the leader. It keeps no state: the entries to be copied
are in the replicated state (controller/ledger.py, which argues why each entry is copied exactly once).
"""

import asyncio
import logging
import time

import msgspec

from ...partition.api.ledger import LedgerEntry
from ...partition.api.topics import REPLICATION_FACTOR_DEFAULT, TopicConfig
from ...partition.commands import Append, Appended, Result, decode_result, encode_command
from ...partition.errors import OffsetMismatch, StockadeError
from ...partition.internal_names import LEDGER_TOPIC
from ...partition.records.batch import batch_from_columns
from ..condition import aligned_s
from ..config import LedgerSection
from ..controller.commands import Arranged, Done, Reassign, TopicChanged, TopicCreated
from ..controller.ledger import KeepLedger, LedgerCopied
from ..controller.topology.catalog import Topic, group_id
from ..controller.topology.placement import default_factor
from ..groups import Router
from .controller_group import ControllerGroup, quietly

PERIOD_S = 1.0
"""Between two looks at the topic, if nothing is recorded meanwhile; and before a copy that was refused is repeated."""
PAUSE_S = 0.25
"""Before a copy, so that entries share one: a grant makes several, and a copy costs two commits."""
COPY_ENTRIES_MAX = 2_000
COPY_BYTES_MAX = 512 * 1024
COPY_TIMEOUT_S = 5.0
ROOM_BYTES = 1024 * 1024
"""Bytes of a message on top of its entries: one entry has 130 KiB at most."""
FOUNDING_S = 10.0
"""Time that the topic waits for the founding nodes, in order to have replicas on three of them."""
TELL_AGAIN_S = 60.0

_log = logging.getLogger(__name__)


class LedgerKeeper:
    """The task that keeps the ledger, on the controller's leader. ``section``: the ledger's retention, as configured;
    equal on every node.
    """

    def __init__(self, control: ControllerGroup, router: Router, section: LedgerSection) -> None:
        self._control = control
        self._router = router
        self._config = TopicConfig(retention_ms=section.retention_ms, retention_bytes=section.retention_bytes)
        self._leading_since_s: float | None = None
        self._told_s = 0.0

    async def run(self) -> None:
        """Runs until cancelled."""
        control = self._control
        while True:
            pause_s = PAUSE_S
            if control.group.is_leader and control.keeps_ledger:
                pause_s = PAUSE_S if await quietly(self.step()) else PERIOD_S
            else:
                self._leading_since_s = None
            is_left = await control.changed.until(self._is_left, aligned_s(PERIOD_S))
            await asyncio.sleep(pause_s if is_left else 0)

    def _is_left(self) -> bool | None:
        return True if self._control.machine.ledger.waiting else None

    async def step(self) -> None:
        """On the leader: begin the ledger, place its topic, adapt the topic's retention and replicas, copy entries."""
        control, loop = self._control, asyncio.get_running_loop()
        self._leading_since_s = self._leading_since_s or loop.time()
        await control.begin_ledger()
        topic = control.machine.catalog.by_id.get(control.machine.ledger.topic_id or 0)
        if topic is None:
            await self._place(loop.time() - self._leading_since_s)
            return
        wanted = msgspec.structs.replace(
            topic.config, retention_ms=self._config.retention_ms, retention_bytes=self._config.retention_bytes
        )
        if wanted != topic.config:
            await control.decide(lambda now: KeepLedger(now_ms=now, config=wanted, nodes=[]), TopicChanged)
        await self._grow(topic)
        await self._copy_waiting(topic)

    async def _place(self, leading_s: float) -> None:
        eligible, controllers = self._control.eligible, self._control.machine.assignment.controllers
        are_all_here = {node_id for node_id, _ in eligible}.issuperset(controllers)
        if not eligible or (not are_all_here and leading_s < FOUNDING_S):
            return
        nodes = self._control.nodes_for(default_factor(len(eligible)))
        await self._control.decide(lambda now: KeepLedger(now_ms=now, config=self._config, nodes=nodes), TopicCreated)

    async def _grow(self, topic: Topic) -> None:
        """Move the topic to as many nodes as other topics are on, in as many zones as there are, as soon as so many are
        not away: like the controller group, it has to survive the loss of a node.
        """
        control, here = self._control, topic.placements[0]
        assignment = control.machine.assignment
        if len(here) >= REPLICATION_FACTOR_DEFAULT or group_id(topic.topic_id, 0) in assignment.moves:
            return
        target = assignment.grown(here, REPLICATION_FACTOR_DEFAULT, control.away)
        if len(target) < REPLICATION_FACTOR_DEFAULT:
            return
        await control.decide(
            lambda now: Reassign(now_ms=now, topic=LEDGER_TOPIC, partition=0, replicas=target), Arranged
        )

    async def _copy_waiting(self, topic: Topic) -> None:
        """Copy the entries that wait now. Those that come meanwhile are left to the next step, which looks at the topic
        first: if entries never ended, the topic would never grow. Raises StockadeError.
        """
        control = self._control
        end = control.machine.ledger.next
        while control.group.is_leader and control.machine.ledger.first_waiting < end:
            if not await self._copy(topic):
                return

    async def _copy(self, topic: Topic) -> bool:
        """Copy the oldest entries, and let the controller drop those that the topic has now. Returns False if there
        were none, or the topic takes none, or has too few or too many before them. Raises StockadeError.
        """
        control = self._control
        first, entries = control.machine.ledger.oldest(COPY_ENTRIES_MAX, COPY_BYTES_MAX)
        if not entries:
            return False
        command = encode_command(self._append(topic, first, entries))
        group, voters = group_id(topic.topic_id, 0), topic.placements[0]
        answer = decode_result(await self._router.propose(group, voters, command, COPY_TIMEOUT_S))
        copied = copied_up_to(first, len(entries), answer)
        if copied is None or copied >= control.machine.ledger.next:
            # A leader that stood still has not applied what its successor decided and copied: ask whether it leads.
            await control.barrier()
        if copied is None or copied >= control.machine.ledger.next:
            self._tell_unfit(first, answer)
            await asyncio.sleep(PERIOD_S)
            return False
        await control.decide(lambda now: LedgerCopied(now_ms=now, number=copied), Done)
        return True

    def _append(self, topic: Topic, first: int, entries: list[bytes]) -> Append:
        """The append of these entries, on condition that the log ends at ``first - 1``: they fit nowhere else."""
        told = [msgspec.json.decode(entry, type=LedgerEntry) for entry in entries]
        batch = batch_from_columns(
            [each.act.encode() for each in told],
            entries,
            [max(0, each.at_ms) for each in told],
            None,
            now_ms=time.time_ns() // 1_000_000,
            batch_bytes_max=COPY_BYTES_MAX + ROOM_BYTES,
        )
        return Append(
            batch.message,
            batch.count,
            batch.crc,
            batch.received_ms,
            batch.max_timestamp_ms,
            topic_id=topic.topic_id,
            if_log_end=first - 1,
        )

    def _tell_unfit(self, first: int, answer: Result | StockadeError) -> None:
        """Log an error: the topic has too few entries, or too many, since an old copy of its disks, or of those of the
        controller, was put back; or it takes none.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= TELL_AGAIN_S:
            self._told_s = now_s
            _log.error(
                "%s does not end before entry %d, or takes nothing (%s): entries wait in the controller until it has"
                " room for no more",
                LEDGER_TOPIC,
                first,
                answer,
            )


def copied_up_to(first: int, count: int, answer: Result | StockadeError) -> int | None:
    """The number of the last entry in the topic after an append of ``count`` entries from ``first`` on; None: the topic
    lacks entries before ``first``, or takes no appends. Entry n has offset n - 1. Raises the refusals after which the
    copy is tried again.
    """
    match answer:
        case Appended():
            return first + count - 1
        case OffsetMismatch():
            log_end: int = answer.fields["log_end"]
            return log_end if log_end >= first else None
        case StockadeError(retriable=True):
            raise answer
        case _:
            return None
