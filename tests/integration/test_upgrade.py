"""A running cluster is upgraded from the release before this one to the working tree, back, and forward again, under
writers, holders, waiters and a consumer group: nothing that was acknowledged is lost or doubled, no zombie writes, and
afterwards the older software is refused.
"""

import asyncio
import logging
import statistics
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from stockade.chaos.faults.catalogue import CATALOGUE
from stockade.chaos.harness.judging import judge_events
from stockade.chaos.harness.round import Round
from stockade.chaos.harness.schedule import Planned
from stockade.chaos.history.history import Event, History
from stockade.chaos.workloads.catalogue import WORKLOADS
from stockade.cli.chaos_commands.arena import SMALL_FILES, LocalArena
from stockade.cli.local_cluster.cluster import LocalCluster

from .releases import previous_release
from .upgrading import Restart, Upgrade

_log = logging.getLogger(__name__)

LOADS = ("append", "slots", "group")
STALLS = tuple(Planned(at_s, at_s + 9.0, "stall-producer", f"{at_s}") for at_s in (4.0, 20.0, 36.0))
"""Clients that stop for longer than their sessions live, and wake up as zombies."""
AFTER_S = 5.0
"""A pause of writers belongs to a restart until so long after its end."""


@pytest.mark.timeout(900)  # sixteen restarts
def test_a_cluster_is_upgraded_rolled_back_and_upgraded_under_load(tmp_path: Path) -> None:
    upgraded(tmp_path)


def upgraded(tmp_path: Path, mutant: Path | None = None) -> None:
    """Carry it out; ``mutant``: with a mistake in the working tree."""
    local = LocalCluster(tmp_path / "data", port_base=0, restart=False, settings=SMALL_FILES)
    upgrade = Upgrade(local, previous_release(tmp_path / "previous"), mutant=mutant)
    history = History.create(tmp_path / "history.jsonl")

    async def play() -> None:
        arena = LocalArena(local, None, None, {})
        faults = {**CATALOGUE, upgrade.name: upgrade}
        one = Round(1, [WORKLOADS[name] for name in LOADS], arena, history, faults)
        try:
            over, logs = await one.run([Planned(0.0, 0.0, upgrade.name, "1"), *STALLS], 1.0, lambda doing: None)
        finally:
            await arena.close()
        assert (over.failures, over.lost) == ([], [])
        events = history.take()
        judged = judge_events(events, logs)
        _log.info(
            "%d operations and %d records judged\n%s", judged.operations, judged.records, _pauses(events, upgrade)
        )
        assert judged.violations == 0, [verdict for verdict in judged.verdicts if verdict.violations]
        assert judged.operations > 100 * len(upgrade.restarts)

    with history, local:
        asyncio.run(play())


def _pauses(events: Iterable[Event], upgrade: Upgrade) -> str:
    """For people: for how long no partition of the topic ``append`` acknowledged a write, around each restart."""
    acked: dict[tuple[str, int], list[float]] = {}
    for event in events:
        if event.f == "append" and event.type == "ok" and (event.topic or "").startswith("append-"):
            acked.setdefault((event.topic or "", event.partition or 0), []).append(event.t_mono_ns / 1e9)
    lines, all_pauses = [], []
    for restart in upgrade.restarts:
        pauses = [
            max((after - before for before, after in pairwise(times) if _touches(restart, before, after)), default=0.0)
            for times in acked.values()
        ]
        all_pauses += pauses
        took_s = restart.ended_s - restart.began_s
        lines.append(f"{restart.what:16} {took_s:5.1f} s; writers paused for " + ", ".join(f"{p:.2f}" for p in pauses))
    lines.append(f"pauses: median {statistics.median(all_pauses):.2f} s, longest {max(all_pauses):.2f} s")
    return "\n".join(lines)


def _touches(restart: Restart, before: float, after: float) -> bool:
    return before < restart.ended_s + AFTER_S and after > restart.began_s
