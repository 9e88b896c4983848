"""Handlers of the cluster: its nodes, where replicas are, who leads."""

from typing import Any

from aiohttp import web

from ..cluster.model import ClusterInfo, Leader
from . import bodies, cluster_shapes, shapes
from .call import Call, json_answer


async def get_cluster(call: Call) -> web.StreamResponse:
    """Nodes and controller, as this node sees them."""
    return json_answer(_cluster(call.service.cluster()))


async def change_members(call: Call) -> web.StreamResponse:
    """Add or remove a node; GET /v1/cluster tells when it is done."""
    wanted = shapes.read(await bodies.read_json(call), cluster_shapes.MemberChange)
    if wanted.action == "remove":
        wanted.check_remove()
        return json_answer(_cluster(await call.service.remove_node(wanted.node_id)), 202)
    url, raft_address = wanted.addresses()
    zone = shapes.given(wanted.zone)
    return json_answer(_cluster(await call.service.add_node(wanted.node_id, url, raft_address, zone)), 202)


async def reassign(call: Call) -> web.StreamResponse:
    """Move a partition's replicas; GET /v1/cluster tells when it is done."""
    wanted = shapes.read(await bodies.read_json(call), cluster_shapes.Reassignment)
    wanted.check()
    moved = await call.service.reassign(wanted.topic, wanted.partition, wanted.replicas)
    return json_answer({"topic": moved.topic, "partition": moved.partition, "replicas": moved.replicas}, 202)


async def transfer_leader(call: Call) -> web.StreamResponse:
    """Hand leadership over; answers when the new leader is elected."""
    wanted = shapes.read(await bodies.read_json(call), cluster_shapes.LeaderTransfer)
    wanted.check()
    if wanted.topic is not None and wanted.partition is not None:
        call.partition = await call.service.partition(wanted.topic, wanted.partition, None)
    leader = await call.service.transfer_leader(wanted.topic, wanted.partition, shapes.given(wanted.node_id))
    call.decided_by = leader
    return json_answer(_leader(leader))


def _cluster(cluster: ClusterInfo) -> dict[str, Any]:
    return {
        "cluster_id": cluster.cluster_id,
        "node_id": cluster.node_id,
        "version": cluster.version,
        "controller": _leader(cluster.controller),
        "nodes": cluster.nodes,
        "reassignments": cluster.reassignments,
    }


def _leader(leader: Leader) -> dict[str, Any]:
    return {"leader": leader.url, "leader_node": leader.node_id, "leader_term": leader.term}
