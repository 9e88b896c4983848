"""RabbitMQ with a quorum queue of three members for each partition."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import install
from workloads import COUNTS, IDLE_PARTITIONS, SIZES

from stockade.cli.local_cluster.ports import free_ports
from systems.common import NODES, Running, System, finished, spawned, until, until_open

COOKIE = "stockade-bench"


@dataclass
class Nodes:
    """Three nodes."""

    urls: str
    pids: Sequence[int]

    def create(self, partitions: int) -> None:
        """Make a queue for each partition, led by the nodes in turn."""
        finished([str(install.place("loads")), "amqp-create", self.urls, str(partitions)])

    def delete(self, partitions: int) -> None:
        """Remove the queues."""
        finished([str(install.place("loads")), "amqp-delete", self.urls, str(partitions)])

    def command(self, workload: str, partitions: int, amount: float) -> list[str]:
        """The load, through RabbitMQ's client for Go."""
        load = "amqp-consume" if workload == "consumer" else "amqp-produce"
        size = SIZES.get(workload, 0)
        return [str(install.place("loads")), load, self.urls, str(partitions), str(amount), str(size)]


@contextmanager
def _start(folder: Path) -> Iterator[Running]:
    ports = free_ports(2 * NODES + 1)
    shared = _environment(folder, ports[-1])
    epmd = {"epmd": [install.place("erlang") / "epmd", "-address", "127.0.0.1", "-port", ports[-1]]}
    with spawned({name: list(map(str, command)) for name, command in epmd.items()}, folder, shared) as mapper:
        until_open(mapper, ports[-1:], "epmd")
        commands = {f"r{number}": _node(folder, number, ports) for number in range(NODES)}
        with spawned(commands, folder, shared) as servers:
            until_open(servers, ports[:NODES], "RabbitMQ")
            urls = ",".join(f"amqp://127.0.0.1:{port}" for port in ports[:NODES])
            until(servers, lambda: _joined(shared), "RabbitMQ is a cluster of three")
            yield Nodes(urls, [_emulator(server.process.pid) for server in servers])


def _environment(folder: Path, port: int) -> dict[str, str]:
    """The environment of all nodes: their files lie in the folder, and epmd listens on this machine only."""
    cookie = folder / ".erlang.cookie"
    cookie.write_text(COOKIE, encoding="ascii")
    cookie.chmod(0o400)
    return {
        "HOME": str(folder),
        "PATH": f"{install.place('erlang')}:{os.environ['PATH']}",
        "ERL_EPMD_PORT": str(port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
    }


def _node(folder: Path, number: int, ports: Sequence[int]) -> list[str]:
    own = folder / f"r{number}"
    own.mkdir()
    config = own / "rabbitmq.conf"
    lines = [
        f"listeners.tcp.1 = 127.0.0.1:{ports[number]}",
        "cluster_formation.peer_discovery_backend = classic_config",
        *(f"cluster_formation.classic_config.nodes.{each + 1} = r{each}@localhost" for each in range(NODES)),
    ]
    config.write_text("\n".join(lines) + "\n", encoding="ascii")
    settings = {
        "NODENAME": f"r{number}@localhost",
        "DIST_PORT": ports[NODES + number],
        "MNESIA_BASE": own / "data",
        "LOG_BASE": own / "log",
        "CONFIG_FILE": config,
        "ENABLED_PLUGINS_FILE": own / "plugins",
        "SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    given = [f"RABBITMQ_{name}={value}" for name, value in settings.items()]
    return ["env", *given, str(install.place("rabbitmq") / "rabbitmq-server")]


def _joined(shared: dict[str, str]) -> bool | None:
    command = [str(install.place("rabbitmq") / "rabbitmqctl"), "-n", "r0@localhost", "-q", "cluster_status"]
    said = finished(command, shared)
    running = said.partition("Running Nodes")[2].partition("Versions")[0]
    return True if all(f"r{number}@localhost" in running for number in range(NODES)) else None


def _emulator(pid: int) -> int:
    """The id of the process that runs Erlang: the start script's own, or that of a descendant."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    is_itself = b"beam" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return pid if is_itself or not children else _emulator(int(children[0]))


def rabbitmq() -> System:
    """RabbitMQ, as the runner takes it."""
    return System(
        name="rabbitmq",
        title="RabbitMQ, quorum queues",
        sync="synced by a majority before the answer",
        client="amqp091-go, confirmed, 4000 in flight",
        workloads={"producer": COUNTS, "small": [1], "consumer": [1], "idle": [IDLE_PARTITIONS]},
        had=install.rabbitmq,
        start=_start,
    )
