"""Faults, drawn from a random number generator: single ones that overlap, and replays of known accidents."""

import random
from collections.abc import Callable, Collection, Sequence

from simulation.world import Process, World

from stockade.raft import messages

Fault = Callable[[], None]
TRAPS = (messages.AppendEntries, messages.AppendAck, messages.RequestVote, messages.VoteReply, messages.PreVoteReply)


FOREVER_S = 1000.0
KINDS = 5
"""Kinds of faults in a run."""
FAULTS = (
    *("crash", "crash_leader", "crash_at_message", "power_loss", "power_loss"),
    *("isolate", "isolate_leader", "isolate_leader", "isolate_leader", "isolate_leader"),
    *(
        "strand_leader",
        "stray_tail",
        "stray_tail",
        "late_acks",
        "late_acks",
        "late_refusals",
        "rivals",
        "lost_ballots",
        "lost_ballots",
    ),
    *("cut", "break_connection", "hold", "slow_link", "slow_bytes", "slow_disks", "full_buffers"),
    *("pause", "pause_leader", "step_down", "reopen"),
)


class Nemesis:
    """Strikes a few kinds of faults in a run, and mends something now and then."""

    def __init__(
        self, world: World, rng: random.Random, burst: Callable[[str, int], None], faults: Sequence[str]
    ) -> None:
        """``burst`` proposes so many commands on a node, to the first group."""
        self.world = world
        self.rng = rng
        self.burst = burst
        self.stage: str | None = None
        """While an accident is played: the only node that may be asked for anything."""
        self.is_over = False
        """Set at the end of the chaos: what is still planned does not happen."""
        self.spared: Collection[str] = ()
        """Kinds that do not happen."""
        self.tell: Callable[[str], None] = lambda _: None
        """Hears of each fault."""
        self.kinds: list[Fault] = [getattr(self, fault) for fault in rng.choices(faults, k=KINDS)]

    def strike(self) -> None:
        """One fault, or one thing mended: rather that when no majority is awake."""
        quorum = len(self.world.nodes) // 2 + 1
        if self.rng.random() < (0.3 if len(self.awake()) >= quorum else 0.8):
            fault = self.mend
        else:
            fault = self.rng.choice(self.kinds)
        if fault.__name__ not in self.spared:
            self.tell(fault.__name__)
            fault()

    def awake(self) -> list[Process]:
        return [process for _, process in sorted(self.world.processes.items()) if not process.is_paused]

    # Whom it meets.

    def _node(self) -> str:
        return self.rng.choice(self.world.nodes)

    def _leader(self) -> str:
        leaders = self.world.leaders(self.rng.choice(self.world.group_ids))
        return self.rng.choice(leaders) if leaders else self._node()

    def _on_pair(self, act: Callable[[str, str], None]) -> None:
        if len(self.world.nodes) > 1:
            act(*self.rng.sample(self.world.nodes, 2))

    def later(self, low_s: float, high_s: float, act: Fault) -> None:
        self.world.at(self.rng.uniform(low_s, high_s), lambda: None if self.is_over else act())

    # Single faults.

    def mend(self) -> None:
        choice = self.rng.random()
        if choice < 0.5:
            node = self._node()
            self.world.resume(node)
            self.world.restart(node)
        elif choice < 0.8:
            self._on_pair(self.world.network.mend)
        else:
            self.world.heal()

    def crash(self) -> None:
        self.world.crash(self._node())

    def crash_leader(self) -> None:
        self.world.crash(self._leader())

    def crash_at_message(self) -> None:
        """A node dies right after it has handled a message of some kind, and may be back at once."""
        self._trap(self._node(), self.rng.choice(TRAPS))

    def _trap(self, node: str, kind: type[messages.RaftMessage]) -> None:
        def trap(process: Process, message: messages.RaftMessage) -> bool:
            sprung = process.node_id == node and isinstance(message, kind)
            if sprung and self.rng.random() < 0.7:
                self.later(0.0, 0.02, lambda: self.world.restart(node))
            return sprung

        self.world.trap = trap

    def power_loss(self) -> None:
        """All at once; they come back in any order."""
        for node in self.world.nodes:
            self.world.crash(node)
            self.later(0.0, 1.0, lambda node=node: self.world.restart(node))  # type: ignore[misc]

    def isolate(self) -> None:
        self.world.isolate(self.rng.sample(self.world.nodes, self.rng.randint(1, len(self.world.nodes))))

    def isolate_leader(self) -> None:
        """For long enough that it is replaced, often not for much longer."""
        self.world.isolate([self._leader()])
        if self.rng.random() < 0.7:
            self.later(0.3, 2.5, self.world.heal)

    def cut(self) -> None:
        self._on_pair(self.world.network.cut)

    def break_connection(self) -> None:
        self._on_pair(self.world.network.break_)

    def hold(self) -> None:
        self._on_pair(self.world.network.hold)

    def slow_link(self) -> None:
        self._on_pair(lambda one, other: self._slow(one, other, self.rng.choice([0.01, 0.1, 0.5, 2.0])))

    def slow_bytes(self) -> None:
        """Long frames are on their way for seconds, and heartbeats wait behind them."""
        self._on_pair(lambda one, other: self._slow(one, other, self.rng.choice([0.5, 2.0, 5.0]), streaming=True))

    def _slow(self, source: str, target: str, seconds: float, *, streaming: bool = False) -> None:
        link = self.world.network.link(source, target)
        link.slow_s[target] = seconds
        if streaming:
            link.streaming.add(target)

    def slow_disks(self) -> None:
        self.world.disk_s = self.rng.choice([(0.0001, 0.003), (0.0, 0.1), (0.2, 0.6)])

    def full_buffers(self) -> None:
        """Many messages do not get into their buffers for a while."""
        self.world.network.drop_rate = self.rng.choice([0.3, 0.6])
        self.later(0.1, 1.0, lambda: setattr(self.world.network, "drop_rate", 0.0))

    def pause(self) -> None:
        self.world.pause(self._node())

    def pause_leader(self) -> None:
        self.world.pause(self._leader())

    def step_down(self) -> None:
        process = self.world.processes.get(self._leader())
        if process is not None and not process.is_paused:
            for group in process.groups.values():
                group.step_down()

    def rivals(self) -> None:
        """Several followers are asked to take over at once."""
        leader, group_id = self._leader(), self.rng.choice(self.world.group_ids)
        self._promote(leader, [node for node in self.world.nodes if self.rng.random() < 0.7], group_id)

    def _promote(self, leader: str, transferees: Sequence[str], group_id: int = 1) -> None:
        """Those of these nodes that follow the leader are asked to take over, in the leader's name."""
        for process in self.awake():
            group = process.groups.get(group_id)
            if process.node_id in transferees and group is not None and group.leader == leader != process.node_id:
                group.receive(leader, messages.TimeoutNow(group.term))

    def reopen(self) -> None:
        """A group closes on a node, which lives on, and opens again a little later."""
        process = self.world.processes.get(self._node())
        if process is None or process.is_paused:
            return
        group_id = self.rng.choice(self.world.group_ids)
        process.close_group(group_id)

        def open_again() -> None:
            if process.is_alive and group_id not in process.groups:
                process.open_group(group_id)

        self.later(0.0, 1.0, open_again)

    # Known accidents.

    def strand_leader(self) -> None:
        """The leader reaches one follower only, whose acks are slow; it is replaced, comes back and may lead again."""
        if len(self.world.nodes) > 2:
            leader, near, far = self._split()
            self._slow(near, leader, self.rng.uniform(0.5, 4.0))
            self._hold_all(leader, far)
            self.later(0.3, 2.0, lambda: self._reconnect_all(leader, far))
            for _ in range(3):
                self.later(0.5, 4.0, self.step_down)

    def stray_tail(self) -> None:
        """D3: a leader that no node hears takes in more than its successor, and comes back when messages get lost."""
        leader = self._leader()
        others = [node for node in self.world.nodes if node != leader]
        self._hold_all(leader, others)
        self.burst(leader, self.rng.choice([3, 30]))

        def come_back() -> None:
            for node in self.world.leaders(1):
                self.burst(node, self.rng.choice([1, 5]))
            self.full_buffers()
            self.later(0.0, 0.1, lambda: self._reconnect_all(leader, others))

        self.later(0.7, 1.5, come_back)

    def late_acks(self) -> None:
        """D1: acks are still on their way when their leader was replaced and leads again, with hardly any follower.

        They speak of more entries than there are now, so no other node may add any meanwhile.
        """
        if len(self.world.nodes) < 5 or self.stage is not None:
            return
        leader, near, far = self._split()
        self._slow(near, leader, FOREVER_S)
        self._hold_all(leader, far)
        self.burst(leader, 30)
        self.stage = leader
        end = self.world.now + 4.0

        def when_it_leads_again() -> None:
            if leader in self.world.leaders():
                self._hold_all(leader, [near, *far[1:]])
                self.burst(leader, 10)
                self.later(0.0, 0.4, lambda: self.world.network.mend(leader, near))
                self.stage = None
            elif self.world.now < end:
                self._make_way_for(leader)
                self.later(0.01, 0.05, when_it_leads_again)
            else:
                self.stage = None

        def come_back() -> None:
            self._reconnect_all(leader, far)
            self.later(0.1, 0.5, when_it_leads_again)

        self.later(0.7, 1.5, come_back)

    def lost_ballots(self) -> None:
        """D16: the power of all but one fails when a candidate has just been elected; the one knows nothing of it."""
        leader = self._leader()
        group = self.world.processes[leader].groups.get(1) if leader in self.world.processes else None
        if len(self.world.nodes) < 3 or group is None or not group.is_leader:
            return
        candidate, outsider, *_ = self.rng.sample([node for node in self.world.nodes if node != leader], 2)
        self.world.isolate([outsider])

        def trap(process: Process, message: messages.RaftMessage) -> bool:
            if process.node_id != candidate or 1 not in process.groups or not process.groups[1].is_leader:
                return False
            for node in self.world.nodes:
                if node != outsider:
                    self.world.crash(node)
                    self.later(0.0, 0.3, lambda node=node: self.world.restart(node))  # type: ignore[misc]
            self.later(0.0, 0.3, self.world.heal)
            return True

        self.world.trap = trap
        self._promote(leader, [candidate])

    def late_refusals(self) -> None:
        """Messages of an old leadership reach a rival of the next one, and are refused in the term of the next one."""
        if len(self.world.nodes) > 2:
            leader, near, _ = self._split()
            self._slow(leader, near, FOREVER_S)
            self.later(0.1, 0.8, lambda: self._make_way_for(near))

            def compete() -> None:
                for successor in self.world.leaders(1):
                    self._promote(successor, [leader, near])
                self.later(0.01, 0.2, lambda: self.world.network.mend(leader, near))

            self.later(0.8, 1.2, compete)

    def _split(self) -> tuple[str, str, list[str]]:
        """The leader, one follower that it still reaches, and the others."""
        leader = self._leader()
        near, *far = self.rng.sample([node for node in self.world.nodes if node != leader], len(self.world.nodes) - 1)
        return leader, near, far

    def _hold_all(self, node: str, others: Sequence[str]) -> None:
        for other in others:
            self.world.network.hold(node, other)

    def _reconnect_all(self, node: str, others: Sequence[str]) -> None:
        for other in others:
            self.world.network.break_(node, other)
            self.world.network.mend(node, other)

    def _make_way_for(self, node: str) -> None:
        """Every other leader than ``node`` steps down."""
        for other, process in sorted(self.world.processes.items()):
            rival = process.groups.get(1)
            if other != node and rival is not None and rival.is_leader:
                rival.step_down()
