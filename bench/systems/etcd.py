"""etcd. It has one Raft group for everything, so there is one row, whatever the number of partitions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import install
from loads.over_http import call
from workloads import IDLE_PARTITIONS, IN_FLIGHT

from stockade.cli.local_cluster.ports import free_ports
from systems.common import NODES, Running, System, python_load, spawned, until

QUOTA_BYTES = 8 << 30
"""Room for its data: the default of 2 GiB would be full within a long run."""
_runs = count()


@dataclass
class Nodes:
    """Three members; ``urls`` has that of the leader only."""

    urls: list[str]
    pids: Sequence[int]

    def create(self, partitions: int) -> None:
        """Do nothing: keys need not be made."""

    def delete(self, partitions: int) -> None:
        """Do nothing: the keys stay, as etcd's history does, too."""

    def command(self, workload: str, partitions: int, amount: float) -> list[str]:
        """The load: puts of new keys, through the gateway for HTTP/1.1."""
        in_flight = 1 if workload == "latency" else IN_FLIGHT
        return python_load("puts", urls=self.urls, run=str(next(_runs)), in_flight=in_flight, seconds=amount)


@contextmanager
def _start(folder: Path) -> Iterator[Running]:
    urls = [f"http://127.0.0.1:{port}" for port in free_ports(2 * NODES)]
    clients, peers = urls[:NODES], urls[NODES:]
    commands = {}
    for number in range(NODES):
        own = {
            "name": f"e{number}",
            "data-dir": folder / f"e{number}",
            "listen-client-urls": clients[number],
            "advertise-client-urls": clients[number],
            "listen-peer-urls": peers[number],
            "initial-advertise-peer-urls": peers[number],
            "initial-cluster": ",".join(f"e{each}={peer}" for each, peer in enumerate(peers)),
            "quota-backend-bytes": QUOTA_BYTES,
            "log-level": "error",
        }
        commands[f"e{number}"] = [install.place("etcd"), *(f"--{name}={value}" for name, value in own.items())]
    with spawned(commands, folder) as servers:
        leader = until(servers, lambda: _leader(clients), "etcd has a leader")
        yield Nodes([leader], [server.process.pid for server in servers])


def _leader(urls: list[str]) -> str | None:
    for url in urls:
        status = call("POST", f"{url}/v3/maintenance/status", {})
        if status.get("leader") == status["header"]["member_id"]:
            return url
    return None


def etcd() -> System:
    """etcd, as the runner takes it."""
    return System(
        name="etcd",
        title="etcd",
        sync="synced by a majority before the answer",
        client="HTTP/1.1, to its leader",
        workloads={"requests": [1], "latency": [1], "idle": [IDLE_PARTITIONS]},
        had=install.etcd,
        start=_start,
    )
