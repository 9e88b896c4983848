"""A node's process ends, whatever its tiered store does."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.cli.local_cluster.ports import free_ports

from .test_serve import CONFIG

END_S = 40
"""In time for a service manager. pyarrow alone gives up a request to a server that is silent after some 100 s."""


def environment() -> dict[str, str]:
    """Of a process that runs the same code as this one, and has credentials for S3."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    return os.environ | keys | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_node_whose_store_hangs_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """It has the objects of a deleted topic to remove, and the store takes the connection and says nothing."""
    http, raft = free_ports(2)
    text = CONFIG.replace("17101", str(http)).replace("17201", str(raft))
    owed = tmp_path / "n1" / "tiered" / "deleted"
    owed.mkdir(parents=True)
    (owed / "0123").write_text("812-t/0-0123456789abcdef")
    with socket.create_server(("127.0.0.1", 0)) as store:
        store.settimeout(60)
        place = f"s3://bucket/old?endpoint_override=127.0.0.1:{store.getsockname()[1]}&scheme=http&region=us-east-1"
        (tmp_path / "n1.toml").write_text(text + f'\n[tiered]\nplace = "{place}"\n')
        command = [sys.executable, "-m", "stockade", "serve", "--config", str(tmp_path / "n1.toml")]
        node = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        try:
            waiting, _ = store.accept()
            node.send_signal(signal.SIGTERM)
            _, said = node.communicate(timeout=END_S)
            waiting.close()
        finally:
            node.kill()
            node.wait()
    assert node.returncode == 0, said
    assert "the tiered store has not answered yet" in said


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("sys.exit(1)", 1, ""),
        ("sys.exit()", 0, ""),
        ("raise click.ClickException('port in use')", 1, "Error: port in use"),
        ("raise ValueError('a bug')", 1, "ValueError: a bug"),
    ],
)
def test_a_thread_that_waits_changes_neither_the_exit_code_nor_the_last_words(end: str, code: int, words: str) -> None:
    program = (
        "import logging, sys, threading, click\n"
        "from stockade.cli.node.leaving import leaving\n"
        "from stockade.cluster.tiered.threads import threads\n"
        "logging.basicConfig()\n"
        "threads(1, 'test').submit(threading.Event().wait)\n"
        "print('before', end='')\n"
        f"with leaving():\n    {end}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment(), check=False, capture_output=True, text=True, timeout=END_S
    )
    assert (ended.returncode, ended.stdout) == (code, "before")
    assert words in ended.stderr
    assert "the tiered store has not answered yet" in ended.stderr


def test_without_such_a_thread_the_process_ends_as_ever() -> None:
    program = (
        "import atexit, sys\n"
        "from stockade.cli.node.leaving import leaving\n"
        "from stockade.cluster.tiered.threads import threads\n"
        "pool = threads(1, 'test')\n"
        "pool.submit(print, 'worked')\n"
        "pool.shutdown(wait=False)\n"
        "atexit.register(print, 'ended')\n"
        "with leaving():\n    sys.exit(3)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment(), check=False, capture_output=True, text=True, timeout=END_S
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "worked\nended\n", "")
