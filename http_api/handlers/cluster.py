"""Handlers of the cluster: its nodes, the placement of replicas, and leaders."""

from aiohttp import web
from msgspec import structs

from ...partition.api.cluster import NotedBackups
from ..codec import schemas
from ..codec.json_codec import or_none
from ..request.call import Call, json_answer


async def get_cluster(call: Call) -> web.StreamResponse:
    """The nodes and the controller, as this node sees them, and the moves of those topics that the caller may see."""
    found, caller = call.service.cluster(), call.caller
    if not caller.may("read", "cluster", ""):
        moves = [each for each in found.reassignments if caller.may_see("topic", each.topic)]
        found = structs.replace(found, reassignments=moves)
    return json_answer(found)


async def change_members(call: Call) -> web.StreamResponse:
    """Begin to add or remove a node, or to remove the nodes of a zone; GET /v1/cluster shows the progress. With
    ``dry_run`` only answer what the removal would move.
    """
    wanted = await call.read_json(schemas.MemberChange)
    if wanted.action == "remove":
        what, name = wanted.leaving()
        members, if_plan = call.service.at_controller().members, or_none(wanted.if_plan)
        if wanted.dry_run:
            return json_answer(await members.removal(*((name, None) if what == "node" else (None, name))))
        await (
            members.remove_zone(name, if_plan, call.by)
            if what == "zone"
            else members.remove_node(name, if_plan, call.by)
        )
    else:
        node_id, url, raft_address = wanted.coming()
        zone = or_none(wanted.zone)
        await call.service.at_controller().members.add_node(node_id, url, raft_address, zone, call.by)
    return json_answer(call.service.cluster(), 202)


async def raise_feature_level(call: Call) -> web.StreamResponse:
    """Raise the feature level, so that the cluster uses what that level brought; all members must support it."""
    wanted = await call.read_json(schemas.FeatureLevel)
    await call.service.at_controller().members.raise_feature_level(wanted.level, call.by)
    return json_answer(call.service.cluster())


async def reassign(call: Call) -> web.StreamResponse:
    """Begin to move a partition's replicas; GET /v1/cluster shows the progress."""
    wanted = await call.read_json(schemas.Reassignment)
    wanted.check()
    moved = await call.service.at_controller().members.reassign(
        wanted.topic, wanted.partition, wanted.replicas, call.by
    )
    return json_answer(moved, 202)


async def get_balance(call: Call) -> web.StreamResponse:
    """The plan that would bring the cluster into balance now; changes nothing."""
    return json_answer(await call.service.at_controller().members.balance_plan())


async def balance(call: Call) -> web.StreamResponse:
    """Begin to carry out the plan with this digest; GET /v1/cluster/balance shows what is left."""
    wanted = await call.read_json(schemas.BalanceOrder)
    return json_answer(await call.service.at_controller().members.balance(wanted.if_plan, call.by), 202)


async def change_balance(call: Call) -> web.StreamResponse:
    """Change settings of how the cluster keeps itself in balance."""
    wanted = await call.read_json(schemas.BalanceChange)
    return json_answer(await call.service.at_controller().members.change_balance(wanted.changes(), call.by))


async def list_backups(call: Call) -> web.StreamResponse:
    """The latest backup noted for each place."""
    return json_answer(NotedBackups(await call.service.at_controller().members.backups()))


async def note_backup(call: Call) -> web.StreamResponse:
    """Record a backup that was made."""
    made = await call.read_json(schemas.BackupNote)
    noted = await call.service.at_controller().members.note_backup(made.noted(), call.by)
    return json_answer(NotedBackups(noted))


async def choose_controllers(call: Call) -> web.StreamResponse:
    """Begin to move the controller group; GET /v1/cluster shows the progress. With ``dry_run`` only answer what would
    change.
    """
    wanted = await call.read_json(schemas.ControllersChoice)
    wanted.check()
    members = call.service.at_controller().members
    if wanted.dry_run:
        return json_answer(await members.controllers_plan(wanted.node_ids))
    await members.choose_controllers(wanted.node_ids, or_none(wanted.if_plan), call.by)
    return json_answer(call.service.cluster(), 202)


async def transfer_leader(call: Call) -> web.StreamResponse:
    """Transfer leadership; the answer comes when the new leader is elected."""
    wanted = await call.read_json(schemas.LeaderTransfer)
    wanted.check()
    if wanted.topic is not None and wanted.partition is not None:
        call.partition = await call.service.partition(wanted.topic, wanted.partition, None)
    leader = await call.service.transfer_leader(wanted.topic, wanted.partition, or_none(wanted.node_id), call.by)
    call.decided_by = leader
    return json_answer(leader.info)
