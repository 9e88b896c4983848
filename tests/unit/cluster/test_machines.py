"""A machine that runs several nodes: what they are called, where they listen, and what cannot be one."""

from pathlib import Path
from typing import Any

import pytest

from stockade.cli.node.authority import Wanted, make_certificates
from stockade.cli.service.environment import load as load_over
from stockade.cluster.config import ConfigError, NodeConfig, check, load
from stockade.cluster.controller.topology.nodes import NODES_MAX
from stockade.cluster.machines import PROCESSES_MAX, Member


def machine(name: str = "a", number: int = 1, **more: Any) -> dict[str, Any]:
    """A member on a host of its own."""
    return {"node_id": name, "url": f"http://10.0.0.{number}:7101", "raft": f"10.0.0.{number}:7201"} | more


def configuration(**changes: Any) -> dict[str, Any]:
    raw = {
        "node_id": "a",
        "cluster_id": "c",
        "data_dir": "/data",
        "http": "127.0.0.1:7101",
        "raft_listen": "127.0.0.1:7201",
        "processes": 2,
        "members": [machine("a", 1), machine("b", 2), machine("c", 3)],
    }
    return {key: value for key, value in (raw | changes).items() if value is not None}


def faults_of(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check(configuration(**changes))
    return caught.value.faults


def names(config: NodeConfig) -> list[str]:
    return [member.node_id for member in config.members]


def test_each_node_of_a_machine_has_its_name_ports_folder_and_the_machine_as_its_zone() -> None:
    nodes = check(configuration()).nodes()
    assert [(node.node_id, node.http, node.raft_listen, node.data_dir, node.processes) for node in nodes] == [
        ("a.1", "127.0.0.1:7101", "127.0.0.1:7201", "/data/a.1", None),
        ("a.2", "127.0.0.1:7102", "127.0.0.1:7202", "/data/a.2", None),
    ]
    assert nodes[1].me == Member("a.2", "http://10.0.0.1:7102", "10.0.0.1:7202", "a")
    assert {tuple(names(node)) for node in nodes} == {("a.1", "a.2", "b.1", "b.2", "c.1", "c.2")}
    assert nodes[0].members == nodes[1].members


def test_a_file_without_processes_is_a_node_as_ever() -> None:
    config = check(configuration(processes=None))
    assert config.nodes() == [config]
    assert (config.me, config.controllers) == (Member("a", "http://10.0.0.1:7101", "10.0.0.1:7201"), ["a", "b", "c"])


def test_a_machine_of_one_process_is_named_as_those_of_several() -> None:
    assert [node.node_id for node in check(configuration(processes=1)).nodes()] == ["a.1"]


def test_a_zone_that_is_configured_stays() -> None:
    config = check(configuration(members=[machine("a", 1, zone="east")]))
    assert [member.zone for member in config.members] == ["east", "east"]


def test_machines_may_differ_in_how_many_nodes_they_run() -> None:
    members = [machine("a", 1, processes=3), machine("b", 2), machine("c", 3, processes=1)]
    config = check(configuration(members=members, processes=None))
    assert names(config) == ["a.1", "a.2", "a.3", "b", "c.1"]
    assert [node.node_id for node in config.nodes()] == ["a.1", "a.2", "a.3"]
    elsewhere = check(configuration(members=members, node_id="b", processes=2))
    assert names(elsewhere) == ["a.1", "a.2", "a.3", "b.1", "b.2", "c.1"]


def test_the_controllers_are_on_distinct_machines_first() -> None:
    assert check(configuration()).controllers == ["a.1", "a.2", "b.1", "b.2", "c.1"]
    sizes = [machine("a", 1, processes=4), machine("b", 2, processes=1), machine("c", 3, processes=1)]
    assert check(configuration(members=sizes, processes=4)).controllers == ["a.1", "b.1", "c.1"]


def test_a_machine_joins_as_a_node_does() -> None:
    config = check(configuration(members=[machine()], join=["http://10.0.0.9:7101"]))
    assert [(node.node_id, node.me.zone, node.controllers) for node in config.nodes()] == [
        ("a.1", "a", []),
        ("a.2", "a", []),
    ]


@pytest.mark.parametrize("processes", [1, PROCESSES_MAX])
def test_a_machine_runs_at_least_one_process_and_at_most_its_bound(processes: int) -> None:
    assert len(check(configuration(processes=processes, members=[machine()])).nodes()) == processes


@pytest.mark.parametrize("processes", [-1, 0, PROCESSES_MAX + 1])
def test_another_number_of_processes_is_refused(processes: int) -> None:
    assert faults_of(processes=processes) == [f"processes: 1 to 64, not {processes}"]
    members = [machine(processes=processes)]
    assert faults_of(processes=None, members=members) == [f"members: processes of a: 1 to 64, not {processes}"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"processes": "two"}, "processes: Expected `int | null`, got `str`"),
        (
            {"raft_listen": "127.0.0.1:7102"},
            "http, raft_listen: 2 processes take the ports 7101 to 7102 and 7102 to 7103, which overlap",
        ),
        (
            {"raft_listen": "0.0.0.0:7100", "raft": {"plaintext": True}},
            "http, raft_listen: 2 processes take the ports 7101 to 7102 and 7100 to 7101, which overlap",
        ),
        (
            {"http": "127.0.0.1:65535"},
            "http: 2 processes from port 65535 on need ports up to 65536; the last one is 65535",
        ),
        (
            {"members": [machine(url="https://a.example")]},
            "members: url of a: https://a.example names no port, and 2 processes need consecutive ones",
        ),
        (
            {"members": [machine(raft="10.0.0.1:65535")]},
            "members: raft of a: 2 processes from port 65535 on need ports up to 65536; the last one is 65535",
        ),
        (
            {"members": [machine(), machine("b", 2, url="http://10.0.0.1:7102")]},
            "members: 10.0.0.1:7102 is url of a.2 and url of b.1",
        ),
        (
            {"members": [machine(raft="10.0.0.1:7102")]},
            "members: 10.0.0.1:7102 is raft of a.1 and url of a.2",
        ),
        ({"members": [machine(processes=3)]}, "processes: 2, but members has 3 for this machine"),
        (
            {"members": [machine(), machine("a.1", 2, processes=None), machine("a.1", 3)]},
            "members: a.1.1 is there twice",
        ),
        ({"members": [machine("b", 2)]}, "members: this node (a) is not among them"),
    ],
)
def test_a_configuration_that_cannot_be_a_machine_is_refused_by_name(changes: dict[str, Any], fault: str) -> None:
    assert fault in faults_of(**changes)


def test_ports_that_touch_do_not_overlap() -> None:
    assert check(configuration(raft_listen="127.0.0.1:7103")).nodes()[1].raft_listen == "127.0.0.1:7104"
    assert check(configuration(raft_listen="127.0.0.2:7101", processes=4)), "another address of the machine"


def test_every_fault_of_a_machine_is_named_at_once() -> None:
    members = [machine("b", 2, processes=65), machine("c", 3, url="http://c"), machine("d", 4, raft="10.0.0.4:65535")]
    found = faults_of(http="127.0.0.1:65535", raft_listen="127.0.0.1:65534", members=members, colour="red")
    assert [fault.split(":")[0] for fault in found] == ["colour", *["members"] * 4]
    own = faults_of(http="127.0.0.1:65535", raft_listen="127.0.0.1:65534", colour="red")
    assert [fault.split(":")[0] for fault in own] == ["colour", "http", "http, raft_listen"]


def test_the_number_of_nodes_counts_not_that_of_machines() -> None:
    members = [machine(name, number) for number, name in enumerate(["a", *"bcdefghij"], start=1)]
    assert len(check(configuration(members=members, processes=NODES_MAX // 10)).members) == NODES_MAX
    assert faults_of(members=members, processes=NODES_MAX // 10 + 1) == [f"members: at most {NODES_MAX}"]


def written(directory: Path, processes: str, certificate: str = "a") -> Path:
    lines = ['node_id="a"', 'cluster_id="c"', 'data_dir="d"', 'http="127.0.0.1:11"', 'raft_listen="0.0.0.0:21"']
    lines += [processes, "[raft.tls]", 'ca="certs/ca.crt"']
    lines += [f'certificate="certs/{certificate}.crt"', f'key="certs/{certificate}.key"']
    lines += ["[[members]]", 'node_id="a"', 'url="http://127.0.0.1:11"', 'raft="127.0.0.1:21"']
    file = directory / "node.toml"
    file.write_text("\n".join(lines))
    return file


def test_a_number_that_is_given_counts_before_that_of_the_file(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", "c", [Wanted("a")], 1, processes=2)
    path = written(tmp_path, "processes = 1")
    assert [node.node_id for node in load(path).nodes()] == ["a.1"]
    assert [node.data_dir for node in load_over(path, 2, {}).nodes()] == [
        str(tmp_path / "d" / name) for name in ("a.1", "a.2")
    ]


def test_one_certificate_of_a_machine_stands_for_each_of_its_nodes(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", "c", [Wanted("a")], 1, processes=2)
    assert all(node.tls() is not None for node in load(written(tmp_path, "processes = 2")).nodes())
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, "processes = 3"))
    assert caught.value.faults == [
        "raft.tls.certificate: names stockade://c/a.1, stockade://c/a.2, not stockade://c/a.3"
    ]
