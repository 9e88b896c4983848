from collections.abc import Iterator

import pytest

from .fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster().running(nodes=2) as running:
        yield running
