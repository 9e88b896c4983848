"""Producer identities as the controller's leader serves them (InitProducerId), and enrolment for the partitions."""

from ..partition.errors import LeaderNotAvailable, NotFound, RequestTimedOut, StockadeError
from . import commands
from .catalog import CONTROLLER_GROUP
from .commands import Enrol, Enrolled, FenceProducer, InitProducer, ProducerState
from .control import Control
from .model import ProducerPair, ProducerStatus
from .producer_states import ProducerStates
from .router import Router


class Producers:
    """The registry's leader."""

    def __init__(self, control: Control, states: ProducerStates) -> None:
        self._control = control
        self._states = states

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, timeout_ms: int, nonce: str | None
    ) -> ProducerPair:
        """A pair to write with; answers when every partition that knows the name refuses the older epochs."""
        state = await self._control.decide(
            lambda now: InitProducer(now_ms=now, name=name, timeout_ms=timeout_ms, pair=pair, nonce=nonce),
            ProducerState,
        )
        return await self._when_installed(state)

    async def fence_producer(self, name: str) -> ProducerPair:
        """The pair after the fence, when every partition that knows the name refuses the older epochs."""
        return await self._when_installed(
            await self._control.decide(lambda now: FenceProducer(now_ms=now, name=name), ProducerState)
        )

    async def find(self, key: int | str) -> ProducerStatus:
        """A producer by id or name, and what the partitions know of it. Raises NotFound, LeaderNotAvailable."""
        await self._control.barrier()
        machine = self._control.machine
        state = machine.producer(key) if isinstance(key, str) else machine.producer_by_pid(key)
        if state is not None:
            groups = machine.enrolled_on(state.pid)
        elif isinstance(key, int) and machine.is_anonymous(key):
            # Nobody keeps account of where these write: any partition may know it.
            groups = [group for topic in machine.topics() for group in topic.groups()]
        else:
            raise NotFound(what="producer")
        pid, epoch, name = (state.pid, state.epoch, state.name) if state is not None else (int(key), None, None)
        places = {group: machine.replicas(group) or [] for group in groups}
        return ProducerStatus(pid, epoch, name, await self._states.ask(pid, places, self._control.timeout_s))

    async def _when_installed(self, state: ProducerState) -> ProducerPair:
        def installed() -> bool | None:
            return True if all(self._control.machine.is_installed(fence) for fence in state.pending) else None

        if await self._control.until(installed, self._control.timeout_s) is None:
            raise RequestTimedOut("the new epoch could not be installed everywhere in time")
        return ProducerPair(state.pid, state.epoch, state.name)


async def enrol(
    router: Router, controllers: list[str], pid: int, partition_group: int, timeout_s: float
) -> tuple[int, int]:
    """Ask the controller, from a partition's leader, for a producer's epoch, and the place of this answer in its log.

    Raises what the registry answers.
    """
    # The lease clock is the controller's leader's; 0 leaves it where it stands.
    command = commands.encode_command(Enrol(now_ms=0, pid=pid, group_id=partition_group))
    answer = commands.decode_result(await router.propose(CONTROLLER_GROUP, controllers, command, timeout_s))
    if isinstance(answer, StockadeError):
        raise answer
    if not isinstance(answer, Enrolled):
        raise LeaderNotAvailable(f"the controller answered {answer!r}")
    return answer.epoch, answer.order
