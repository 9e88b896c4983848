"""What became of a question to a group, told as answers and refusals: the same for partitions and the controller."""

from collections.abc import Callable

from ..partition.errors import (
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimedOut,
    StockadeError,
    ThrottlingQuotaExceeded,
)
from ..raft.group import Committed, Group, NotLeader, Outcome, Overloaded, Rejected, Unknown

NotLeading = Callable[[], NotLeaderOrFollower]
"""The answer that sends the caller to the leader."""


def verdict(outcome: Committed | Unknown | Overloaded, retry_after_ms: int) -> object:
    """What the machine answered, a refusal too; otherwise why nobody knows or nothing was proposed."""
    if type(outcome) is Committed:
        return outcome.result
    if isinstance(outcome, Unknown):
        return RequestTimedOut(raft_index=outcome.index)
    return ThrottlingQuotaExceeded(retry_after_ms=retry_after_ms)


def decided(outcome: Outcome, not_leading: NotLeading, retry_after_ms: int) -> object:
    """What the machine answered.

    Raises the refusal that it answered, NotLeaderOrFollower, ThrottlingQuotaExceeded, RequestTimedOut.
    """
    if isinstance(outcome, Rejected):
        raise not_leading()
    found = verdict(outcome, retry_after_ms)
    if isinstance(found, StockadeError):
        raise found
    return found


async def barrier(group: Group, timeout_s: float, not_leading: NotLeading) -> None:
    """Return when a read of the machine is linearizable. Raises NotLeaderOrFollower, LeaderNotAvailable."""
    try:
        await group.read_barrier(timeout_s)
    except NotLeader as error:
        raise not_leading() from error
    except TimeoutError as error:
        raise LeaderNotAvailable("no majority confirmed that this node leads") from error
