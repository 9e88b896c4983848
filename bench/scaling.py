"""The processor time and memory of the controller's machine in a large cluster, without network and disks.

``python bench/scaling.py placement|zone|balance|sessions|producers|grants [...]`` prints a table for each; without a
name, all of them. ``--zones 100 --nodes-per-zone 16 --partitions 100000 --topics 100 --sessions 100000 --names
1000000`` are the sizes. Processor time is measured: it is that of the code that runs in a node, on one core. ``zone``
counts time of its own (scaling_zone.py). docs/scaling.md has the figures.
"""

# ruff: noqa: T201, S603  # it prints tables, and runs itself

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Iterable

from scaling_balance import plans
from scaling_world import (
    Controller,
    Row,
    Sizes,
    balance,
    catalog,
    check_zones,
    checkpoint,
    create,
    register,
    resident_mb,
    timed,
)
from scaling_zone import lose

from stockade.cluster import rpc
from stockade.cluster.controller.commands import (
    Acquire,
    CloseSession,
    Enrol,
    FenceInstalled,
    InitProducer,
    OpenSession,
    RenewSessions,
    Tick,
)
from stockade.cluster.controller.sessions import RENEWALS_PER_COMMAND_MAX, Leases
from stockade.cluster.controller.topology.catalog import PARTITIONS_PER_TOPIC_MAX

GARBAGE_THRESHOLD = 50_000
"""As a node sets it (cli/node/serve.py)."""


def placement(sizes: Sizes) -> list[Row]:
    """100 machines of 16 processes take 100,000 partitions."""
    before_mb = resident_mb()
    controller = Controller()
    register(controller, sizes)
    register_s = controller.cpu_s
    create_s = create(controller, sizes)
    check_zones(controller.machine, sizes.zones)
    told = catalog(controller.machine)
    encode_s, data = timed(lambda: rpc.encode(told)), rpc.encode(told)
    return [
        Row(f"register {sizes.nodes} nodes", register_s * 1e3, "ms"),
        Row(f"create {sizes.topics} topics, {sizes.partitions} partitions", create_s, "s"),
        Row("one topic: the loop waits", create_s / sizes.topics * 1e3, "ms"),
        Row("memory", resident_mb() - before_mb, "MB"),
        *balance(controller.machine),
        Row("partitions with two replicas in a zone", 0, ""),
        Row("catalog, told to every node", len(data) / 1e6, "MB"),
        Row("catalog: encode, once for all nodes", encode_s * 1e3, "ms"),
        Row("catalog: decode, on each node", timed(lambda: rpc.decode(data)) * 1e3, "ms"),
        *checkpoint(controller.machine),
    ]


def opened(controller: Controller, count: int, ttl_ms: int = 30_000) -> float:
    """Open ``count`` sessions; return the seconds of processor time."""
    wanted = (
        OpenSession(now_ms=0, session=f"s-{number:032x}", client_id=f"client-{number}", ttl_ms=ttl_ms)
        for number in range(count)
    )
    return controller.all("sessions", wanted, count)


def sessions(sizes: Sizes) -> list[Row]:
    """All sessions renewed once, as the leader hears and writes it; then all expire at one tick."""
    count, before_mb, ttl_ms = sizes.sessions, resident_mb(), 30_000
    controller = Controller()
    machine = controller.machine
    open_s = opened(controller, count, ttl_ms)
    memory_mb = resident_mb() - before_mb
    captured = checkpoint(machine)
    leases = Leases(lambda: machine.sessions)
    leases.begin(1, 0)
    names = [session.session for session in machine.sessions.live()]
    hear_s = timed(lambda: [leases.renew(1, name, 10_000) for name in names])
    leases.advance(ttl_ms)
    began = time.process_time()
    _, due = leases.look_ahead(ttl_ms - 500)
    look_s = time.process_time() - began
    parts = [due[start : start + RENEWALS_PER_COMMAND_MAX] for start in range(0, count, RENEWALS_PER_COMMAND_MAX)]
    write_s = controller.all("renewals", (RenewSessions(now_ms=20_000, deadlines_ms=part) for part in parts), count)
    write_s += timed(lambda: _written(leases, parts))
    assert len(due) == count
    rearm_s = timed(lambda: machine.sessions.rearm(40_000))
    before = controller.cpu_s
    controller.do(Tick(now_ms=40_000 + ttl_ms))
    assert not list(machine.sessions.live())
    return [
        Row("open one", open_s / count * 1e6, "µs"),
        Row("memory of one", memory_mb / count * 1e6, "B"),
        *captured,
        Row("hear one renewal, without HTTP", hear_s / count * 1e6, "µs"),
        Row("find all that are due at once: the loop waits", look_s * 1e3, "ms"),
        Row("write one renewal into the log, once a ttl", write_s / count * 1e6, "µs"),
        Row("a new leader re-arms all: the loop waits", rearm_s * 1e3, "ms"),
        Row("all expire at one tick: the loop waits", (controller.cpu_s - before) * 1e3, "ms"),
    ]


def _written(leases: Leases, parts: list[list[tuple[str, int]]]) -> None:
    for part in parts:
        leases.written(part)


def topic(controller: Controller, partitions: int) -> int:
    """Create a topic on one node; return the id of its first group."""
    sizes = Sizes(zones=1, nodes_per_zone=1, partitions=partitions, topics=1)
    register(controller, sizes)
    create(controller, sizes)
    return controller.machine.catalog.topics()[0].groups()[0]


def producers(sizes: Sizes) -> list[Row]:
    """Names, each with a nonce, and each enrolled on a partition."""
    count, partitions = sizes.names, min(PARTITIONS_PER_TOPIC_MAX, sizes.partitions)
    controller = Controller()
    group = topic(controller, partitions)
    registry = controller.machine.registry
    before_mb = resident_mb()
    named = (InitProducer(now_ms=0, name=f"producer-{number:07}", nonce=f"{number:032x}") for number in range(count))
    init_s = controller.all("names", named, count)
    names_mb = resident_mb() - before_mb
    pids = [row.pid for row in registry.rows.values()]
    enrolled = (Enrol(now_ms=0, pid=pid, group_id=group + number % partitions) for number, pid in enumerate(pids))
    enrol_s = controller.all("enrolments", enrolled, count)
    both_mb = resident_mb() - before_mb
    some = list(registry.rows)[:: max(1, count // 100_000)]
    find_s = timed(lambda: [registry.find(name) for name in some])
    return [
        Row("name a producer", init_s / count * 1e6, "µs"),
        Row("memory of a name", names_mb / count * 1e6, "B"),
        Row("enrol one on a partition", enrol_s / count * 1e6, "µs"),
        Row("memory of an enrolment", (both_mb - names_mb) / count * 1e6, "B"),
        Row("look one up", find_s / len(some) * 1e6, "µs"),
        *checkpoint(controller.machine),
    ]


def grants(sizes: Sizes) -> list[Row]:
    """A grant for each session on a partition of its own, installed, and ended; then one grant of all partitions."""
    count = min(PARTITIONS_PER_TOPIC_MAX, sizes.partitions, sizes.sessions)
    controller = Controller()
    topic(controller, count)
    machine = controller.machine
    opened(controller, count + 1)
    names = [session.session for session in machine.sessions.live()]

    def acquire(session: str, partitions: list[int] | None) -> Acquire:
        return Acquire(
            now_ms=0,
            session=session,
            topic="topic-00000",
            partitions=partitions,
            mode="ExclusiveWithFencing",
            producer_name="p",
        )

    def installed() -> list[FenceInstalled]:
        return [
            FenceInstalled(now_ms=0, group_id=group, order=due.order) for group, due in machine.slots.fences.due.items()
        ]

    acquire_s = controller.all("grants", (acquire(names[number], [number]) for number in range(count)), count)
    work_s = timed(lambda: list(machine.work()))
    install_s = controller.all("installs", installed(), count)
    captured = checkpoint(machine)
    close_s = controller.all("ends", (CloseSession(now_ms=0, session=name) for name in names[:count]), count)
    controller.all("installs", installed(), count)
    whole_s = timed(lambda: controller.do(acquire(names[count], None)))
    return [
        Row("grant of one partition", acquire_s / count * 1e6, "µs"),
        Row(f"list {count} fences that are to be installed", work_s * 1e3, "ms"),
        Row("note that one is installed", install_s / count * 1e6, "µs"),
        Row("close a session with a grant, while others are due", close_s / count * 1e6, "µs"),
        Row(f"grant of {count} partitions: the loop waits", whole_s * 1e3, "ms"),
        *captured,
    ]


TABLES = {
    "placement": placement,
    "zone": lose,
    "balance": plans,
    "sessions": sessions,
    "producers": producers,
    "grants": grants,
}


def show(title: str, rows: Iterable[Row]) -> None:
    """Print one table."""
    print(title)
    for row in rows:
        value = f"{row.value:,.0f}" if row.value >= 100 or row.value == int(row.value) else f"{row.value:.3g}"
        print(f"  {row.what:<52} {value:>12} {row.unit}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"of {', '.join(TABLES)}; all unless given")
    for name, size in Sizes()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size)
    chosen = parser.parse_args()
    if unknown := set(chosen.tables) - set(TABLES):
        parser.error(f"there is no table {', '.join(sorted(unknown))}: {', '.join(TABLES)}")
    sizes = Sizes(**{name: getattr(chosen, name) for name in Sizes._fields})
    if min(sizes) < 1 or sizes.partitions < sizes.topics:
        parser.error("sizes are at least 1, and every topic has a partition")
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    names = chosen.tables or list(TABLES)
    if len(names) == 1:
        show(f"{names[0]}: {(TABLES[names[0]].__doc__ or '').strip()}", TABLES[names[0]](sizes))
        return
    given = [f"--{name.replace('_', '-')}={size}" for name, size in sizes._asdict().items()]
    for name in names:  # each in a process of its own: memory is measured
        subprocess.run([sys.executable, __file__, name, *given], check=True)


if __name__ == "__main__":
    main()
