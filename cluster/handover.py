"""Handing the leadership of a group over, for an operator."""

import asyncio
import logging
from collections.abc import Iterable

from ..partition.errors import NotEnoughReplicas, NotFound, RequestTimedOut
from ..raft.group import Group

_log = logging.getLogger(__name__)

HANDOVER_MAX_S = 3.0
"""Writers may have to wait for so long, if the node that shall lead has died unnoticed."""


async def hand_over(group: Group, node_id: str | None, timeout_s: float) -> None:
    """Let another voter lead a group that this node leads; answers when it does.

    Raises NotFound (no voter), NotEnoughReplicas (there is no other), RequestTimedOut, NotLeader.
    """
    if group.leader == node_id and group.is_leader:
        return
    try:
        await group.transfer(node_id, min(timeout_s, HANDOVER_MAX_S))
    except ValueError as error:
        if node_id is None:
            raise NotEnoughReplicas(str(error)) from error
        raise NotFound(f"{node_id} holds no replica that may lead", what="node") from error
    except TimeoutError as error:
        raise RequestTimedOut("the other replica was not elected in time") from error


async def hand_all_over(groups: Iterable[Group]) -> None:
    """Let other voters lead those of ``groups`` that this node leads and others can lead. Takes HANDOVER_MAX_S at
    most; a group that nobody takes over elects a leader when this one is gone.
    """
    led = [group for group in groups if group.is_leader and len(group.voters) > 1]
    outcomes = await asyncio.gather(*(group.transfer(None, HANDOVER_MAX_S) for group in led), return_exceptions=True)
    kept = sum(isinstance(outcome, BaseException) for outcome in outcomes)
    _log.info("handed %d groups over, %d were not taken", len(led) - kept, kept)
