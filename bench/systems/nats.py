"""NATS JetStream, with a stream of three replicas for each partition: as it is, and with ``sync_interval: always``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import install
from workloads import COUNTS, IDLE_PARTITIONS, SIZES

from stockade.cli.local_cluster.ports import free_ports
from systems.common import NODES, Running, System, finished, spawned, until_open

_CONFIG = """
server_name: n{number}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/n{number}", max_file: 50G, max_mem: 1G {sync} }}
cluster {{ name: C, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


@dataclass
class Nodes:
    """Three servers."""

    urls: str
    pids: Sequence[int]

    def create(self, partitions: int) -> None:
        """Make a stream for each partition."""
        finished([str(install.place("loads")), "nats-create", self.urls, str(partitions)])

    def delete(self, partitions: int) -> None:
        """Remove the streams."""
        finished([str(install.place("loads")), "nats-delete", self.urls, str(partitions)])

    def command(self, workload: str, partitions: int, amount: float) -> list[str]:
        """The load, through NATS' client for Go, which is its first one."""
        load = "nats-consume" if workload == "consumer" else "nats-produce"
        size = SIZES.get(workload, 0)
        return [str(install.place("loads")), load, self.urls, str(partitions), str(amount), str(size)]


def nats(*, is_synced: bool) -> System:
    """NATS, as the runner takes it. ``is_synced``: with ``sync_interval: always``."""

    @contextmanager
    def start(folder: Path) -> Iterator[Running]:
        ports = free_ports(2 * NODES)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[NODES:])
        commands = {}
        for number in range(NODES):
            file = folder / f"n{number}.conf"
            own = {"number": number, "port": ports[number], "route": ports[NODES + number]}
            sync = ", sync_interval: always" if is_synced else ""
            file.write_text(_CONFIG.format(folder=folder, routes=routes, sync=sync, **own), encoding="utf-8")
            commands[f"n{number}"] = [install.place("nats-server"), "-c", file]
        with spawned(commands, folder) as servers:
            until_open(servers, ports[:NODES], "NATS")
            urls = ",".join(f"nats://127.0.0.1:{port}" for port in ports[:NODES])
            yield Nodes(urls, [server.process.pid for server in servers])

    measured: dict[str, Sequence[int]] = {"producer": COUNTS, "small": [1], "consumer": [1]}
    return System(
        name="nats-synced" if is_synced else "nats",
        title="NATS JetStream, sync always" if is_synced else "NATS JetStream",
        sync="synced by a majority before the answer (`sync_interval: always`)"
        if is_synced
        else "in the memory of a majority before the answer; synced every 2 minutes (the default)",
        client="nats.go, asynchronous, 4000 in flight (its default)",
        workloads=measured if is_synced else measured | {"idle": [IDLE_PARTITIONS]},
        had=install.nats,
        start=start,
    )
