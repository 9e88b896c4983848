"""Makes the plan of each order from the state of a running cluster; changes nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...client.api.client import Client
from ...partition.api.cluster import Relocation, RemovalPlan
from ...partition.api.records import PartitionContents
from ...partition.api.topics import Topic
from ...partition.errors import InvalidRequest, NotFound, UnknownTopicOrPartition
from ..ui.output import count, numbers, rest, some
from .consent import Plan
from .holdings import Holding, each_of, holdings

NAMES_MAX = 5
"""Names of writers or groups that a line shows; JSON has all."""
WEIGHED_MAX = 1000
"""If a removal moves more partitions than this, the plan does not ask for their bytes."""


async def fence_plan(client: Client, topic: str, partitions: Sequence[int]) -> Plan:
    """The plan of evicting the holders of these partitions (none: of all). Raises UnknownTopicOrPartition and
    InvalidRequest where the order would be refused.
    """
    described = await client.topic(topic)
    chosen = sorted(partitions) or [each.partition for each in described.partitions]
    if chosen[-1] >= len(described.partitions):
        raise UnknownTopicOrPartition(topic=topic, partition=chosen[-1])
    if len(set(chosen)) < len(chosen):
        raise InvalidRequest("partitions: a partition occurs twice")
    ending = _touching(await holdings(client, described, {}), chosen)
    grants = sorted(each.grant for each in ending)
    state = {"topic": topic, "topic_id": described.topic_id, "partitions": chosen, "grants": _told(ending)}
    lines = [f"epochs rise on {count(len(chosen), 'partition')}", *_writers(ending)]
    return Plan(f"fence {topic}", state, {}, lines, {"if_grants": grants})


async def session_plan(client: Client, handle: str) -> Plan:
    """The plan of ending a session. Raises NotFound."""
    listed = await client.sessions(handle=handle)
    if not listed.sessions:
        raise NotFound(what="session")
    found = listed.sessions[0]
    grants = sorted(each.grant for each in found.grants)
    state = {"handle": handle, "client_id": found.client_id, "grants": grants, "resources": found.resources}
    writers = [
        f"{each.producer_name} loses its grant of {count(each.partitions, 'partition')} of {each.topic}, {each.mode}"
        + ("" if each.epoch is None else f", epoch {each.epoch}")
        for each in found.grants[:NAMES_MAX]
    ]
    lines = [
        f"the session of {found.client_id} ends, and its place in line; its client may open another",
        *(writers or ["it has no grant"]),
        *rest(len(grants) - NAMES_MAX),
        f"{count(found.resources, 'resource')} of groups {'has' if found.resources == 1 else 'have'} no owner any more",
    ]
    return Plan(f"fence session {handle}", state, {}, lines, {"if_grants": grants, "if_resources": found.resources})


async def deletion_plan(client: Client, topic: str) -> Plan:
    """The plan of deleting a topic."""
    described = await client.topic(topic)
    ending = await holdings(client, described, {})
    found = await each_of(range(len(described.partitions)), lambda number: client.contents(topic, number))
    groups = sorted({position.group for each in found for position in each.positions})
    records = sum(each.log_end - each.log_start for each in found)
    stored, tiered = sum(each.stored_bytes for each in found), sum(each.tiered_bytes or 0 for each in found)
    size = {"partitions": len(found), "replication_factor": described.replication_factor}
    state = {"topic": topic, "topic_id": described.topic_id, **size, "is_empty": not records}
    lines = [
        f"{records:,} records in {count(len(found), 'partition')}, {stored:,} bytes on each of"
        f" {count(described.replication_factor, 'replica')}{_in_store(tiered)}: there is no way back",
        *_writers(ending),
        _losing(groups),
    ]
    return Plan(
        f"delete {topic}",
        state | {"grants": _told(ending), "groups": groups},
        {"records": records, "stored_bytes": stored, "tiered_bytes": tiered},
        lines,
        {"topic_id": described.topic_id, "if_grants": [each.grant for each in ending]},
    )


async def trim_plan(client: Client, topic: str, partition: int, before: int, *, exclusive: bool) -> Plan:
    """The plan of dropping a partition's records below ``before`` (-1: all). ``exclusive``: the command first acquires
    the partition, which raises its epoch by one.
    """
    described = await client.topic(topic)
    if partition >= len(described.partitions):
        raise InvalidRequest(f"partition: {topic} has {count(len(described.partitions), 'partition')}")
    ending = _touching(await holdings(client, described, {}), [partition])
    found, epoch = await client.contents(topic, partition), described.partitions[partition].topic_epoch
    end = {"log_end": found.log_end} if before == -1 else {}
    dropped = max(0, (found.log_end if before == -1 else min(before, found.log_end)) - found.log_start)
    behind = sorted(each.group for each in found.positions if each.offset < found.log_start + dropped)
    state = {"topic": topic, "topic_id": described.topic_id, "partition": partition, "before": before, "epoch": epoch}
    state |= {"log_start": found.log_start, **end, "grants": _told(ending), "groups": behind}
    offsets = f", offsets {found.log_start:,} to {found.log_start + dropped - 1:,}" if dropped else ""
    lines = [
        f"{dropped:,} of {count(found.log_end - found.log_start, 'record')}{offsets}, {_part(found, dropped)}: there is"
        " no way back",
        *_writers(ending, "holds the slot at epoch"),
        *_refused(ending, is_required=described.config.require_fence, exclusive=exclusive),
        _losing(behind),
    ]
    conditions: dict[str, Any] = {} if epoch is None else {"if_epoch": epoch + exclusive}
    conditions |= {} if before != -1 else {"if_log_end": found.log_end}
    about = {"dropped_records": dropped, "log_end": found.log_end, "stored_bytes": found.stored_bytes}
    return Plan(f"trim {topic}/{partition}", state, about, lines, conditions)


async def removal_plan(client: Client, name: str, *, zone: bool = False) -> Plan:
    """The plan of removing the node ``name``, or with ``zone`` all nodes of the zone ``name``."""
    plan = await (client.removal(zone=name) if zone else client.removal(node_id=name))
    led, weights = await _load(client, plan)
    moving = f"{count(len(plan.moves), 'group')} {'moves' if len(plan.moves) == 1 else 'move'}"
    bytes_ = "" if weights is None else f", {weights:,} bytes to copy"
    lines = [f"nodes that go: {', '.join(plan.node_ids)}", f"{moving}, of which they lead {led}{bytes_}"]
    coming = Counter(node for move in plan.moves for node in set(move.target) - set(move.replicas))
    lines += [f"{node} takes {count(taken, 'replica')}" for node, taken in sorted(coming.items())]
    lines += ["the controller group moves, too"] if any(move.topic is None for move in plan.moves) else []
    state = {"plan": plan.plan, "node_ids": plan.node_ids}
    about = {"led": led, "stored_bytes": weights, "moves": msgspec.to_builtins(plan.moves)}
    return Plan(f"{'drain' if zone else 'remove'} {name}", state, about, lines, {"if_plan": plan.plan})


async def _load(client: Client, plan: RemovalPlan) -> tuple[int, int | None]:
    """Of the partitions that move: how many the leaving nodes lead, and the bytes to copy; None above WEIGHED_MAX."""
    moves = [(move, move.topic, move.partition or 0) for move in plan.moves if move.topic is not None]
    topics = await each_of(sorted({topic for _, topic, _ in moves}), client.topic)
    by_name = {topic.name: topic for topic in topics}
    led = sum(_leader(by_name[topic], move) in plan.node_ids for move, topic, _ in moves)
    if len(moves) > WEIGHED_MAX:
        return led, None
    found = await each_of(moves, lambda each: client.contents(each[1], each[2], 1))
    coming = [len(set(move.target) - set(move.replicas)) for move, *_ in moves]
    return led, sum(each.stored_bytes * copies for each, copies in zip(found, coming, strict=True))


def _leader(topic: Topic, move: Relocation) -> str | None:
    return topic.partitions[move.partition or 0].leader_node


def _touching(found: Iterable[Holding], partitions: Sequence[int]) -> list[Holding]:
    return [each for each in found if not set(partitions).isdisjoint(each.partitions)]


def _told(found: Iterable[Holding]) -> list[Mapping[str, Any]]:
    """The grants as a plan's state has them: without fields that change while a grant is held."""
    told = [
        {"grant": each.grant, "mode": each.mode, "epoch": each.epoch, "epochs": each.epochs}
        | {"producer_name": each.producer_name, "client_id": each.client_id, "partitions": each.partitions}
        for each in found
    ]
    return sorted(told, key=lambda each: str(each["grant"]))


def _writers(found: Sequence[Holding], what: str = "loses its grant of epoch") -> list[str]:
    lines = [
        f"{each.producer_name} of {each.client_id or 'an unknown client'} {what} {each.all_epochs} ({each.mode}, on"
        f" partitions {numbers(each.partitions)})"
        for each in found[:NAMES_MAX]
    ]
    return lines + rest(len(found) - NAMES_MAX) or ["no writer holds a slot here"]


def _refused(holders: Sequence[Holding], *, is_required: bool, exclusive: bool) -> list[str]:
    """Why a trim would be refused as things are; beside Shared holders only one that needs a token is."""
    if any(is_required or exclusive or each.mode != "Shared" for each in holders):
        return ["this is refused while a writer holds the slot; a shorter retention drops records all the same"]
    return ["the topic requires a fencing token: refused without --exclusive"] if is_required and not exclusive else []


def _losing(groups: Sequence[str]) -> str:
    if not groups:
        return "no group has its position in what goes"
    return f"{count(len(groups), 'group')} had not read on beyond it: {some(groups, NAMES_MAX)}"


def _part(found: PartitionContents, dropped: int) -> str:
    """Their bytes: disks have the records from ``local_start`` on, and the store all but the last ones."""
    all_of_them, above = found.log_end - found.log_start, max(found.log_start, found.local_start or 0)
    on_disk, dropped_there = found.log_end - above, max(0, found.log_start + dropped - above)
    local = found.stored_bytes * dropped_there // on_disk if on_disk else 0
    tiered = (found.tiered_bytes or 0) * dropped // all_of_them if all_of_them else 0
    return f"about {local:,} bytes on each replica{_in_store(tiered)}"


def _in_store(tiered_bytes: int) -> str:
    return f" and {tiered_bytes:,} in the tiered store" if tiered_bytes else ""
