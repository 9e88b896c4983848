from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[LocalCluster]:
    """Three nodes for the tests of one file; a node that dies is started again after two seconds."""
    with LocalCluster(module_path / "cluster", port_base=0) as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
