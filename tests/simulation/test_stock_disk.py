"""What pysyncobj as it comes does with disks and with strangers: real files, real processes, a real socket.

The twins, on our log, checkpoints and transport, are listed in docs/defects.md.
"""

import asyncio
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import FileJournal
from simulation.stock import acknowledged, stock_cluster

from stockade.raft.net.transport import Transport

# The library leaves files open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

COMMAND = b"\x00" + b"x" * 100


def run_python(code: str, *arguments: object) -> int:
    """Run code in a process of its own; its exit code, negative for the signal that ended it."""
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=False).returncode


def in_folder(folder: Path, suffix: str = "") -> Callable[[str], str]:
    return lambda node: str(folder / f"{node}{suffix}")


def test_d7_stock_killed_while_it_compacts_its_journal_has_ten_of_five_hundred_entries(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    code = """if True:
        import os, sys
        from pysyncobj.journal import FileJournal
        journal = FileJournal(sys.argv[1])
        for index in range(1, 1001):
            journal.add(b"command", index, 1)
        add, added = journal.add, []
        def add_and_die(*entry):
            add(*entry)
            added.append(entry)
            if len(added) == 10:
                os.kill(os.getpid(), 9)
        journal.add = add_and_die
        journal.deleteEntriesTo(500)
    """
    assert run_python(code, file) == -signal.SIGKILL
    journal = FileJournal(str(file))
    assert [index for _, index, _ in journal[:]] == [*range(501, 511)]


def test_d9_stock_leads_with_an_empty_state_when_its_dump_cannot_be_read(tmp_path: Path) -> None:
    files: dict[str, Any] = {"journalFile": in_folder(tmp_path), "fullDumpFile": in_folder(tmp_path, ".dump")}
    with stock_cluster(**files, useFork=False, logCompactionMinEntries=50) as cluster:
        cluster.put("A", *range(200))
        cluster.step("ABC", times=20)
        cluster.stop()
        os.truncate(tmp_path / "A.dump", 10)  # neither it nor its rename was ever synced
        cluster.start_all()
        cluster.step("ABC")
        cluster.elect("A")
        cluster.step("ABC", times=20)
        assert cluster.nodes["A"]._isLeader()
        assert len(cluster.nodes["A"].applied) < 200 == len(cluster.nodes["B"].applied)


def test_d9_stock_syncs_neither_dump_nor_journal(tmp_path: Path) -> None:
    files: dict[str, Any] = {"journalFile": in_folder(tmp_path), "fullDumpFile": in_folder(tmp_path, ".dump")}
    with (
        patch("os.fsync") as fsync,
        patch("os.fdatasync") as fdatasync,
        patch.object(FileJournal, "flush") as flush,
        stock_cluster(**files, useFork=False, logCompactionMinEntries=50) as cluster,
    ):
        answers = cluster.put("A", *range(200))
        cluster.step("ABC", times=20)
        assert acknowledged(answers) == 200
        assert (tmp_path / "A.dump").exists()
        assert [fsync.call_count, fdatasync.call_count, flush.call_count] == [0, 0, 0]


def test_d10_stock_is_empty_after_a_clean_restart_with_a_journal_and_no_dump(tmp_path: Path) -> None:
    with stock_cluster(journalFile=in_folder(tmp_path), logCompactionMinEntries=50) as cluster:
        answers = cluster.put("A", *range(200))
        cluster.step("ABC", times=20)
        assert acknowledged(answers) == 200
        cluster.stop()
        cluster.start_all()
        cluster.step("ABC")
        cluster.elect("A")
        cluster.step("ABC", times=20)
        assert all(len(node.applied) < 200 for node in cluster.nodes.values())


def test_d11_stock_acknowledges_an_entry_that_it_could_not_write(tmp_path: Path) -> None:
    with stock_cluster(journalFile=in_folder(tmp_path)) as cluster:
        cluster.wires.join("A", "C", up=False)  # the commit needs B
        file = cluster.nodes["B"].of_raftLog._FileJournal__journalFile
        with patch.object(file, "write", side_effect=OSError(28, "No space left on device")):
            answers = cluster.put("A", "not on disk")
            cluster.step("AB", times=10)
        assert acknowledged(answers) == 1
        assert FileJournal(str(tmp_path / "B"))[-1][1] < cluster.nodes["B"].entries[-1][0]


def test_d11_stock_dies_of_a_bus_error_when_the_disk_is_full(tmp_path: Path) -> None:
    """Its file grows without taking up blocks; a page that gets none when it is touched is a signal, no exception."""
    code = """if True:
        import sys
        from pysyncobj.journal import FileJournal
        journal = FileJournal(sys.argv[1])
        for index in range(1, 1000):
            journal.add(b"x" * 10_000, index, 1)
    """
    mount = f"mount -t tmpfs -o size=256k none {tmp_path} && exec {sys.executable} -c '{code}' {tmp_path}/journal"
    namespace = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode:
        pytest.skip("a small disk takes a mount namespace, which is not allowed here")
    assert subprocess.run([*namespace, "sh", "-c", mount], check=False).returncode == -signal.SIGBUS


def test_d12_stock_cannot_place_a_record_beyond_four_gib(tmp_path: Path) -> None:
    journal = FileJournal(str(tmp_path / "journal"))
    journal._FileJournal__currentOffset = 1 << 32
    with patch.object(journal._FileJournal__journalFile, "write"), pytest.raises(struct.error):
        journal.add(COMMAND, 1, 1)


def test_d12_stock_never_shrinks_its_file_and_takes_a_flipped_bit_for_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(str(path))
    for index in range(1, 101):
        journal.add(b"command", index, 1)
    size = path.stat().st_size
    journal.deleteEntriesTo(99)
    journal.flush()
    assert path.stat().st_size == size
    content = bytearray(path.read_bytes())
    content[content.index(b"command")] ^= 1
    path.write_bytes(content)
    assert FileJournal(str(path))[0][0] == b"bommand"


def test_d18_stock_takes_an_unreadable_vote_for_term_zero(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    FileJournal(str(path)).setCurrentTerm(7, "B")
    assert FileJournal(str(path)).getCurrentTerm() == 7
    (tmp_path / "journal.meta").write_bytes(b"")  # what a power cut leaves of a file that was renamed and not synced
    journal = FileJournal(str(path))
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (0, None)


def test_d18_stock_loses_everything_that_it_acknowledged_when_the_power_fails(tmp_path: Path) -> None:
    """Nothing was ever synced (D9), so a power cut may leave nothing of what was written."""
    with stock_cluster(journalFile=in_folder(tmp_path)) as cluster:
        answers = cluster.put("A", *range(500))
        cluster.step("ABC", times=20)
        assert acknowledged(answers) == 500
        cluster.stop()
        for path in tmp_path.iterdir():
            path.unlink()
        cluster.start_all()
        cluster.step("ABC")
        cluster.elect("A")
        cluster.step("ABC", times=20)
        assert [node.applied for node in cluster.nodes.values()] == [[], [], []]


class Harmless:
    """Unpickling it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.file,)


def test_d19_stock_runs_a_strangers_code_and_listens_on_every_address(tmp_path: Path) -> None:
    trace = tmp_path / "a stranger was here"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    node = SyncObj(f"127.0.0.1:{port}", ["127.0.0.1:1"], SyncObjConf(autoTick=False))
    node.doTick(0.0)
    message = zlib.compress(pickle.dumps(Harmless(trace)))
    with socket.create_connection(("127.0.0.2", port)) as stranger:  # another address than the one it was given
        stranger.sendall(struct.pack("i", len(message)) + message)
        for _ in range(100):
            node.doTick(0.01)
            if trace.exists():
                break
    node.destroy()
    assert trace.exists()


def test_d19_ours_drops_a_connection_that_sends_pickle_and_listens_on_the_configured_address(tmp_path: Path) -> None:
    trace = tmp_path / "a stranger was here"
    message = zlib.compress(pickle.dumps(Harmless(trace)))

    async def scenario() -> None:
        transport = Transport("n1", "house", ("127.0.0.1", 0), {})
        await transport.start(0)
        _, port = transport.address
        for order in ("i", ">I"):  # the length as the library writes it, and as we do
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(struct.pack(order, len(message)) + message)
            writer.write_eof()
            await reader.read()  # to its end: they hang up
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)
        await transport.stop()

    asyncio.run(scenario())
    assert not trace.exists()
