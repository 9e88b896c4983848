from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.chaos.system.proxies import ProxyServer

from .proxied import ProxiedCluster


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[ProxiedCluster]:
    """A running cluster behind a mesh of its own."""
    with ProxyServer() as server:
        cluster = ProxiedCluster(server, tmp_path)
        with cluster.local:
            yield cluster
