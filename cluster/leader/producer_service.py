"""Producer identities as the controller's leader serves them (InitProducerId); the enrolment of producers, for the
partitions; and a producer's state on partitions, asked of the nodes that lead them.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ...partition.api.producers import ProducerOnPartition, ProducerPair, ProducerStatus
from ...partition.errors import LeaderNotAvailable, NotFound, StockadeError
from .. import rpc
from ..controller.commands import Enrol, Enrolled, FenceProducer, InitProducer, ProducerFence, ProducerState
from ..groups import Router
from ..model import NO_PRINCIPAL, By
from ..replica.replica_manager import ReplicaManager, by_node
from .controller_group import ControllerGroup

ASK_AGAIN_S = 0.05
"""Before partitions whose leader was not found are asked again."""


class ProducerStatusReader:
    """Reads a producer's state on partitions: asks the nodes that lead them, and answers for this node."""

    def __init__(self, node_id: str, router: Router, replicas: ReplicaManager) -> None:
        self._node_id = node_id
        self._router = router
        self._replicas = replicas

    async def here(self, pid: int, group_ids: Iterable[int]) -> rpc.ProducerKnown:
        """The producer's state on those of the groups that this node leads; linearizable."""
        found = []
        for group_id in group_ids:
            replica = self._replicas.get(group_id)
            if replica is not None and replica.group.is_leader:
                try:
                    found.append((group_id, await replica.producer(pid)))
                except StockadeError as refusal:
                    assert refusal.retriable, refusal
        return rpc.ProducerKnown(found)

    async def ask(self, pid: int, places: Mapping[int, Sequence[str]], timeout_s: float) -> list[ProducerOnPartition]:
        """A producer's state on each of the groups that knows it, ascending by group. ``places``: the nodes of each
        group. Raises LeaderNotAvailable if a group has no leader in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        found: dict[int, ProducerOnPartition | None] = {}
        while missing := [group_id for group_id in sorted(places) if group_id not in found]:
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise LeaderNotAvailable(f"{len(missing)} partitions have no leader")
            asked = by_node((group_id, places[group_id]) for group_id in missing)
            answers = await asyncio.gather(*(self._ask(*question, pid, remaining) for question in asked.items()))
            for answer in answers:
                found.update(answer.found)
            if len(found) < len(places):
                await asyncio.sleep(ASK_AGAIN_S)
        return [status for group_id in sorted(found) if (status := found[group_id]) is not None]

    async def _ask(self, node_id: str, group_ids: list[int], pid: int, timeout_s: float) -> rpc.ProducerKnown:
        if node_id == self._node_id:
            return await self.here(pid, group_ids)
        try:
            answer = await self._router.ask(node_id, rpc.DescribeProducer(pid, group_ids), timeout_s)
        except (ConnectionError, TimeoutError):
            return rpc.ProducerKnown([])
        assert isinstance(answer, rpc.ProducerKnown), answer
        return answer


class ProducerService:
    """The registry of producers, as the controller's leader serves it."""

    def __init__(self, control: ControllerGroup, states: ProducerStatusReader) -> None:
        self._control = control
        self._states = states

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, nonce: str | None, by: By = NO_PRINCIPAL
    ) -> ProducerPair:
        """A pair to write with, answered when every partition that knows the name refuses the older epochs."""
        state = await self._control.decide(
            lambda now: InitProducer(now_ms=now, by=by, name=name, pair=pair, nonce=nonce),
            ProducerState,
        )
        return await self._when_installed(state)

    async def fence_producer(self, name: str, by: By = NO_PRINCIPAL) -> ProducerPair:
        """Raise a name's epoch; returns the pair when every partition that knows the name refuses older epochs."""
        return await self._when_installed(
            await self._control.decide(lambda now: FenceProducer(now_ms=now, by=by, name=name), ProducerState)
        )

    async def get_producer(self, key: int | str) -> ProducerStatus:
        """A producer by id or name, and what the partitions know of it. Raises NotFound, LeaderNotAvailable."""
        await self._control.barrier()
        machine = self._control.machine
        state = machine.registry.find(key)
        if state is not None:
            groups = machine.registry.enrolments.groups(state.pid)
        elif isinstance(key, int) and machine.registry.is_anonymous(key):
            # The registry does not record where anonymous producers write: any partition may know it.
            groups = [group for topic in machine.catalog.topics() for group in topic.groups()]
        else:
            raise NotFound(what="producer")
        pid, epoch, name = (state.pid, state.epoch, state.name) if state is not None else (int(key), None, None)
        places = {group: machine.assignment.replicas(group) or [] for group in groups}
        return ProducerStatus(pid, epoch, name, await self._states.ask(pid, places, self._control.timeout_s))

    async def _when_installed(self, state: ProducerState) -> ProducerPair:
        machine = self._control.machine  # its parts are looked up late: a checkpoint may replace them

        def is_installed(fence: ProducerFence) -> bool:
            return machine.registry.enrolments.is_installed(fence)

        installed = [partial(is_installed, fence) for fence in state.pending]
        await self._control.until_all(installed, "the new epoch could not be installed everywhere in time")
        return ProducerPair(state.pid, state.epoch, state.name)


async def enrol(
    router: Router, controllers: list[str], pid: int, partition_group: int, timeout_s: float
) -> tuple[int, int, str]:
    """Ask the controller, from a partition's leader, for a producer's epoch, the place of this answer in its
    log, and the principal that has the producer's name.

    Raises what the registry answers.
    """
    answer = await router.decide(controllers, Enrol(now_ms=0, pid=pid, group_id=partition_group), timeout_s)
    if not isinstance(answer, Enrolled):
        raise LeaderNotAvailable(f"the controller answered {answer!r}")
    return answer.epoch, answer.order, answer.principal
