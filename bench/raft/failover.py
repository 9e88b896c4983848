"""How long nothing is committed when a leader's process ends or stands still; whether leaders stay without a cause."""

import multiprocessing
import os
import signal
import time
from statistics import median

from fleet import NODES, Fleet, fleet
from tables import Column, Options, Row, Table

PROBE_S = 30.0
COLUMNS = (
    Column("groups", "groups"),
    Column("cause", "cause"),
    Column("rounds", "rounds"),
    Column("p50_ms", "p50 ms"),
    Column("max_ms", "max ms"),
)


def failover(options: Options) -> list[Row]:
    """Kill or stop the leader of all groups, again and again: time until the last group commits on another node."""
    table = Table("Failover, quiescent groups: from the signal to the next commit, of the last group", COLUMNS)
    rounds = 5 if options.short else 10 * options.runs
    for count in (1,) if options.short else (1, 64, 1024):
        for cause in ("kill -9", "SIGSTOP"):
            with fleet() as nodes:
                nodes.open(1, count)
                gaps = [_round(nodes, count, cause) for _ in range(rounds if count < 1024 else max(3, rounds // 6))]
            table.add(
                {
                    "groups": count,
                    "cause": cause,
                    "rounds": len(gaps),
                    "p50_ms": median(gaps) * 1e3,
                    "max_ms": max(gaps) * 1e3,
                    "gaps_ms": [gap * 1e3 for gap in gaps],
                }
            )
    return table.rows


def _round(nodes: Fleet, count: int, cause: str) -> float:
    nodes.until_resting()
    states = nodes.ask_all("status")
    leader = max(NODES, key=lambda node: states[node]["leads"])
    groups = list(range(1, count + 1))
    rest = [node for node in NODES if node != leader]
    for node in rest:
        nodes.say(node, "probe", groups=groups, dead=leader, seconds=PROBE_S)
    time.sleep(0.3)
    began = time.monotonic()
    os.kill(nodes.processes[leader].pid, signal.SIGKILL if cause == "kill -9" else signal.SIGSTOP)
    answers = [nodes.answer(node) for node in rest]
    if cause == "kill -9":
        nodes.kill(leader)
        nodes.start(leader)
    else:
        os.kill(nodes.processes[leader].pid, signal.SIGCONT)
    times = [min((at for at in each if at is not None), default=None) for each in zip(*answers, strict=True)]
    moved = [at for at in times if at is not None]
    assert len(moved) >= states[leader]["leads"], f"{count - len(moved)} groups did not commit within {PROBE_S} s"
    return float(max(moved)) - began


FLAPPING_COLUMNS = (
    Column("groups", "groups"),
    Column("minutes", "minutes", ".1f"),
    Column("elections", "elections"),
    Column("failed", "failed commits"),
)


def flapping(options: Options) -> list[Row]:
    """All cores busy with something else, and every group proposed to twice a second: elections must not happen."""
    minutes = 0.25 if options.short else options.minutes
    table = Table("Elections while every core is kept busy by others (none may happen)", FLAPPING_COLUMNS)
    for count in (64,) if options.short else (1, 64, 256):
        with fleet() as nodes:
            nodes.open(1, count, spread=True)
            nodes.until_resting()
            before = nodes.ask_all("status")
            burners = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)]
            for burner in burners:
                burner.start()
            failed = nodes.ask_all("trickle", period_s=0.5, seconds=minutes * 60)
            for burner in burners:
                burner.kill()
                burner.join()
            after = nodes.ask_all("status")
            elections = max(after[node]["terms"] - before[node]["terms"] for node in NODES)
        table.add({"groups": count, "minutes": minutes, "elections": elections, "failed": sum(failed.values())})
    return table.rows


def _burn() -> None:
    while True:
        sum(range(10_000))
