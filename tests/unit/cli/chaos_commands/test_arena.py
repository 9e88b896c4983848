"""The nodes of an arena have configurations that `stockade serve` takes."""

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stockade.cli.chaos_commands import arena
from stockade.cluster.config import check

HOSTS = cast(Any, SimpleNamespace(addresses={f"n{k}": f"10.111.0.{k}" for k in (1, 2, 3)}, prefix=lambda name: ()))


@pytest.mark.parametrize("hosts", [None, HOSTS])
def test_a_node_says_in_words_what_is_open_where_it_listens_beyond_loopback(tmp_path: Path, hosts: Any) -> None:
    local = arena._cluster(tmp_path, 3, hosts, arena.SMALL_FILES + arena.STALL, clocks=False)
    for node in local.nodes:
        config = check(tomllib.loads(local._configuration(node, local.nodes)))
        assert config.limits.disk_stall_ms == 3000
        words = (config.http_plaintext, config.open_to_all, config.raft.plaintext)
        assert words == (hosts is not None,) * 3
        assert config.http.startswith("127.0.0.1:" if hosts is None else f"10.111.0.{node.name[1:]}:")
