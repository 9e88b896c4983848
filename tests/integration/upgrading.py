"""The course of an upgrade, as one fault that strikes a cluster under load: forward, back, and forward again."""

import asyncio
import logging
import random
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stockade.chaos.faults.fault import Arena, Broken
from stockade.chaos.system.waiting import NotInTime, until
from stockade.cli.audit.export import Chain, stored
from stockade.cli.audit.writers import incarnation, who_could_write
from stockade.cli.chaos_commands.arena import LocalArena
from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode
from stockade.client.session.session import Fence, Session
from stockade.partition.api.cluster import NodeStates
from stockade.partition.api.ledger import LedgerEntry
from stockade.partition.errors import StockadeError
from stockade.partition.records.batch import batch_from_columns

from .api import Answer, Topic, call
from .releases import command, prefix

_log = logging.getLogger(__name__)

STOP_S = 60.0
SYNC_S = 90.0
LONG = "long"
"""A topic with more than a log keeps: replicas of it can only be copied from a checkpoint."""
KEPT = "kept"
"""A topic that one holder has from the beginning of the course to its end."""
BATCHES, LINES = 16, 500
LINE = "x" * 999
_NOT_RAISED = (409, 421, 503, 504)
"""What a request for a level may be answered while nodes lack it or are away, or the controller has no leader."""


@dataclass
class Restart:
    """A node was stopped and runs again, in another release or the same one; seconds of time.monotonic()."""

    what: str
    began_s: float
    ended_s: float


@dataclass
class Upgrade:
    """Implements chaos' Fault. ``previous`` is the path of the release before; ``local`` runs the arena's nodes."""

    local: LocalCluster
    previous: Path
    name: str = "upgrade"
    about: str = "every node is upgraded, rolled back, and upgraded again"
    mutant: Path | None = None
    """What to put on PYTHONPATH so that the working tree has a mistake."""
    restarts: list[Restart] = field(default_factory=list)
    releases: dict[str, Path | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.releases = {node.name: self.previous for node in self.local.nodes}
        self.local.prefix = lambda name: prefix(self.releases[name] or self.mutant)

    def why_not(self, _: Arena) -> str | None:
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Carry it all out, and say what is wrong by an AssertionError."""
        assert isinstance(arena, LocalArena)
        course = _Course(self, arena)
        await course.run()

        async def heal() -> None:
            """Every node runs the working tree."""

        return Broken("upgraded", heal)


class _Course:
    def __init__(self, upgrade: Upgrade, arena: LocalArena) -> None:
        self._upgrade, self._arena = upgrade, arena
        self._nodes = {node.name: node for node in upgrade.local.nodes}
        self._old: Path = upgrade.previous
        self._new: Path | None = None

    async def run(self) -> None:
        await self._fill()
        async with Session(self._arena.client, "keeper", ttl_ms=30_000) as session:
            fence = await session.acquire(KEPT, [0], mode="Exclusive")
            await self._one_node_there_and_back()
            await self._all_nodes_there_and_back()
            await self._for_good()
            await self._append_as(fence)
        await self._check_long()
        await self._check_ledger(fence)

    async def _one_node_there_and_back(self) -> None:
        """One node of three loses its disk, copies it from older leaders, and leads; then it goes back."""
        await self._restart("n1", self._new, wiped=True, copies=True)
        assert await self._supported("n1") == {"n1": (1, 2), "n2": (1, 1), "n3": (1, 1)}
        await self._refuses_to_finish("n1", ["n2", "n3"])
        await self._restart("n1", self._old)

    async def _all_nodes_there_and_back(self) -> None:
        """Two releases in one cluster, each node killed once; an older one copies its disk from a newer leader."""
        await self._restart("n1", self._new)
        await self._restart("n2", self._new)
        await self._restart(await self._controller(), number=signal.SIGKILL)
        await self._leads_everything("n2")
        await self._restart("n3", self._old, wiped=True, copies=True)
        await self._restart("n2", self._new, number=signal.SIGKILL)
        await self._restart("n3", self._new)
        for node in ("n1", "n2", "n3"):
            await self._restart(node, self._old)

    async def _for_good(self) -> None:
        for node in ("n3", "n2", "n1"):
            if node == "n1":
                await self._refuses_to_finish("n2", ["n1"])
                found = await asyncio.to_thread(call, "GET", f"{self._nodes['n2'].url}/v1/ledger")
                assert found.json["code"] == "FEATURE_LEVEL_TOO_LOW", "nothing is recorded while an old node is there"
            await self._restart(node, self._new)
        await until(self._finishes, SYNC_S, "the level cannot be raised")
        for each in self._nodes.values():
            await until(_has_level(each, 2), SYNC_S, f"{each.name} does not know the level")
        await self._old_software_is_refused("n3")
        await self._restart(await self._controller(), number=signal.SIGKILL)
        assert set((await self._supported("n2")).values()) == {(1, 2)}

    async def _old_software_is_refused(self, name: str) -> None:
        """By the node's own disk; and by the other nodes, when it comes with an empty one."""
        node = self._nodes[name]
        await self._stop(name, signal.SIGTERM)
        refused = await asyncio.to_thread(
            command, self._old, "-m", "stockade", "serve", "--config", str(node.data / "node.toml")
        )
        assert refused.returncode == 1, refused
        assert "another version of this software wrote it (2 in place of 1)" in refused.stderr, refused.stderr
        _wipe(node)
        began = _log_bytes(node)
        self._upgrade.releases[name] = self._old
        self._arena.start(name)
        said = "it speaks version 6 of the protocol, n1 speaks 7: its software is older than feature level 2"
        await until(_has_logged(node, began, f"refuses this node: {said}"), SYNC_S, f"{name} is not refused")
        await until(_is_unready(node), SYNC_S, f"{name} is ready, or does not answer")
        await self._restart(name, self._new, number=signal.SIGKILL)

    async def _restart(
        self,
        name: str,
        release: Path | str | None = "same",
        *,
        number: signal.Signals = signal.SIGTERM,
        wiped: bool = False,
        copies: bool = False,
    ) -> None:
        """Stop a node, start it in a release, wait until every replica has everything again, as an operator does."""
        node, began_s = self._nodes[name], time.monotonic()
        await self._stop(name, signal.SIGKILL if wiped else number)
        if wiped:
            _wipe(node)
        if not isinstance(release, str):
            self._upgrade.releases[name] = release
        logged = _log_bytes(node)
        self._arena.start(name)
        await self._arena.ready(name)
        await until(self._in_sync, SYNC_S, f"a replica lags behind after {name} came back")
        if copies:
            await until(_has_logged(node, logged, "installed a checkpoint"), SYNC_S, f"{name} copied no checkpoint")
        how = "wiped" if wiped else number.name
        what = f"{name} {'new' if self._upgrade.releases[name] is None else 'old'} {how}"
        self._upgrade.restarts.append(Restart(what, began_s, time.monotonic()))

    async def _stop(self, name: str, number: signal.Signals) -> None:
        self._arena.kill(name, number)

        async def is_gone() -> bool:
            return self._arena.pid(name) is None

        try:
            await until(is_gone, STOP_S, f"{name} does not stop")
        except NotInTime:
            if self._upgrade.releases[name] is None:
                raise
            # Until bf929f5a a log that closed during a flush could wait for ever. A service manager ends such a node.
            _log.warning("%s, of the release before, does not stop: it is killed", name)
            self._arena.kill(name, signal.SIGKILL)

    async def _in_sync(self) -> bool:
        try:
            found = await self._arena.client.calls.call(NodeStates, "GET", "/v1/nodes", params={"everywhere": "true"})
        except StockadeError:
            return False
        counts = [state.partitions for state in found.nodes]
        return not found.missing and not any(each.under_replicated or each.leaderless for each in counts)

    async def _controller(self) -> str:
        found: list[str] = []

        async def is_known() -> bool:
            name = (await self._arena.client.cluster()).controller.leader_node
            found.extend([name] if name is not None else [])
            return bool(found)

        await until(is_known, SYNC_S, "no controller leads")
        return found[0]

    async def _leads_everything(self, name: str) -> None:
        """Only a voter that has everything can lead a group."""

        async def leads() -> bool:
            try:
                for topic in (*self._arena.topics, LONG, KEPT):
                    for state in (await self._arena.client.topic(topic)).partitions:
                        if state.leader_node != name:
                            await self._arena.client.transfer_leader(topic, state.partition, name)
                await self._arena.client.transfer_leader(None, None, name)
            except StockadeError:
                return False
            return True

        await until(leads, SYNC_S, f"{name} cannot lead")

    async def _supported(self, name: str) -> dict[str, Any]:
        """By node, the levels that its software supports, as the node ``name`` says."""
        nodes = (await asyncio.to_thread(call, "GET", f"{self._nodes[name].url}/v1/cluster")).json["nodes"]
        return {each["node_id"]: tuple((each["feature_levels"] or {}).values()) for each in nodes}

    async def _refuses_to_finish(self, name: str, lacking: Sequence[str]) -> None:
        """It refuses each time, and names nodes that are away, too: on a busy machine connections break."""

        async def names_those_alone() -> bool:
            await self._leads_everything(name)
            refused = await self._post(name, "/v1/cluster/feature_level", {"level": 2})
            assert refused.status in _NOT_RAISED, refused
            return (refused.json["code"], refused.json.get("nodes")) == ("FEATURE_UPDATE_FAILED", lacking)

        await until(names_those_alone, SYNC_S, f"{name} does not say that {lacking} lack the level")

    async def _finishes(self) -> bool:
        answer = await self._post("n1", "/v1/cluster/feature_level", {"level": 2})
        assert answer.status in (200, *_NOT_RAISED), answer
        return answer.status == 200 and bool(answer.json["feature_level"] == 2)

    async def _post(self, name: str, path: str, body: Any) -> Answer:
        return await asyncio.to_thread(call, "POST", f"{self._nodes[name].url}{path}", body)

    async def _fill(self) -> None:
        client = self._arena.client
        for topic in (LONG, KEPT):
            await client.create_topic(topic, partitions=1)
        for number in range(BATCHES):
            url = f"{self._nodes['n1'].url}/v1/topics/{LONG}/partitions/0/records"
            text = "\n".join([*[LINE] * LINES, str(number)]).encode()
            answer = await asyncio.to_thread(call, "POST", url, text, headers={"Content-Type": "text/plain"})
            assert answer.status == 200, answer

    async def _append_as(self, fence: Fence) -> None:
        """The holder still is the holder."""
        batch = batch_from_columns([None], [b"still here"], None, None, now_ms=0, batch_bytes_max=1 << 20)
        stored = await self._arena.client.append(KEPT, 0, batch.message, token=fence.token(0))
        assert stored.base_offset == 0

    async def _check_long(self) -> None:
        """Every replica has it, those included that were copied from one release to the other."""
        for name, node in self._nodes.items():
            for number in (0, BATCHES - 1):
                query = f"offset={number * (LINES + 1)}&max_bytes=1048576&local=true"
                values = await asyncio.to_thread(Topic(node.url, LONG).values, 0, query)
                assert values[: LINES + 1] == [*[LINE] * LINES, str(number)], name

    async def _check_ledger(self, fence: Fence) -> None:
        """It begins with the level: with what was granted before, and with who raised it. The controllers that led
        since had copied their state from one another in both releases; they have one chain.
        """
        chain, entries = Chain(), list[LedgerEntry]()
        async for some in stored(self._arena.client, 1):
            entries += [chain.follow(number, encoded) for number, encoded in some]
        raised = next(each.number for each in entries if each.act == "cluster.feature_level")
        begun, *held, level = entries[:raised]
        assert (begun.act, {each.act for each in held}) == ("ledger.begin", {"grant.held"})
        grant = fence.token(0).grant_id
        assert grant in [(each.after or {})["grant"] for each in held]
        assert (level.before, level.after, level.client) == ({"feature_level": 1}, {"feature_level": 2}, "127.0.0.1")
        assert level.request
        mine = [each for each in entries if each.topic == KEPT]
        answer = who_could_write(mine, KEPT, incarnation(mine) or 0, 0, 0, first=1)
        assert (answer.who, [each.grant for each in answer.possible]) == ("unknown", [grant]), (
            "it may have held it since"
        )
        assert len(entries) > 2 * len(held)


def _is_unready(node: LocalNode) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        try:
            return (await asyncio.to_thread(call, "GET", f"{node.url}/readyz")).status == 503
        except OSError:  # a node meets others before it listens to clients
            return False

    return asked


def _has_level(node: LocalNode, level: int) -> Callable[[], Awaitable[bool]]:
    async def has() -> bool:
        found = await asyncio.to_thread(call, "GET", f"{node.url}/v1/cluster")
        return bool(found.json["feature_level"] == level)

    return has


def _log_bytes(node: LocalNode) -> int:
    return (node.data / "node.log").stat().st_size


def _has_logged(node: LocalNode, since: int, text: str) -> Callable[[], Awaitable[bool]]:
    async def has() -> bool:
        with (node.data / "node.log").open("rb") as log:
            log.seek(since)
            return text.encode() in log.read()

    return has


def _wipe(node: LocalNode) -> None:
    """Nothing is left of the node but its configuration and its log for people."""
    for path in node.data.iterdir():
        if path.name not in {"node.toml", "node.log"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
