"""A node that refuses its disk says which file is wrong and what to do, without a traceback."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner, Result
from disks import needs_root

from stockade.cli.local_cluster.ports import free_ports
from stockade.cli.main import main
from stockade.cli.node import leaving as leaving_module
from stockade.cli.node import serve as serve_module
from stockade.cli.node.node_processes import cannot_write, left_over
from stockade.cluster.config import NodeConfig, load
from stockade.partition.api.cluster import Cluster, LeaderInfo, Node
from stockade.raft.wal.files import lock_directory
from stockade.raft.wal.wal import Wal

CONFIG = """
node_id = "n1"
cluster_id = "house"
data_dir = "n1"
http = "127.0.0.1:17101"
raft_listen = "127.0.0.1:17201"
[[members]]
node_id = "n1"
url = "http://127.0.0.1:17101"
raft = "127.0.0.1:17201"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A node's configuration, with a log on its disk."""
    (tmp_path / "n1.toml").write_text(CONFIG)
    (tmp_path / "n1").mkdir()

    async def write() -> None:
        wal = Wal(tmp_path / "n1" / "wal", asyncio.get_running_loop(), lambda _: None, file_bytes=4096)
        wal.save_vote(1, 3, "n1")
        await wal.close()

    asyncio.run(write())
    return tmp_path / "n1.toml"


@pytest.fixture(autouse=True)
def other_tests_stores_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node runs in the process of the tests here: what another test's store left at work would end that process."""
    monkeypatch.setattr(leaving_module, "are_at_work", lambda wait_s: False)


def serve(config: Path) -> Result:
    return CliRunner().invoke(main, ["serve", "--config", str(config)])


def test_a_node_with_a_damaged_disk_says_what_is_damaged_and_what_to_do(config: Path) -> None:
    (config.parent / "n1" / "wal" / "0000000001.wal").unlink()
    refused = serve(config)
    assert refused.exit_code == 1
    assert "0000000001.wal: position 0: the file is missing" in refused.stderr
    assert "`stockade rebuild --data DIR`" in refused.stderr


def test_a_second_node_on_one_disk_is_told_who_uses_it(config: Path) -> None:
    lock = lock_directory(config.parent / "n1" / "wal")
    refused = serve(config)
    os.close(lock)
    assert refused.exit_code == 1
    assert f"in use by another process (id {os.getpid()})" in refused.stderr


MACHINE = CONFIG.replace("[[members]]", "processes = 2\n[[members]]", 1)


def machine(directory: Path, text: str = MACHINE) -> Path:
    path = directory / "machine.toml"
    path.write_text(text)
    return path


def test_a_check_says_which_nodes_a_machine_runs_and_where(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["serve", "--check", "--config", str(machine(tmp_path)), "--processes", "3"])
    assert said.exit_code == 0
    assert "machine n1 of n1.1 (127.0.0.1:17101, raft 127.0.0.1:17201), n1.2 (127.0.0.1:17102, raft" in said.stdout
    assert "n1.3 (127.0.0.1:17103, raft 127.0.0.1:17203); of 3\nA node takes at most" in said.stdout


def test_a_check_names_the_fault_of_the_place_of_the_tiered_store(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    path = machine(tmp_path, CONFIG + '\n[tiered]\nplace = "old"\n')
    fine = CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])
    assert (fine.exit_code, list((tmp_path / "old").rglob("check-*"))) == (0, [])
    assert f"The tiered store at {tmp_path}/old takes, gives back and removes a file\n" in fine.stdout
    (tmp_path / "file").write_text("no folder")
    path = machine(tmp_path, CONFIG + '\n[tiered]\nplace = "file/old"\n')
    wrong = CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])
    assert wrong.exit_code == 1
    assert f"tiered.place: {tmp_path}/file/old" in wrong.stderr
    path = machine(tmp_path, CONFIG + '\n[tiered]\nplace = "s3://key:secret@bucket"\ncache_bytes = 1\n')
    wrong = CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])
    assert "tiered.place: no credentials in the URL" in wrong.stderr
    assert "tiered.cache_bytes: " in wrong.stderr
    assert "secret" not in wrong.output


def test_a_check_leaves_no_folder_of_the_cluster_where_there_was_none(tmp_path: Path) -> None:
    """Nodes know by its lack that a share is not mounted; with it they forget the objects of deleted topics."""
    (mountpoint := tmp_path / "old").mkdir()
    path = machine(tmp_path, CONFIG + '\n[tiered]\nplace = "old"\n')
    for there in ([], [mountpoint / "house"]):
        for folder in there:
            folder.mkdir()
        fine = CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])
        assert (fine.exit_code, list(mountpoint.iterdir())) == (0, there)


def test_a_check_and_a_start_refuse_a_configuration_with_the_same_words(tmp_path: Path) -> None:
    """So a service manager needs no check before it starts a node."""
    path = machine(tmp_path, CONFIG.replace("17201", "0", 1) + "\n[limits]\nwal_bytes_max = 1\n")
    started, checked = serve(path), CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])
    assert (started.exit_code, started.stderr) == (checked.exit_code, checked.stderr)
    assert (started.exit_code, started.stderr.count("\n  - ")) == (1, 2)


def test_a_machine_whose_ports_are_taken_starts_nothing_and_names_all_of_them(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as raft:
        ports = http.getsockname()[1], raft.getsockname()[1]
        text = MACHINE.replace("17101", str(ports[0])).replace("17201", str(ports[1]))
        text = text.replace("processes = 2", "processes = 1")
        refused = serve(machine(tmp_path, text))
    assert refused.exit_code == 1
    assert refused.stderr.splitlines() == [
        "Error: machine n1 stopped:",
        f"  - http of n1.1: 127.0.0.1:{ports[0]}: Address already in use",
        f"  - raft_listen of n1.1: 127.0.0.1:{ports[1]}: Address already in use",
    ]
    assert not (tmp_path / "n1").exists()


@pytest.mark.parametrize(("port", "what"), [("17101", "http"), ("17201", "raft_listen")])
def test_a_node_whose_port_is_taken_says_which_and_has_no_traceback(tmp_path: Path, port: str, what: str) -> None:
    free = dict(zip(("17101", "17201"), map(str, free_ports(2)), strict=True))
    text = CONFIG.replace("17101", free["17101"]).replace("17201", free["17201"])
    with socket.create_server(("127.0.0.1", int(free[port]))):
        refused = serve(machine(tmp_path, text))
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[-2:] == [
        "Error: node n1 cannot start:",
        f"  - {what} of n1: 127.0.0.1:{free[port]}: Address already in use",
    ]
    assert "Traceback" not in refused.stderr


def test_a_data_folder_that_is_a_file_is_named_by_a_start_and_by_a_check(tmp_path: Path) -> None:
    (tmp_path / "n1").touch()
    http, raft = map(str, free_ports(2))
    path = machine(tmp_path, CONFIG.replace("17101", http).replace("17201", raft))
    started = serve(path)
    assert (started.exit_code, started.stderr.splitlines()[-2]) == (1, "Error: node n1 cannot start:")
    assert started.stderr.endswith("n1/wal/identity: Not a directory\n")
    checked = CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])
    assert checked.exit_code == 1
    assert checked.stderr.endswith(f"  - data_dir: {tmp_path / 'n1'} is not a directory\n")


def test_a_data_folder_that_cannot_be_written_is_found_by_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cannot_write(tmp_path / "new" / "folder") is None
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    assert cannot_write(tmp_path / "new" / "folder") == f"{tmp_path}: Permission denied"
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY | os.ST_NOSUID))
    assert cannot_write(tmp_path / "new" / "folder") == f"{tmp_path}: Read-only file system"


@needs_root
def test_a_disk_without_an_inode_is_named_by_a_start_and_by_a_check(tmp_path: Path) -> None:
    """A start said that no space was left, where `df` shows plenty, and the check that all was fine."""
    path = machine(tmp_path, CONFIG)
    (tmp_path / "n1").mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=1", "tmpfs", tmp_path / "n1"), check=True)
    try:
        for refused in (serve(path), CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])):
            assert refused.exit_code == 1
            assert "No space left on device, as its file system has no inode left" in refused.stderr
    finally:
        subprocess.run(("umount", "-l", tmp_path / "n1"), check=True)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EOPNOTSUPP])
def test_a_check_finds_a_disk_that_an_error_made_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The kernel (Linux 6.18) lets os.access pass there. Not every file system has files without a name."""

    def refused(path: Path, flags: int) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "open", refused)
    advice = "Look at the disk and the kernel's log before you start the node again"
    text = None if number == errno.EOPNOTSUPP else f"{tmp_path}: Read-only file system. {advice}"
    assert cannot_write(tmp_path) == text


@pytest.mark.parametrize("folder", ["n1", "n1.2"])
def test_a_data_folder_of_another_cluster_is_named_by_a_start_and_by_a_check(tmp_path: Path, folder: str) -> None:
    """The check said that all was fine, and the node did not start."""
    data = tmp_path / ("n1" if folder == "n1" else f"n1/{folder}")
    data.mkdir(parents=True)
    (data / "members.json").write_text('{"index": 9, "cluster_id": "another"}')
    path = machine(tmp_path, CONFIG if folder == "n1" else MACHINE)
    checked = CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])
    assert checked.exit_code == 1
    fault = f"{data}/members.json: it is of the cluster 'another', and this node is of 'house'. Nothing is damaged"
    assert fault in checked.stderr
    if folder == "n1":
        assert fault in serve(path).stderr


@pytest.mark.parametrize("content", [None, "no PEM"])
def test_a_running_node_reads_its_principals_again_whatever_its_certificates_have_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """A token that was taken out of the configuration stayed good while a certificate had expired."""
    CliRunner().invoke(main, ["certs", "--out", str(tmp_path / "certs"), "--cluster-id", "house", "n1"])
    files = "".join(f'{name} = "certs/{file}"\n' for name, file in (("ca", "ca.crt"), ("certificate", "n1.crt")))
    path = machine(tmp_path, f'{CONFIG}[raft.tls]\n{files}key = "certs/n1.key"\n')
    again: list[Callable[[], NodeConfig]] = []
    monkeypatch.setattr(serve_module, "_run_node", lambda *given: again.append(given[-1]))
    assert serve(path).exit_code == 0
    certificate = tmp_path / "certs" / "n1.crt"
    certificate.unlink()
    if content is not None:
        certificate.write_text(content, encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write('[[principals]]\nname = "orders"\n')
    assert [each.name for each in again[0]().principals] == ["orders"]


@pytest.mark.parametrize("text", [CONFIG, MACHINE])
def test_a_data_folder_that_cannot_be_looked_into_is_named_without_a_traceback(tmp_path: Path, text: str) -> None:
    """As is a folder that was restored by root. Root itself is refused a name that is too long."""
    path = machine(tmp_path, text.replace('"n1"\nhttp', f'"{"n" * 256}"\nhttp'))
    for refused in (serve(path), CliRunner().invoke(main, ["serve", "--check", "--config", str(path)])):
        assert refused.exit_code == 1
        assert refused.stderr.endswith(f"  - data_dir: {tmp_path}/{'n' * 256}: File name too long\n")


def test_a_machine_does_not_begin_anew_beside_the_data_of_a_single_node(config: Path) -> None:
    refused = serve(machine(config.parent))
    assert refused.exit_code == 1
    assert f"data_dir: {config.parent / 'n1'} has the data of a single node" in refused.stderr


def test_a_single_node_does_not_begin_anew_beside_the_data_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "n1" / "n1.1" / "wal").mkdir(parents=True)
    refused = serve(machine(tmp_path, CONFIG))
    assert refused.exit_code == 1
    assert "has the data of a machine of several nodes (n1.1): say processes" in refused.stderr


def test_nodes_that_have_run_and_are_not_started_any_more_are_found(tmp_path: Path) -> None:
    for name in ("n1.1", "n1.2", "n1.3", "n1.10", "n2.9"):
        (tmp_path / "n1" / name / "wal").mkdir(parents=True)
    (tmp_path / "n1" / "n1.4").mkdir()
    assert left_over(load(machine(tmp_path))) == ["n1.10", "n1.3"]
    assert left_over(load(machine(tmp_path, CONFIG))) == []


def test_a_process_that_the_file_does_not_have_any_more_says_so(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["serve", "--config", str(machine(tmp_path)), "--process", "3"])
    assert (ended.exit_code, "has no node 3 any more: it has 2" in ended.stderr) == (1, True)


def test_pandas_is_imported_before_the_loop_runs_or_never() -> None:
    """Where it is installed, as in the unit tests' environment, pyarrow imports it for its first array."""
    pytest.importorskip("pandas")
    make = (
        "import sys; from stockade.cli.node import serve; import pyarrow; assert 'pandas' not in sys.modules;"
        "serve.raise_limit = serve.keep_descriptors = lambda: None; serve.run = lambda *_: None;"
        "serve.uvloop.run = lambda _: sys.exit('pandas' not in sys.modules); serve._run_node(None, False, None, None)"
    )
    assert subprocess.run([sys.executable, "-c", make], check=False).returncode == 0


class Admitting:
    """The client by which a node joins a cluster of which it is a member already."""

    def __init__(self, is_leaving: bool) -> None:
        members = [Node(name, f"http://{name}:1", f"{name}:2", None, alive=True) for name in ("n1", "n2")]
        members[0] = msgspec.structs.replace(members[0], draining=is_leaving)
        self.cluster = Cluster("house", "n2", "0", LeaderInfo(None, None, 0), members, [])
        self.added: list[str] = []

    async def __aenter__(self) -> "Admitting":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def connect(self) -> Cluster:
        return self.cluster

    async def add_node(self, node_id: str, *_: object) -> Cluster:
        self.added.append(node_id)
        return self.cluster


@pytest.mark.parametrize(("is_leaving", "added"), [(True, []), (False, ["n1"])])
def test_a_node_that_joins_with_an_empty_disk_does_not_call_its_own_removal_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_leaving: bool, added: list[str]
) -> None:
    """It added itself, as an operator does: it stayed a member, and `stockade cluster remove` waited for good."""
    (tmp_path / "n1.toml").write_text('join = ["http://n2:1"]\n' + CONFIG)
    cluster = Admitting(is_leaving)
    monkeypatch.setattr(serve_module, "Client", lambda _: cluster)
    found = asyncio.run(serve_module.joined(load(tmp_path / "n1.toml")))
    assert [member.node_id for member in found.members] == ["n1", "n2"]
    assert cluster.added == added
