"""Kafka: three combined KRaft nodes, as they are, and with ``log.flush.interval.messages=1``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import install
from workloads import COUNTS, IDLE_PARTITIONS, SIZES

from stockade.cli.local_cluster.ports import free_ports
from systems.common import NODES, Running, System, finished, python_load, spawned, until, until_open

HEAP = "768m"
WAIT_S = 60.0
LOG_ERRORS = 3
_topics = count()
CLUSTER_ID = "c3RvY2thZGUtYmVuY2gtMQ"

_CONFIG = """
process.roles=broker,controller
node.id={number}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={folder}/k{number}
default.replication.factor=3
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
min.insync.replicas=2
auto.create.topics.enable=false
{sync}
"""


@dataclass
class Nodes:
    """Three brokers; the topic that is loaded."""

    servers: str
    pids: Sequence[int]
    topic: str = ""

    def create(self, partitions: int) -> None:
        """Make a topic; return when all its partitions have leaders and three replicas in sync."""
        from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415  # only where it is measured

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": LOG_ERRORS})
        self.topic = f"bench-{next(_topics)}"
        wanted = NewTopic(self.topic, partitions, NODES)
        admin.create_topics([wanted], operation_timeout=WAIT_S)[self.topic].result(WAIT_S)

        def look() -> bool | None:
            found = admin.list_topics(self.topic, timeout=WAIT_S).topics[self.topic].partitions.values()
            in_sync = [len(each.isrs) == NODES and each.leader >= 0 for each in found]
            return True if len(in_sync) == partitions and all(in_sync) else None

        until([], look, "Kafka's partitions are in sync")

    def delete(self, partitions: int) -> None:
        """Remove the topic."""
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415  # only where it is measured

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": LOG_ERRORS})
        admin.delete_topics([self.topic], operation_timeout=WAIT_S)[self.topic].result(WAIT_S)

    def command(self, workload: str, partitions: int, amount: float) -> list[str]:
        """The load, through librdkafka's client for Python."""
        where = {"servers": self.servers, "topic": self.topic}
        if workload == "consumer":
            return python_load("kafka_consume", **where, count=int(amount))
        return python_load("kafka_produce", **where, partitions=partitions, size=SIZES[workload], seconds=amount)


def kafka(*, is_synced: bool) -> System:
    """Kafka, as the runner takes it. ``is_synced``: each batch is flushed before it is acknowledged."""

    @contextmanager
    def start(folder: Path) -> Iterator[Running]:
        ports = free_ports(2 * NODES)
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports[NODES:]))
        sync = "log.flush.interval.messages=1" if is_synced else ""
        java = [install.place("java"), "-cp", f"{install.place('kafka')}/*", "-Dlog4j2.level=error"]
        commands = {}
        for number in range(NODES):
            file = folder / f"k{number}.properties"
            own = {"number": number, "port": ports[number], "control": ports[NODES + number]}
            file.write_text(_CONFIG.format(folder=folder, voters=voters, sync=sync, **own), encoding="utf-8")
            finished([*map(str, java), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)])
            commands[f"k{number}"] = [*java[:1], f"-Xms{HEAP}", f"-Xmx{HEAP}", *_JVM, *java[1:], "kafka.Kafka", file]
        with spawned(commands, folder) as servers:
            until_open(servers, ports[:NODES], "Kafka")
            brokers = ",".join(f"127.0.0.1:{port}" for port in ports[:NODES])
            yield Nodes(brokers, [server.process.pid for server in servers])

    measured: dict[str, Sequence[int]] = {"producer": COUNTS, "small": [1], "consumer": [1]}
    return System(
        name="kafka-synced" if is_synced else "kafka",
        title="Kafka, flush every message" if is_synced else "Kafka",
        sync="flushed by every replica in sync before the answer (`log.flush.interval.messages=1`)"
        if is_synced
        else "in the memory of every replica in sync before the answer; the system writes it back (the default)",
        client="confluent-kafka (librdkafka), idempotent, acks=all",
        workloads=measured if is_synced else measured | {"idle": [IDLE_PARTITIONS]},
        had=install.kafka,
        start=start,
        warms_up=True,
    )


_JVM = ["-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
"""The JVM's options in Kafka's own start script."""
