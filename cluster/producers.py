"""Producer identities as the controller's leader serves them (InitProducerId), and enrolment for the partitions."""

from ..partition.errors import LeaderNotAvailable, RequestTimedOut, StockadeError
from . import commands
from .catalog import CONTROLLER_GROUP
from .commands import Enrol, Enrolled, InitProducer, ProducerState
from .control import Control
from .model import ProducerPair
from .router import Router


class Producers:
    """The registry's leader."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, timeout_ms: int, nonce: str | None
    ) -> ProducerPair:
        """A pair to write with; answers when every partition that knows the name refuses the older epochs."""
        state = await self._control.decide(
            lambda now: InitProducer(now_ms=now, name=name, timeout_ms=timeout_ms, pair=pair, nonce=nonce),
            ProducerState,
        )

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
