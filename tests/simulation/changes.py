"""What happens to members of groups: they come, go, move, lose their disks, hand over, and take checkpoints."""

import random
from collections.abc import Callable, Collection

from simulation.world import World

from stockade.raft.core.group import Group
from stockade.raft.log.configuration import AddLearner, RemoveMember

MEMBER_FAULTS = (
    *("checkpoint", "checkpoint", "checkpoint_everywhere"),
    *("wipe", "wipe", "wipe", "add_learner", "add_learner", "remove", "remove", "remove_leader", "move", "move"),
    *("transfer", "transfer", "wipe_and_isolate", "erase", "erase", "stray_change", "stray_change", "leave_and_die"),
)
KINDS = 4
"""Kinds of these in a run."""


class Changes:
    """Played on a world by a nemesis."""

    def __init__(
        self, world: World, rng: random.Random, later: Callable[[float, float, Callable[[], None]], None]
    ) -> None:
        """``later(low_s, high_s, act)`` acts at a time drawn between the two."""
        self.world = world
        self.rng = rng
        self._later = later
        self.spared: Collection[str] = ()
        """Kinds that do not happen."""
        self.tell: Callable[[str], None] = lambda _: None
        """Hears of each change."""
        self.kinds: list[Callable[[], None]] = [getattr(self, kind) for kind in rng.choices(MEMBER_FAULTS, k=KINDS)]

    def strike(self) -> None:
        kind = self.rng.choice(self.kinds)
        if kind.__name__ not in self.spared:
            self.tell(kind.__name__)
            kind()

    # Whom it meets.

    def _leading(self) -> Group | None:
        """The group on a node that believes it leads."""
        group_id = self.rng.choice(self.world.group_ids)
        leaders = [node for node in self.world.leaders(group_id) if not self.world.processes[node].is_paused]
        return self.world.group(self.rng.choice(leaders), group_id) if leaders else None

    def _node_of(self, group: Group) -> str:
        return next(node for node, process in self.world.processes.items() if group in process.groups.values())

    # Checkpoints.

    def checkpoint(self) -> None:
        process = self.world.processes.get(self.rng.choice(self.world.nodes))
        if process is not None and not process.is_paused:
            process.checkpoints.take(self.rng.choice(self.world.group_ids))

    def checkpoint_everywhere(self) -> None:
        """Every node takes a checkpoint, so that a node that comes back after this lacks entries that are gone."""
        for process in self.world.processes.values():
            if not process.is_paused:
                for group_id in self.world.group_ids:
                    process.checkpoints.take(group_id)

    # Disks.

    def wipe(self) -> None:
        """A disk is replaced, unless that could cost what was acknowledged; the node comes back soon."""
        node = self.rng.choice(self.world.nodes)
        if self.world.checker.members.may_lose(node):
            self.world.wipe(node)
            self._later(0.0, 1.5, lambda: self.world.restart(node))

    def wipe_and_isolate(self) -> None:
        """Those who were there when the disk was wiped meet the node again only later, perhaps in a later term."""
        node = self.rng.choice(self.world.nodes)
        if self.world.checker.members.may_lose(node):
            self.world.wipe(node)
            self.world.restart(node)
            for other in self.world.nodes:
                if other != node and self.rng.random() < 0.5:
                    self.world.network.cut(node, other)

    # Members.

    def add_learner(self) -> None:
        group = self._leading()
        if group is not None:
            outsiders = [node for node in self.world.nodes if node not in group.configuration.members]
            node = self.rng.choice(outsiders or self.world.nodes)
            self._change(group, AddLearner(node, self.world.disks[node].incarnation))

    def remove(self) -> None:
        group = self._leading()
        if group is not None and len(group.voters) > self.rng.choice([1, 2, 2, 3]):
            self._change(group, RemoveMember(self.rng.choice([*group.configuration.members])))

    def remove_leader(self) -> None:
        group = self._leading()
        if group is not None and len(group.voters) > self.rng.choice([1, 2, 2]):
            self._change(group, RemoveMember(self._node_of(group)))

    def move(self) -> None:
        """Two or three changes in a row, as fast as they are taken, asked of the node that leads then."""
        self.add_learner()
        for _ in range(self.rng.randint(1, 8)):
            self._later(0.0, 1.0, self.rng.choice([self.remove, self.remove, self.add_learner, self.remove_leader]))

    def leave_and_die(self) -> None:
        """The last voter but one removes itself, and dies with the only copy of that."""
        group = self._leading()
        if group is None:
            return
        own = self._node_of(group)
        others = [voter for voter in group.voters if voter != own]
        if len(others) > 1:
            self._change(group, RemoveMember(self.rng.choice(others)))
            self._later(0.05, 0.3, self.leave_and_die)
        elif others:
            self.world.network.hold(own, others[0])
            self._change(group, RemoveMember(own))
            self._later(0.0, 0.1, lambda: self._die(own, others[0]))

    def _die(self, *nodes: str) -> None:
        for node in nodes:
            self.world.crash(node)
            self._later(0.0, 0.5, lambda node=node: self.world.restart(node))  # type: ignore[misc]
        self._later(0.0, 0.5, lambda: self.world.network.mend(*nodes))

    def stray_change(self) -> None:
        """A leader that no node hears begins a change, is replaced, and meets the others again."""
        group = self._leading()
        if group is not None:
            leader = self._node_of(group)
            for node in self.world.nodes:
                if node != leader:
                    self.world.network.hold(leader, node)
            self.rng.choice([self.add_learner, self.remove, self.remove])()
            self._later(0.5, 2.0, self.world.heal)

    def _change(self, group: Group, change: AddLearner | RemoveMember) -> None:
        """No node is removed in the moment in which another one loses its disk: two losses are too many."""
        left = {node: disk for node, disk in group.configuration.voters.items() if node != change.node_id}
        if isinstance(change, RemoveMember) and not self.world.checker.members.keeps_majority(left):
            return
        group.submit_change(change, 3.0, lambda _: None)

    def erase(self) -> None:
        """A node that no group wants forgets it; later it may be taken in again."""
        process = self.world.processes.get(self.rng.choice(self.world.nodes))
        group_id = self.rng.choice(self.world.group_ids)
        if process is not None and not process.is_paused and group_id in process.groups:
            identity = self.world.checker.members.identity(process.node_id)
            if not self.world.checker.members.is_wanted(group_id, identity):
                process.erase_group(group_id)

    def transfer(self) -> None:
        group = self._leading()
        if group is not None:
            transferee = self.rng.choice([None, *self.world.nodes])
            group.submit_transfer(transferee, self.rng.choice([0.1, 1.0, 3.0]), lambda _: None)
