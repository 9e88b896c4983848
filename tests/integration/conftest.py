from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes for the tests of one file; a node that dies is started again after two seconds."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), port_base=0) as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
