"""`stockade probe`: what it asks, what it says, and what it costs."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from stockade.cli.main import main


@contextmanager
def answering(statuses: dict[str, int]) -> Iterator[int]:
    """A server that answers each path with its status; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def config(folder: Path, port: int) -> Path:
    path = folder / "node.toml"
    path.write_text(
        f'node_id = "n1"\ncluster_id = "c"\ndata_dir = "n1"\nhttp = "127.0.0.1:{port}"\n'
        'raft_listen = "127.0.0.1:17201"\n[[members]]\nnode_id = "n1"\n'
        f'url = "http://127.0.0.1:{port}"\nraft = "127.0.0.1:17201"\n'
    )
    return path


def test_a_probe_asks_the_path_and_its_exit_code_is_the_node_s_answer(tmp_path: Path) -> None:
    with answering({"/readyz/data": 503, "/healthz": 200}) as port:
        where = ["probe", "--config", str(config(tmp_path, port))]
        alive = CliRunner().invoke(main, [*where, "--path", "/healthz"])
        ready = CliRunner().invoke(main, where)
    silent = CliRunner().invoke(main, where)
    assert (alive.exit_code, alive.stdout) == (0, "n1: 200\n")
    assert (ready.exit_code, ready.stdout.partition("503")[1]) == (1, "503")
    assert (silent.exit_code, "does not answer" in silent.stdout) == (1, True)


def test_a_probe_says_what_is_wrong_with_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('node_id = "n1"\nhttp = "nowhere"\n')
    refused = CliRunner().invoke(main, ["probe", "--config", str(path)])
    assert (refused.exit_code, f"{path} cannot be used:\n  - " in refused.stderr) == (1, True)


def test_a_probe_needs_fewer_descriptors_than_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with answering({"/healthz": 200}) as port:
        asked = CliRunner().invoke(main, ["probe", "--config", str(config(tmp_path, port)), "--path", "/healthz"])
    assert asked.exit_code == 0, asked.output


def test_a_probe_loads_neither_the_engine_nor_the_libraries_of_a_node() -> None:
    """A container runs it every few seconds: with them it took a second of processor time, and 4 s on a busy machine,
    where a health check has five.
    """
    heavy = ("pyarrow", "numpy", "aiohttp", "uvloop", "pysyncobj", "stockade.raft.host", "stockade.http_api.app")
    code = f"import sys, stockade.cli.node.probe; print([each for each in {heavy} if each in sys.modules])"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "[]"
