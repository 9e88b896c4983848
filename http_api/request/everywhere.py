"""Scatter and gather: the node that a client asks collects the state that each node has only about itself."""

import asyncio
from typing import TypeVar

from ...cluster.front.front import unless_ended
from ...partition.api.cluster import ClusterState, Node, NodeState, NodeStates
from ...partition.errors import StockadeError
from ..codec import json_codec, media
from .call import Call
from .peers import Message, whole_body

ASK_S = 2.0
"""A node that has not answered within this time is missing from the answer."""

_Answer = TypeVar("_Answer")


async def ask_others(call: Call, path: str, shape: type[_Answer]) -> tuple[list[_Answer], list[str]]:
    """Send a GET of ``path`` to each other node on behalf of the call's client. Return the answers of this ``shape``,
    and the ids of the nodes without such an answer: they are away, or refused it, or their software is older.
    """
    others = [node for node in call.service.cluster().nodes if node.node_id != call.service.node_id]
    asked = [node for node in others if node.alive]
    answers = await unless_ended(call, _all(call, asked, path, shape))
    silent = {node.node_id for node, answer in zip(asked, answers, strict=True) if answer is None}
    missing = [node.node_id for node in others if not node.alive or node.node_id in silent]
    return [answer for answer in answers if answer is not None], missing


async def _all(call: Call, nodes: list[Node], path: str, shape: type[_Answer]) -> list[_Answer | None]:
    return await asyncio.gather(*(_ask(call, node, path, shape) for node in nodes))


async def _ask(call: Call, node: Node, path: str, shape: type[_Answer]) -> _Answer | None:
    message = Message("GET", path, {"Accept": media.JSON} | call.credentials())
    try:
        upstream = await call.context.peers.reach(node.url, message, ASK_S)
        try:
            body = await whole_body(upstream, ASK_S)
        finally:
            upstream.close()
        return json_codec.read(body, shape) if upstream.status == 200 else None
    except StockadeError:
        return None


async def read_states(call: Call) -> NodeStates:
    """The state of every node that answers."""
    others, missing = await ask_others(call, "/v1/nodes", NodeStates)
    states = [state for answer in others for state in answer.nodes]
    return NodeStates(sorted([*states, await call.context.metrics.state()], key=_node_id), missing)


async def read_cluster(call: Call) -> ClusterState:
    """The cluster as this node sees it, and the state of every node that answers."""
    states = await read_states(call)
    return ClusterState(call.service.cluster(), states.nodes, states.missing)


def _node_id(state: NodeState) -> str:
    return state.node_id
