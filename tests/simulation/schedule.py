"""From a seed to a run: a setting, a load, and a nemesis that overlaps faults; then everything heals and must work."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from simulation.changes import Changes
from simulation.checker import Attempt, Violation
from simulation.nemesis import FAULTS, Nemesis
from simulation.plan import Plan
from simulation.real_load import RealLoad
from simulation.real_machines import RealWorld
from simulation.world import Process, Setting, World

from stockade.raft.core.group import Committed, Group
from stockade.raft.settings import RaftSettings

HEAL_S = 6.0
"""Ample for elections: several of the longest timeouts."""
LOOK_EVERY_S = 0.02
LONG_PEACE = 0.05
"""So often, peace is watched for all of that time, in which no node may ask for an election."""
REAL = 0.25
"""So often, a partition and the controller are what the groups run."""
COALESCING = (0, 2, 9, 9, 9)
"""How many nodes know the frames of many groups: none, some or all, as while a cluster is upgraded."""
CHANGES = 0.5
"""So often, members change and checkpoints are taken."""
FULL_DISKS = 0.3
"""So often, disks fill up."""
CHANGES_FROM = 1000
"""The number of the first strike that changes members; those of the nemesis are numbered from 0."""
CATCH_UP_S = 60.0
"""Ample for followers that are far behind, with windows of one small message."""


def draw_setting(rng: random.Random) -> Setting:
    """Sizes, speeds and bounds of a run. Bounds are small, so that they are met."""
    shortest, longest, heartbeat = rng.choice([(600, 1200, 150), (600, 800, 100), (200, 400, 60)])
    raft = RaftSettings(
        election_timeout_ms_min=shortest,
        election_timeout_ms_max=longest,
        heartbeat_ms=heartbeat,
        message_bytes_max=rng.choice([1, 300, 2000]),
        window_bytes_max=rng.choice([500, 3000, 1 << 20]),
        window_messages_max=rng.choice([1, 3, 16]),
        entry_bytes_max=400,
        pending_count_max=rng.choice([5, 50, 1000]),
        pending_bytes_max=rng.choice([2000, 1 << 20]),
        unsynced_bytes_max=rng.choice([1000, 1 << 20]),
    )
    return Setting(
        nodes=rng.choice([1, 2, 3, 3, 3, 3, 5, 5, 5]),
        groups=rng.choice([1, 1, 2]),
        network_s=rng.choice([(0.0001, 0.001), (0.001, 0.02), (0.0001, 0.15)]),
        disk_s=rng.choice([(0.0001, 0.003), (0.001, 0.05), (0.0, 0.4)]),
        drop_rate=rng.choice([0.0, 0.02, 0.2]),
        drift=rng.choice([0.0, 0.05]),
        bundles=rng.random() < 0.7,
        raft=raft,
    )


class Run:
    """One run. ``go`` raises Violation if an invariant breaks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        rng = random.Random(f"setting {plan.seed}")
        setting = draw_setting(rng)
        if plan.calm:
            setting = replace(setting, drop_rate=0.0, drift=0.0)
        has_changes = plan.accident is None and rng.random() < CHANGES
        if has_changes:
            setting = replace(setting, spares=rng.choice([0, 1, 2]))
        nodes = plan.nodes or (5 if plan.accident else setting.nodes)
        coalescing = random.Random(f"frames {plan.seed}").choice(COALESCING)
        self.setting = replace(setting, nodes=nodes, groups=plan.groups or setting.groups, coalescing=coalescing)
        self.rng = random.Random(f"load {plan.seed}")
        luck = random.Random(f"latencies {plan.seed} {plan.luck}").getrandbits(64)
        self.world, self._load_real = self._world(luck, rng.random() < REAL)
        self.nemesis = Nemesis(self.world, rng, self._burst, [plan.accident] if plan.accident else FAULTS)
        self.changes = Changes(self.world, rng, self.nemesis.later) if has_changes else None
        self._commands = (f"c{number}".encode() for number in count())
        self.struck: list[int] = []
        """The numbers of the strikes that were not left out."""

    def _world(self, seed: int, is_real: bool) -> tuple[World, RealLoad | None]:
        if not is_real:
            return World(seed, self.setting), None
        raft = replace(self.setting.raft, entry_bytes_max=1000)
        world = RealWorld(seed, replace(self.setting, raft=raft))
        return world, RealLoad(world, self.rng)

    def go(self) -> None:
        self._repeat(self.rng.choice([0.01, 0.05, 0.3]), self.rng, self._load)
        rng = random.Random(f"strikes {self.plan.seed}")
        self._repeat_strikes(rng.choice([0.1, 0.3, 1.0]), rng, self.nemesis, 0)
        if self.changes is not None:
            rng = random.Random(f"changes {self.plan.seed}")
            self._repeat_strikes(rng.choice([0.1, 0.3, 1.0]), rng, self.changes, CHANGES_FROM)
            rng = random.Random(f"checkpoints {self.plan.seed}")
            self._repeat(rng.choice([0.1, 0.5, 5.0]), rng, self.changes.checkpoint)
        rng = random.Random(f"disks {self.plan.seed}")  # a stream of its own: other runs stay what they are
        if self.plan.accident is None and rng.random() < FULL_DISKS:
            self._repeat(rng.choice([0.1, 0.3, 1.0]), rng, lambda: self._fill(rng))
        self.world.run(self.plan.chaos_s)
        self._settle()

    def _fill(self, rng: random.Random) -> None:
        """A disk fills up, perhaps the last one with room; or one has room again."""
        self.world.fill(rng.choice(self.world.nodes), is_full=rng.random() < 0.6)

    def _repeat(self, mean_s: float, rng: random.Random, call: Callable[[], None]) -> None:
        def again() -> None:
            if self.world.now < self.plan.chaos_s:
                call()
                self.world.at(rng.expovariate(1 / mean_s), again)

        self.world.at(rng.expovariate(1 / mean_s), again)

    def _repeat_strikes(self, mean_s: float, rng: random.Random, striker: Nemesis | Changes, first: int) -> None:
        """Every strike draws for itself, so that others stay what they are when it is left out."""
        numbers = count(first)
        striker.spared = self.plan.spare

        def strike() -> None:
            number = next(numbers)
            if number not in self.plan.without:
                self.struck.append(number)
                striker.rng = random.Random(f"strike {number} of {self.plan.seed}")
                striker.strike()

        self._repeat(mean_s, rng, strike)

    def _load(self) -> None:
        """A burst of proposals or reads, mostly on a node that believes it leads."""
        processes = self.nemesis.awake()
        group_id = self.rng.choice(self.world.group_ids)
        believers = [p for p in processes if group_id in p.groups and p.groups[group_id].is_leader]
        process = self.rng.choice(believers if believers and self.rng.random() < 0.95 else processes or [None])
        if process is None or group_id not in process.groups or self.nemesis.stage not in {None, process.node_id}:
            return
        for _ in range(self.rng.choice([1, 1, 1, 1, 5, 30])):
            timeout_s = self.rng.choice([0.05, 0.5, 3.0])
            if self.rng.random() < 0.2:
                self.world.checker.barrier(process, group_id, timeout_s)
            else:
                self._propose(process, group_id, timeout_s, b"." * self.rng.choice([0, 10, 200]))

    def _burst(self, node: str, count: int) -> None:
        process = self.world.processes.get(node)
        if process is not None and 1 in process.groups and not process.is_paused:
            for _ in range(count):
                self._propose(process, 1, 3.0)

    def _propose(self, process: Process, group_id: int, timeout_s: float, padding: bytes = b"") -> Attempt:
        if self._load_real is not None:
            return self._load_real.propose(process, group_id, timeout_s)
        return self.world.checker.propose(process, group_id, next(self._commands) + padding, timeout_s)

    def _settle(self) -> None:
        """With nothing in the way but full disks, every group commits a new command; with nothing in the way at all,
        every node applies another one, and no caller waits.
        """
        world = self.world
        self.nemesis.is_over = True
        world.trap = lambda *_: False
        world.heal()
        world.disk_s, world.network_s, world.network.drop_rate = (0.0001, 0.003), (0.0001, 0.001), 0.0
        self._wait(self._is_led, HEAL_S)
        is_whole = self.changes is None  # else a node may need a checkpoint, which one with a full disk does not take
        for group_id in world.group_ids if world.full and is_whole else ():
            self._commit_one(group_id)
        for node in world.nodes:
            world.fill(node, is_full=False)
        self._wait(self._is_quiet, CATCH_UP_S)
        if self.rng.random() < LONG_PEACE:
            world.run(world.settings.election_timeout_ms_max / 1000)  # the last fault may have a follower ask for votes
            self._wait(self._is_led, HEAL_S)
            self._wait(self._is_quiet, CATCH_UP_S)
            terms = self._terms()
            world.run(HEAL_S)
            world.checker.require(terms == self._terms(), "an election without a reason")
        for group_id in world.group_ids:
            self._commit_one(group_id)
        self._wait(self._is_quiet, CATCH_UP_S)
        groups = self._groups()
        world.checker.require(all(group.ready for group in groups), "a group is not ready everywhere")
        world.checker.check_answers()
        if isinstance(world, RealWorld):
            world.check_ends()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Let time pass until a condition holds. It is looked at now and then, since it costs more than an event."""
        end = self.world.now + seconds
        while not condition():
            self.world.checker.require(self.world.now < end, f"after healing, not {condition.__name__} in {seconds} s")
            self.world.run(LOOK_EVERY_S)

    def _groups(self) -> list[Group]:
        """The replicas that belong to their group, as its leader knows it."""
        return [
            self.world.group(node, group_id) for group_id in self.world.group_ids for node in self._members(group_id)
        ]

    def _members(self, group_id: int) -> list[str]:
        """The nodes that belong to a group, as its leader in the latest term knows them."""
        leading = [self.world.group(node, group_id) for node in self.world.leaders(group_id)]
        latest = max(leading, key=lambda group: group.term, default=None)
        return [*self.world.nodes] if latest is None else sorted(latest.configuration.members)

    def _terms(self) -> list[int]:
        return [group.term for group in self._groups()]

    def _is_led(self) -> bool:
        """Whether every group has one leader, and everybody knows it."""
        known = {(group.group_id, group.term, group.leader) for group in self._groups()}
        return len(known) == len(self.world.group_ids) and all(
            self.world.leaders(group_id) == [leader] for group_id, _, leader in known
        )

    def _is_quiet(self) -> bool:
        """Whether everything that is in a log is on disk, committed and applied everywhere, and no change is left."""
        if any(group._transfers.waiting for group in self._groups()) or any(self._leaders_changing()):
            return False
        if any(group._node.log.unsynced or not self._is_whole(group) for group in self._groups()):
            return False
        ends = {(group.group_id, group._node.log.last_index) for group in self._groups()}
        return len(ends) == len(self.world.group_ids) and all(
            (group.group_id, group.applied_index) in ends for group in self._groups()
        )

    def _leaders_changing(self) -> Iterator[bool]:
        """Of every leader whether its configuration is not committed: one that leaves is no member of it any more."""
        for group_id in self.world.group_ids:
            for node in self.world.leaders(group_id):
                yield self.world.group(node, group_id).changing

    def _is_whole(self, group: Group) -> bool:
        """Whether all members are voters, each with the disk that it has."""
        voters = group.configuration.voters
        has_learners = len(group.configuration.members) > len(voters)
        return not has_learners and all(self.world.disks[node].incarnation == disk for node, disk in voters.items())

    def _commit_one(self, group_id: int) -> None:
        """The leader commits a command. The leader may change once more: a node that lost its connection to the leader
        just before everything was healed may still ask to lead, and win.
        """
        end = self.world.now + CATCH_UP_S
        while not self._commits(group_id):
            self.world.checker.require(self.world.now < end, f"group {group_id} commits nothing after healing")

    def _commits(self, group_id: int) -> bool:
        """Whether the leader, if there is one, commits a new command and can prove that it leads."""
        world, checker = self.world, self.world.checker
        leaders = world.leaders(group_id)
        if len(leaders) != 1:
            world.run(LOOK_EVERY_S)
            return False
        process = world.processes[leaders[0]]
        attempt = self._propose(process, group_id, CATCH_UP_S)
        passed = checker.barriers_passed
        checker.barrier(process, group_id, CATCH_UP_S)
        barriers = process.groups[group_id]._barriers
        world.run_until(lambda: attempt.outcome is not None and not barriers.waiting, CATCH_UP_S)
        return isinstance(attempt.outcome, Committed) and checker.barriers_passed > passed


def run(plan: Plan) -> None:
    """Raises Violation, with the line that repeats the run."""
    try:
        Run(plan).go()
    except Exception as error:
        raise Violation(f"{plan.line()}  # {error}") from error


def run_seed(seed: int, accident: str | None = None) -> None:
    """Run one seed. Raises Violation, with the line that repeats it."""
    run(Plan(seed, accident))
