"""The nodes of the cluster, and where each group's replicas are and are to be. Pure state of the controller's machine.

While a group moves, its placement has its old nodes and its target, until its leader reports that it has arrived; only
then may the old nodes erase their replicas. A move has the version (log index) of the command that asked for it, so a
report about another move is recognised.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, assert_never

import msgspec
from msgspec import structs

from ....partition.api.cluster import BalanceSettings, ControllersPlan, Relocation, RemovalPlan
from ....partition.errors import (
    FeatureUpdateFailed,
    InvalidRequest,
    NotEnoughReplicas,
    NotFound,
    PlanChanged,
    UnknownTopicOrPartition,
)
from ...features import FOLLOWING_FACTORS
from ..balance import ChooseControllers, Rebalance, SetBalance
from ..commands import (
    AddNode,
    Arranged,
    CheckMove,
    Done,
    GroupId,
    MembershipCommand,
    MoveDone,
    RaiseFeatureLevel,
    Reassign,
    RegisterNode,
    RemoveNode,
    RemoveZone,
)
from . import placement
from .catalog import CONTROLLER_GROUP, REPLICATION_FACTOR_MAX, Catalog, Topic, group_id, topic_partition
from .moves import Move
from .nodes import NodeEntry, Nodes, SavedNodes

CONTROLLERS_MAX = 5
"""The controller group has 1, 3 or 5 members; other nodes follow it."""
CONTROLLERS_GROWN = 3
"""A controller group of one member grows to this size when enough nodes have registered: alone, it survives no failure.
"""
DIGEST_BYTES = 8
"""Length of a plan's digest: enough to detect a changed plan, but not one that was forged to have the same digest."""


class SavedReplicaAssignment(msgspec.Struct, frozen=True):
    """The saved state of ReplicaAssignment: nodes, controllers, moves in the order in which they were asked for,
    feature level, settings of balance, and whether an operator chose the controllers.
    """

    nodes: SavedNodes
    controllers: list[str]
    moves: list[Move]
    feature_level: int = 1
    balance: BalanceSettings = BalanceSettings()
    are_chosen: bool = False


class ReplicaAssignment:
    """The nodes, and the moves under way by group. ``controllers``: the nodes where the controller group is, or is to
    be; ``are_chosen``: an operator chose them, so the group stays there. ``feature_level``: the level that every node
    supports (features.py). ``balance``: the settings by which the cluster balances itself.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.nodes: Nodes = Nodes()
        self.controllers: list[str] = []
        self.moves: dict[GroupId, Move] = {}
        self.feature_level: int = 1
        self.balance: BalanceSettings = BalanceSettings()
        self.are_chosen: bool = False

    def decide(self, index: int, command: MembershipCommand) -> Arranged | Done:
        """Apply one command. Raises its refusals before anything is changed."""
        match command:
            case RegisterNode():
                zone, incarnation = command.zone, command.incarnation
                self.nodes.register(NodeEntry(command.node_id, command.url, command.raft, zone, incarnation))
                self.controllers = self.controllers or list(command.controllers)
                self._arrange_controllers(index)
            case AddNode(node_id=node_id, url=url, raft=raft, zone=zone):
                self.nodes.announce(NodeEntry(node_id, url, raft, zone))
            case RemoveNode() | RemoveZone():
                self._remove(index, self.leaving(command), command.if_plan, command.away)
            case Reassign():
                self._reassign(index, command)
            case Rebalance():
                self._rebalance(index, command)
            case SetBalance(changes=changes):
                self.balance = _merged(self.balance, changes)
            case ChooseControllers():
                self._choose(index, command)
            case CheckMove(group_id=group, version=version):
                self._find_move(group, version)
                return Done()
            case MoveDone(group_id=group, version=version):
                self._arrive(self._find_move(group, version))
            case RaiseFeatureLevel():
                self._raise_level(command)
            case _:
                assert_never(command)
        return Arranged()

    def replicas(self, group: GroupId) -> list[str] | None:
        """The node ids of a group, with those that a move adds or is to remove; None: there is no such group."""
        if group == CONTROLLER_GROUP:
            return self.controllers
        located = self._catalog.locate(group)
        return located[0].placements[located[1]] if located is not None else None

    def grown(self, replicas: Sequence[str], count: int, away: Collection[str]) -> list[str]:
        """These replicas, filled up to ``count`` as replicas are placed, but with none on a node that is ``away``."""
        return _filled(replicas, count, self._candidates(away=away))

    def leaving(self, command: RemoveNode | RemoveZone) -> list[str]:
        """The ids of the nodes that a command removes. Raises NotFound."""
        if isinstance(command, RemoveNode):
            return [self.nodes.find(command.node_id).node_id]
        return self.nodes.in_zone(command.zone)

    def removal(self, node_ids: Sequence[str], away: Collection[str] = ()) -> RemovalPlan:
        """The moves by which these nodes would be removed, with their digest. Nothing moves from nodes that are being
        removed already; nodes that are ``away`` get only what no other node can take. Raises NotEnoughReplicas.
        """
        plan = self._plan_without([node_id for node_id in node_ids if not self.nodes.is_draining(node_id)], away)
        moves = [self._relocation(group, target) for group, target in plan.items()]
        digest = blake2b(msgspec.msgpack.encode((node_ids, moves)), digest_size=DIGEST_BYTES).hexdigest()
        return RemovalPlan(digest, list(node_ids), moves)

    def forget(self, topic: Topic) -> None:
        """Forget the moves of a topic that was deleted, and the nodes that are free to leave because of that."""
        for group in topic.groups():
            self.moves.pop(group, None)
        self._drop_idle()

    def save(self) -> SavedReplicaAssignment:
        """The state on which future answers depend."""
        return SavedReplicaAssignment(
            self.nodes.save(),
            self.controllers,
            list(self.moves.values()),
            self.feature_level,
            self.balance,
            self.are_chosen,
        )

    def load(self, saved: SavedReplicaAssignment) -> None:
        """Inverse of ``save``, on an empty instance."""
        self.nodes.load(saved.nodes)
        self.controllers = saved.controllers
        self.moves = {move.group_id: move for move in saved.moves}
        self.feature_level = saved.feature_level
        self.balance, self.are_chosen = saved.balance, saved.are_chosen

    def _raise_level(self, command: RaiseFeatureLevel) -> None:
        unsure = sorted(self.nodes.registered() - set(command.supporting))
        if command.level > self.feature_level and unsure:
            unknown = f"not known to support feature level {command.level}: {', '.join(unsure)}"
            raise FeatureUpdateFailed(unknown, nodes=unsure, feature_level=self.feature_level)
        self.feature_level = max(self.feature_level, command.level)

    def choice(self, node_ids: Sequence[str] | None) -> ControllersPlan:
        """The plan that would place the controller group on these nodes, whose order does not matter; None: on nodes
        over which the cluster spreads it by itself. Raises NotFound, InvalidRequest.
        """
        target = self._spread_controllers() if node_ids is None else self._chosen(node_ids)
        now = self._goal(CONTROLLER_GROUP)
        digest = blake2b(msgspec.msgpack.encode((now, target, node_ids is None)), digest_size=DIGEST_BYTES).hexdigest()
        zones = [(node_id, self.nodes.rows[node_id].zone) for node_id in target if node_id in self.nodes.rows]
        outlives = bool(zones) and placement.outlives_a_zone(zones)
        return ControllersPlan(digest, now, target, outlives, node_ids is not None)

    def _arrange_controllers(self, index: int) -> None:
        """When a node has registered, move the controller group if that lets a group of one grow, or leaves each zone
        with a minority. Does nothing if an operator chose the controllers, or while the group moves.
        """
        if self.are_chosen or CONTROLLER_GROUP in self.moves:
            return
        target = self._spread_controllers()
        if target != self.controllers:
            self._move(CONTROLLER_GROUP, index, target)

    def _spread_controllers(self) -> list[str]:
        """The nodes where the controller group should be. It stays where it is, or where its move goes,
        unless other nodes would let a group of one member grow, or a majority survive the loss of any one zone.
        """
        move = self.moves.get(CONTROLLER_GROUP)
        goal = self.controllers if move is None else move.target
        here = [entry for node_id in goal if (entry := self.nodes.rows.get(node_id)) is not None]
        if not here or len(here) < len(goal):
            return goal  # not all members have registered yet: the founders do so one by one
        count = max(len(here), CONTROLLERS_GROWN)
        used, kept = Counter[str | NodeEntry](), []
        for entry in here:
            zone = entry if entry.zone is None else entry.zone
            used[zone] += 1
            if 2 * used[zone] < count:
                kept.append(entry.node_id)
        if len(kept) == count:
            return goal
        target = _filled(kept, count, self._candidates())
        zones = [(node_id, self.nodes.rows[node_id].zone) for node_id in target]
        is_better = len(target) == count and (len(here) == 1 or placement.outlives_a_zone(zones))
        return target if is_better else goal

    def _choose(self, index: int, command: ChooseControllers) -> None:
        plan = self.choice(command.node_ids)
        if command.if_plan not in (None, plan.plan):
            raise PlanChanged("the controllers that it would choose have changed since then", plan=plan.plan)
        self.are_chosen = command.node_ids is not None
        if sorted(plan.target) != sorted(plan.controllers):
            self._move(CONTROLLER_GROUP, index, plan.target)

    def _chosen(self, node_ids: Sequence[str]) -> list[str]:
        _check_odd("node_ids", node_ids, CONTROLLERS_MAX)
        for node_id in node_ids:
            self._check_takes(node_id, "node_ids")
        return list(node_ids)

    def _check_takes(self, node_id: str, where: str) -> None:
        entry = self.nodes.find(node_id)
        if not entry.takes_replicas:
            why = "is being removed" if entry.draining else "has never come"
            raise InvalidRequest(f"{where}: {node_id} {why}")

    def _rebalance(self, index: int, command: Rebalance) -> None:
        """Begin all moves, or none. No move changes the number of replicas."""
        if command.is_ordered and command.plan != command.if_plan:
            raise PlanChanged("the plan has changed since then", plan=command.plan)
        moves = command.moves
        for move in moves:
            located = self._catalog.locate(move.group_id)
            if located is None or move.group_id in self.moves or self.replicas(move.group_id) != move.replicas:
                raise PlanChanged("replicas of these partitions have moved since then")
            if len(set(move.target)) != len(move.replicas) or len(move.target) != len(move.replicas):
                raise InvalidRequest("target: a move must not change the number of replicas")
            for node_id in set(move.target) - set(move.replicas):
                self._check_takes(node_id, "target")
        if len({move.group_id for move in moves}) != len(moves):
            raise InvalidRequest("moves: a partition occurs twice")
        for move in moves:
            self._move(move.group_id, index, move.target)

    def _reassign(self, index: int, command: Reassign) -> None:
        topic = self._catalog.find(command.topic, None)
        if not 0 <= command.partition < topic.partitions:
            raise UnknownTopicOrPartition(topic=command.topic, partition=command.partition)
        wanted = command.replicas
        _check_odd("replicas", wanted, REPLICATION_FACTOR_MAX)
        for node_id in wanted:
            if self.nodes.find(node_id).draining:
                raise InvalidRequest(f"replicas: {node_id} is being removed")
        self._move(group_id(topic.topic_id, command.partition), index, wanted)
        if self.feature_level >= FOLLOWING_FACTORS:
            self._follow(topic, len(wanted))

    def _follow(self, topic: Topic, factor: int) -> None:
        """Once each partition of a topic has, or is to have, ``factor`` replicas, so will the partitions to come."""
        # From the last one on: where partitions move in ascending order, all checks but the last one stop at once.
        goals = (self._goal(group_id(topic.topic_id, partition)) for partition in reversed(range(topic.partitions)))
        if factor != topic.replication_factor and all(len(goal) == factor for goal in goals):
            topic.replication_factor = factor

    def _remove(self, index: int, node_ids: Sequence[str], if_plan: str | None, away: Collection[str]) -> None:
        if if_plan is not None and (found := self.removal(node_ids, away).plan) != if_plan:
            raise PlanChanged("the replicas that the removal moves have changed since then", plan=found)
        leaving = [node_id for node_id in node_ids if not self.nodes.is_draining(node_id)]
        plan = self._plan_without(leaving, away)
        for node_id in leaving:
            self.nodes.drain(node_id)
        self.are_chosen &= CONTROLLER_GROUP not in plan
        for group, target in plan.items():
            self._move(group, index, target)
        self._drop_idle()

    def _plan_without(self, leaving: Collection[str], away: Collection[str]) -> dict[GroupId, list[str]]:
        """New targets for every group that is, or is to be, on one of these nodes. Raises NotEnoughReplicas."""
        present, others = self._candidates(leaving, away), self._candidates(leaving)
        plan: dict[GroupId, list[str]] = {}
        for group in self._groups_on(leaving):
            goal = self._goal(group)
            rest = [other for other in goal if other not in leaving]
            filled = _filled(_filled(rest, len(goal), present), len(goal), others)
            if group == CONTROLLER_GROUP and filled:
                filled = filled[: len(filled) - 1 + len(filled) % 2]
            elif len(filled) < len(goal):
                name, without = self._catalog.name_of(group), ", ".join(leaving)
                few = f"{name} has {len(goal)} replicas, and without {without} it could have {len(filled)}"
                raise NotEnoughReplicas(f"{few}: add nodes first, or move it to fewer")
            if not filled:
                raise NotEnoughReplicas(f"there is no node but {', '.join(leaving)}")
            plan[group] = filled
        return plan

    def _candidates(self, without: Collection[str] = (), away: Collection[str] = ()) -> placement.Candidates:
        nodes = [(entry.node_id, entry.zone) for entry in self.nodes.eligible() if entry.node_id not in without]
        return placement.Candidates(nodes, self._catalog.holdings.loads(), away)

    def _groups_on(self, node_ids: Collection[str]) -> list[GroupId]:
        """The groups on these nodes: the controller's first, the others by topic name and partition, since a restored
        replica knows no other order.
        """
        found = [] if set(node_ids).isdisjoint(self.controllers) else [CONTROLLER_GROUP]
        by_id = self._catalog.by_id

        def place(group: GroupId) -> tuple[str, int]:
            topic_id, partition = topic_partition(group)
            return by_id[topic_id].name, partition

        return found + sorted({group for each in node_ids for group in self._catalog.holdings.groups(each)}, key=place)

    def _relocation(self, group: GroupId, target: list[str]) -> Relocation:
        located = None if group == CONTROLLER_GROUP else self._catalog.locate(group)
        name = None if located is None else located[0].name
        return Relocation(name, None if located is None else located[1], self.replicas(group) or [], target)

    def _goal(self, group: GroupId) -> list[str]:
        """The nodes where a group will be when its move is over."""
        move = self.moves.get(group)
        return move.target if move is not None else self.replicas(group) or []

    def _move(self, group: GroupId, index: int, target: list[str]) -> None:
        if self._goal(group) == target:
            return
        now = self.replicas(group) or []
        if group not in self.moves and sorted(now) == sorted(target):
            self._place(group, target)
            return
        self.moves[group] = Move(group, index, target)
        self._place(group, now + [node_id for node_id in target if node_id not in now])

    def _find_move(self, group: GroupId, version: int) -> Move:
        move = self.moves.get(group)
        if move is None or move.version != version:
            raise NotFound("this move is not wanted any more", what="move")
        return move

    def _arrive(self, move: Move) -> None:
        del self.moves[move.group_id]
        self._place(move.group_id, move.target)
        if move.group_id != CONTROLLER_GROUP:
            located = self._catalog.locate(move.group_id)
            assert located is not None, "moves of a deleted topic are forgotten"
            # A replica that is placed from now on is no founder: it joins the group with its present members.
            located[0].founders[located[1]] = {}
        self._drop_idle()

    def _place(self, group: GroupId, nodes: list[str]) -> None:
        if group == CONTROLLER_GROUP:
            self.controllers = nodes
            return
        located = self._catalog.locate(group)
        assert located is not None, topic_partition(group)
        self._catalog.move(*located, nodes)

    def _drop_idle(self) -> None:
        """Drop the nodes that are being removed and have no replica any more."""
        for node_id in [entry.node_id for entry in self.nodes.rows.values() if entry.draining]:
            if node_id not in self.controllers and not self._catalog.holdings.groups(node_id):
                self.nodes.drop(node_id)


def _check_odd(where: str, node_ids: Sequence[str], most: int) -> None:
    """Check that these are different nodes, odd in number and ``most`` at most. Raises InvalidRequest."""
    if not 1 <= len(node_ids) <= most or len(node_ids) % 2 == 0 or len(set(node_ids)) != len(node_ids):
        raise InvalidRequest(f"{where}: not an odd number of different nodes, {most} at most")


def _merged(settings: BalanceSettings, changes: Mapping[str, Any]) -> BalanceSettings:
    """The settings with these fields changed. Raises InvalidRequest for an unknown field or a wrong value."""
    fields = structs.asdict(settings)
    if unknown := changes.keys() - fields.keys():
        raise InvalidRequest(f"settings: there is no {', '.join(sorted(unknown))}")
    try:
        return msgspec.convert({**fields, **changes}, BalanceSettings)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"settings: {error}") from error


def _filled(replicas: Iterable[str], count: int, candidates: placement.Candidates) -> list[str]:
    """``replicas``, filled with candidates up to ``count`` nodes, or to as many as there are."""
    filled = list(replicas)
    while len(filled) < count and (found := candidates.take(filled)) is not None:
        filled.append(found)
    return filled
