"""What real nodes write is for their user and group alone, under a umask that takes nothing away."""

import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.partition.log.modes import SECRET_MODE, open_to_others

from .api import Topic, call, eventually, expect
from .test_membership import SMALL, arrived, move

KINDS = {".arrow", ".index", ".stage", ".wal", ".toml", ".json", ".log", ".lock", ".crt", ".key"}
NAMES = {"identity", "checkpoint", "lock", "founders.json", "members.json", "replica.json", "cluster.json"}


def test_all_that_nodes_write_is_closed_to_others_and_keys_to_the_group(
    data: Path, umask: Callable[[int], int]
) -> None:
    """Checkpoints are taken and copied, a stage is put, the cluster's own certificates are made."""
    with LocalCluster(data, port_base=0, settings=SMALL, tls=True) as cluster:
        topic = Topic(cluster.nodes[0].url, "orders")
        topic.create(partitions=1)
        line = "x" * 999
        for number in range(12):
            expect(200, topic.append("\n".join([line] * 500 + [str(number)])))
        stage = f"{topic.url}/partitions/0/stages/s1"
        put = partial(call, "PUT", stage, b"later", headers={"Content-Type": "text/plain"})
        assert eventually(lambda: put().status in (200, 201))
        cluster.add_node()
        cluster.wait_ready()
        move(topic, 0, ["n4", "n2", "n3"])
        arrived(cluster, topic, 0, ["n4", "n2", "n3"])
    written = [path for path in data.rglob("*") if path.is_file()]
    assert {path.suffix for path in written} >= KINDS
    assert {path.name for path in written} >= NAMES
    assert [path for path, _ in open_to_others(data) if path.suffix != ".crt"] == []  # certificates are public
    assert {stat.S_IMODE(path.stat().st_mode) for path in written if path.suffix == ".key"} == {SECRET_MODE}


def test_a_node_narrows_the_modes_of_files_of_an_older_version(data: Path) -> None:
    with LocalCluster(data, nodes_count=1, port_base=0) as cluster:
        Topic(cluster.nodes[0].url, "orders").create(partitions=1)
    folder = data / "n1"
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert len([*open_to_others(folder / "wal"), *open_to_others(folder / "partitions")]) > 4
    with LocalCluster(data, nodes_count=1, port_base=0):
        log = (folder / "node.log").read_text()
    assert "took the rights of others from" in log
    theirs = [path for path, _ in open_to_others(folder) if path.name not in ("node.toml", "node.log")]
    assert theirs == []
    assert (folder / "founders.json").stat().st_mode & 0o777 == 0o640
