from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import CALM


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, module_path: Path) -> Iterator[LocalCluster]:
    """Three nodes for the tests of one file; a node that dies is started again after two seconds. They are CALM unless
    the file is marked as one of elections.
    """
    settings = CALM if request.node.get_closest_marker("elections") is None else ""
    with LocalCluster(module_path / "cluster", port_base=0, settings=settings) as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
