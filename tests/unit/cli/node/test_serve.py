"""A node that refuses its disk says which file is wrong and what to do, without a traceback."""

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stockade.cli.main import main
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
        wal = Wal.open(tmp_path / "n1" / "wal", asyncio.get_running_loop(), lambda _: None, file_bytes=4096)
        wal.save_vote(1, 3, "n1")
        await wal.close()

    asyncio.run(write())
    return tmp_path / "n1.toml"


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
